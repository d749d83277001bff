//! The detector and the published rules on the same jobs, as tables.
//!
//! `cargo bench -p echo-bench --bench detection -- --quick` runs the cases of the tests; without
//! `--quick` it takes some minutes per seed, most of them for the meshes of 10,240 ranks and the healthy days.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Parser;
use indicatif::ProgressBar;

mod full;
mod goals;
mod tick;

use echo_bench::case::Case;
use echo_bench::loops::recorded::LOOPS;
use echo_bench::loops::{suite as loop_suite, table};
use echo_bench::rule::Rule;
use echo_bench::{real, report, runner, suite};
use goals::Goals;

/// Scores the detector of Echo and the published rules on simulated and recorded jobs.
#[derive(Debug, Parser)]
#[command(name = "detection")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct Args {
    /// Runs only the small jobs of the tests, each once
    #[arg(long)]
    quick: bool,
    /// Number of runs of each case, each with a different seed
    #[arg(long, default_value_t = 3, value_name = "N")]
    seeds: u64,
    /// Only cases whose table or name contains this; "real" for the recorded jobs, "tick" for the cost of a judgement, "real-loops"
    /// for the recorded loops, "loops" for the generated ones, "loops/FILTER" for those whose name contains FILTER
    #[arg(long, value_name = "FILTER")]
    only: Option<String>,
    /// Simulates no pauses (such as garbage collection), to separate their effect from other noise
    #[arg(long)]
    without_pauses: bool,
    /// Runs only the detector, not the published rules
    #[arg(long)]
    alone: bool,
    /// Lists every miss and every false alert of the detector
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
    let only = args.only.as_deref().unwrap_or("");
    let mut text = loops(&args)?;
    if !only.starts_with("loops") && only != "real-loops" {
        text.push_str(&jobs(&args, only)?);
    }
    println!("{text}");
    if let Some(path) = args.markdown {
        std::fs::write(path, text)?;
    }
    Ok(())
}

impl Args {
    const fn n_seeds(&self) -> u64 {
        if self.quick { 1 } else { self.seeds }
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
            judged.extend(table::run_recorded(recorded, &testdata())?);
        }
        parts.push(("Recorded loops", judged));
    }
    if let Some(filter) = args.loop_filter() {
        let mut judged = Vec::new();
        for case in (1..=args.n_seeds()).flat_map(|seed| loop_suite::cases(seed, filter)) {
            judged.push(table::run(&case)?);
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
    let cases = loop_suite::cases(1, args.loop_filter().unwrap_or(""));
    let case = cases.first().context("no generated loop matches --only")?;
    Ok(std::fs::write(path, case.generate()?.bytes)?)
}

/// Runs the simulated jobs and the recorded jobs, and measures the cost of a judgement.
fn jobs(args: &Args, only: &str) -> anyhow::Result<String> {
    let n_seeds = args.n_seeds();
    let suite = if args.quick { suite::quick } else { full::full };
    let is_wanted = |case: &Case| case.group.contains(only) || case.name.contains(only);
    let mut cases: Vec<Case> = (1..=n_seeds).flat_map(suite).filter(is_wanted).collect();
    if args.without_pauses {
        for case in &mut cases {
            case.noise.pauses = 0.0;
        }
    }
    let progress = ProgressBar::new(cases.len() as u64);
    let mut goals = Goals::default();
    let rules: &[Rule] = if args.alone { &[] } else { &Rule::ALL };
    let results = runner::run_all(&cases, rules, |case, score| {
        goals.add(case, score);
        progress.inc(1);
    })?;
    progress.finish_and_clear();
    let mut text = preface(n_seeds, cases.len()) + &goals.markdown();
    if "real".contains(only) {
        text.push_str(&real::markdown(&real::JOBS, &testdata())?);
    }
    if only == "tick" || (only.is_empty() && !args.quick) {
        text.push_str(&tick::markdown()?);
    }
    text.push_str(&report::markdown(&results.tables, runner::ECHO));
    text.push_str(&report::details(&results.details, runner::ECHO));
    if args.wrong {
        text.push_str(&report::wrong(&results.tables, runner::ECHO));
    }
    Ok(text)
}

/// Describes the cases and the machine.
fn preface(n_seeds: u64, n_cases: usize) -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown CPU", |model| {
        model.trim_start_matches([' ', '\t', ':'])
    });
    let cores = cpus
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let profile = if cfg!(debug_assertions) {
        "without optimisation"
    } else {
        "optimised"
    };
    format!(
        "{n_cases} simulated jobs, seeds 1 to {n_seeds}; one thread of {cores} x {model}, {profile}. \
         Intervals are Wilson's at 95 %, limits of rates Poisson's.\n\n"
    )
}
