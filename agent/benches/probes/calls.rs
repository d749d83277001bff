//! Cost that a probe adds to a call.

use std::collections::BTreeMap;

use anyhow::Context;
use indicatif::ProgressBar;

use crate::agent::Programs;
use crate::machine;
use crate::stand_ins::{StandIns, State, undisturbed};
use crate::table::{Table, least_and_median, pair};

/// Calls per burst, like those of a job's step, and bursts per round.
const CALLS: usize = 1000;
const BURSTS: usize = 25;

/// Functions by their name in the stand-in program, and what the agent does with a call.
const ROWS: [(&str, &str); 7] = [
    ("ncclAllReduce", "`ncclAllReduce`: reported as an event"),
    (
        "cudaStreamSynchronize",
        "`cudaStreamSynchronize` that returns at once: aggregated",
    ),
    ("ncclGroupEnd", "`ncclGroupEnd`: aggregated"),
    (
        "cudaLaunchKernel",
        "`cudaLaunchKernel`: counted, with `--count launches` only",
    ),
    (
        "foreign",
        "`cudaStreamSynchronize` in a process without NCCL: ignored",
    ),
    ("unprobed", "a function without a probe"),
    (
        "getppid",
        "a system call, which enters the kernel once (`getppid`)",
    ),
];

/// Kinds of probes: title of the column, and the agent's flag; none without probes.
const WAYS: [(&str, Option<&str>); 3] = [
    ("unprobed", None),
    ("uprobe_multi adds", Some("multi")),
    ("perf-event uprobes add", Some("perf")),
];

/// Nanoseconds per call of each burst, by function.
type Times = BTreeMap<String, Vec<f64>>;

/// Measures what each kind of probe adds to a call of each function.
pub(crate) fn table(
    programs: &Programs,
    stand_ins: &StandIns,
    rounds: usize,
    progress: &ProgressBar,
) -> anyhow::Result<String> {
    let mut times = [const { Times::new() }; WAYS.len()];
    for round in 1..=rounds {
        for ((title, attach), times) in WAYS.iter().zip(&mut times) {
            progress.set_message(format!("calls: round {round} of {rounds}, {title}"));
            let printed = undisturbed(|| measure(programs, stand_ins, *attach))?;
            add(times, &printed);
        }
    }
    let columns: Vec<&str> = std::iter::once("function, and what the agent does with a call")
        .chain(WAYS.map(|(title, _)| title))
        .collect();
    let mut table = Table::new("Cost of a probed call", &columns);
    let [plain, probed @ ..] = &times;
    for (name, title) in ROWS {
        let figures = |times: &Times| {
            let found = times.get(name).and_then(|times| least_and_median(times));
            found.with_context(|| format!("no measurement of {name}"))
        };
        let base = figures(plain)?;
        let mut cells = vec![title.to_owned(), pair(base, 0)];
        for times in probed {
            let (least, median) = figures(times)?;
            cells.push(pair((least - base.0, median - base.1), 0));
        }
        table.row(&cells);
    }
    Ok(table.end(&format!(
        "Nanoseconds per call, least / median of {} bursts of {CALLS} calls in {rounds} rounds; the program is pinned to a core."
        , rounds * BURSTS
    )))
}

fn measure(
    programs: &Programs,
    stand_ins: &StandIns,
    attach: Option<&str>,
) -> anyhow::Result<Option<String>> {
    let how = (machine::cores() - 1, BURSTS, CALLS);
    let printed = match attach {
        None => stand_ins.time(State::Plain, how)?.finish()?,
        Some(attach) => {
            let agent = programs.start(&["--attach", attach, "--count", "launches"])?;
            let callers = stand_ins.time(State::Probed, how)?;
            let Some(callers) = agent.release(callers, stand_ins.libraries()) else {
                return Ok(None);
            };
            let printed = callers.finish()?;
            agent.stop()?;
            printed
        }
    };
    Ok(printed.map(|printed| printed.concat()))
}

fn add(times: &mut Times, printed: &str) {
    for line in printed.lines() {
        let mut words = line.split_whitespace();
        if let Some(name) = words.next() {
            let bursts = words.filter_map(|word| word.parse::<f64>().ok());
            times.entry(name.to_owned()).or_default().extend(bursts);
        }
    }
}
