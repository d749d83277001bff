//! Cost of the probes for the watched processes, and of the agent for their host.
//!
//! `cargo bench -p fleet-agent --bench probes -- --quick` is a smoke test of half a minute; without
//! `--quick` it takes about three minutes. It needs root, since it runs the agent as in production:
//! a separate process that watches this host.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time and waits for other processes"
)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use indicatif::ProgressBar;

mod agent;
mod calls;
mod document;
mod load;
mod machine;
mod process;
mod stand_ins;
mod storm;
mod table;

use crate::agent::Programs;
use crate::stand_ins::StandIns;

/// Measure the cost of probes and agent, with jobs that call stand-ins for NCCL and CUDA
#[derive(Debug, Parser)]
#[command(name = "probes")]
struct Args {
    /// Use short measurements: checks that everything works, but the figures mean little
    #[arg(long)]
    quick: bool,
    /// Run only one benchmark: calls, load or storm
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Duration of the load benchmark, seconds
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u64,
    /// Rounds of the calls benchmark
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    programs: Programs,
    /// Also write the figures into this document, between its markers
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(
    clippy::print_stdout,
    reason = "the tables are the output of the benchmark"
)]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if !rustix::process::geteuid().is_root() {
        bail!("the benchmark needs root to attach probes: run it with sudo");
    }
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(Duration::from_millis(200));
    let text = args.figures(&progress)?;
    progress.finish_and_clear();
    println!("{text}");
    match &args.markdown {
        Some(file) => document::write_figures(file, &text),
        None => Ok(()),
    }
}

impl Args {
    fn figures(&self, progress: &ProgressBar) -> anyhow::Result<String> {
        let stand_ins = StandIns::build()?;
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let (rounds, seconds) = if self.quick {
            (1, 6)
        } else {
            (self.rounds, self.seconds)
        };
        let mut text = format!("Measured on {}.\n\n", machine::describe());
        if is_wanted("calls") {
            text += &calls::table(&self.programs, &stand_ins, rounds, progress)?;
        }
        if is_wanted("load") {
            text += &load::table(&self.programs, &stand_ins, seconds, progress)?;
        }
        if is_wanted("storm") {
            text += &storm::table(&self.programs, &stand_ins, progress)?;
        }
        Ok(text)
    }
}
