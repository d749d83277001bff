//! The detector and the published rules on the same jobs, as tables.

use std::path::{Path, PathBuf};

use clap::Parser;

#[path = "echobench.rs"]
mod echobench;

use echobench::case::Case;
use echobench::{real, report, runner, suite};

/// Scores the detector of Echo and the published rules on simulated and recorded jobs.
#[derive(Debug, Parser)]
#[command(name = "detection")]
struct Args {
    /// Small jobs only, each once: what the tests run.
    #[arg(long)]
    quick: bool,
    /// How often each case is run, each time with another seed.
    #[arg(long, default_value_t = 3, value_name = "N")]
    seeds: u64,
    /// Only cases whose table or name contains this.
    #[arg(long, value_name = "FILTER")]
    only: Option<String>,
    /// Lists every miss and every false alert of the detector
    #[arg(long)]
    wrong: bool,
    /// Writes the tables to this file as well.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are what the benchmark is for"
)]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let is_wanted = |case: &Case| {
        let only = args.only.as_deref().unwrap_or("");
        case.group.contains(only) || case.name.contains(only)
    };
    let seeds = if args.quick { 1..2 } else { 1..args.seeds + 1 };
    let cases: Vec<Case> = seeds.flat_map(suite::quick).filter(is_wanted).collect();
    let tables = runner::tables(&cases)?;
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata");
    let mut text = report::markdown(&tables, runner::ECHO);
    if args.wrong {
        text.push_str(&report::wrong(&tables, runner::ECHO));
    }
    if args.only.is_none() {
        text.push_str(&real::markdown(&testdata)?);
    }
    println!("{text}");
    if let Some(path) = args.markdown {
        std::fs::write(path, text)?;
    }
    Ok(())
}
