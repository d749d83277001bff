//! The detector and other rules on the same jobs, as tables.
//!
//! `cargo bench -p echo-bench --bench detection` runs the recorded jobs and three seeds of generated
//! loops, which takes some minutes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;

use echo_bench::loops::recorded::LOOPS;
use echo_bench::loops::table::Sight;
use echo_bench::loops::{suite, table};
use echo_bench::real;

/// Scores the detector of Echo and other rules on recorded and generated jobs.
#[derive(Debug, Parser)]
#[command(name = "detection")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command")]
struct Args {
    /// Number of runs of each generated loop, each with a different seed
    #[arg(long, default_value_t = 3, value_name = "N")]
    seeds: u64,
    /// Only "real" for the recorded jobs beside published rules, "real-loops" for the recorded loops, "loops" for the generated
    /// ones, "loops/FILTER" for those whose name contains FILTER
    #[arg(long, value_name = "FILTER")]
    only: Option<String>,
    /// Shows the detector the hosts only, as without the NCCL profiler plugin
    #[arg(long)]
    hosts: bool,
    /// Lists the verdict on each loop
    #[arg(long)]
    wrong: bool,
    /// Writes the recording of the first generated loop of "--only loops/FILTER" to this file and exits
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Writes the tables to this file as well
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Flag that cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(clippy::print_stdout, reason = "the benchmark prints its tables")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(path) = &args.write {
        return write_loop(&args, path);
    }
    let mut text = loops(&args)?;
    if matches!(args.only.as_deref(), None | Some("real")) {
        text.push_str(&real::markdown(&real::JOBS, &testdata())?);
    }
    println!("{text}");
    if let Some(path) = args.markdown {
        std::fs::write(path, text)?;
    }
    Ok(())
}

impl Args {
    const fn sight(&self) -> Sight {
        if self.hosts { Sight::Hosts } else { Sight::All }
    }

    /// Filter on the names of generated loops; `None` for no generated loops.
    fn loop_filter(&self) -> Option<&str> {
        match self.only.as_deref() {
            None => Some(""),
            Some(only) => only
                .strip_prefix("loops")
                .map(|rest| rest.trim_start_matches('/')),
        }
    }
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// Runs the realistic loops, recorded and generated: the most important figures.
fn loops(args: &Args) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut parts = Vec::new();
    if matches!(args.only.as_deref(), None | Some("real-loops")) {
        let mut judged = Vec::new();
        for recorded in &LOOPS {
            judged.extend(table::run_recorded(recorded, &testdata(), args.sight())?);
        }
        parts.push(("Recorded loops", judged));
    }
    if let Some(filter) = args.loop_filter() {
        let mut judged = Vec::new();
        for case in (1..=args.seeds).flat_map(|seed| suite::cases(seed, filter)) {
            judged.push(table::run(&case, args.sight())?);
        }
        parts.push(("Generated loops", judged));
    }
    for (title, judged) in &parts {
        text.push_str(&table::markdown(title, judged));
    }
    for (title, judged) in parts.iter().filter(|_| args.wrong) {
        text.push_str(&table::details(title, judged));
    }
    Ok(text)
}

/// Writes a generated loop as a recording, for `fleet-agent replay`.
fn write_loop(args: &Args, path: &Path) -> anyhow::Result<()> {
    let cases = suite::cases(1, args.loop_filter().unwrap_or(""));
    let case = cases.first().context("no generated loop matches --only")?;
    Ok(std::fs::write(path, case.generate()?.bytes)?)
}
