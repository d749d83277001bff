//! The programs that are measured.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;

/// Where the programs are.
#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// Echo [default: the one that cargo built for this benchmark]
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_fleet-echo"), hide_default_value = true)]
    pub(crate) echo: PathBuf,
    /// Rotel, from its package for Python; without it its rows are left out
    #[arg(long, value_name = "PATH")]
    pub(crate) rotel: Option<PathBuf>,
    /// The agent, for --load [default: fleet-agent beside Echo]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

impl Programs {
    /// The agent.
    pub(crate) fn agent(&self) -> anyhow::Result<PathBuf> {
        let beside = || self.echo.with_file_name("fleet-agent");
        let agent = self.agent.clone().unwrap_or_else(beside);
        if !agent.is_file() {
            bail!(
                "no agent at {}: run `cargo build --release --package fleet-agent`",
                agent.display()
            );
        }
        Ok(agent)
    }

    /// The program of Echo.
    pub(crate) fn echo(&self) -> &Path {
        &self.echo
    }
}
