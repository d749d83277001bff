//! Measured programs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;

/// Paths of the programs.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// Echo [default: fleet-echo of the same build]
    #[arg(long, value_name = "PATH")]
    echo: Option<PathBuf>,
    /// Rotel, from its Python package; without it the tables have no rows for it
    #[arg(long, value_name = "PATH")]
    pub(crate) rotel: Option<PathBuf>,
    /// The agent, for --load [default: fleet-agent beside Echo]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

impl Programs {
    /// Path of the agent.
    pub(crate) fn agent(&self) -> anyhow::Result<PathBuf> {
        program(self.agent.as_ref(), "fleet-agent")
    }

    /// Path of Echo.
    pub(crate) fn echo(&self) -> anyhow::Result<PathBuf> {
        program(self.echo.as_ref(), "fleet-echo")
    }
}

/// Returns the given program, or the one of the same build as this benchmark.
fn program(named: Option<&PathBuf>, name: &str) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path.clone(),
        // Benchmarks are in the folder `deps` beside the programs.
        None => env::current_exe()?
            .ancestors()
            .nth(2)
            .unwrap_or_else(|| Path::new("."))
            .join(name),
    };
    if !path.is_file() {
        bail!(
            "no program at {}: run `cargo build --release --package {name}`",
            path.display()
        );
    }
    Ok(path)
}
