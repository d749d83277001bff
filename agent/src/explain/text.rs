//! Explanations as text.

use std::fmt;

use fleet_agent_core::event::{FunctionDurations, Process};
use fleet_agent_core::explain::{CausalChain, Observation, ProcessReport};
use fleet_agent_core::signal::millis;

use crate::explain::summary::{HeldChain, ProcessSummary, Summary};

/// Maximum number of frames of a stack in text.
const MAX_FRAMES: usize = 4;
/// Maximum number of functions of a process in text.
const MAX_FUNCTIONS: usize = 12;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes: Vec<ProcessSummary> = self.processes().collect();
        let explained: Vec<&ProcessSummary> = processes
            .iter()
            .filter(|process| !process.chains.is_empty())
            .collect();
        for process in &explained {
            write_explained(f, process)?;
        }
        if explained.is_empty() {
            write_nothing(f, &processes)?;
            if !self.per_process {
                writeln!(
                    f,
                    "Add --per-process for their calls and their time off the CPU."
                )?;
            }
        }
        if self.per_process {
            for process in &processes {
                write_figures(f, process)?;
            }
        }
        for limitation in self.hosts.iter().flat_map(|host| &host.limitations) {
            writeln!(f, "Not seen: {limitation}")?;
        }
        Ok(())
    }
}

/// Writes the chains of a process.
fn write_explained(f: &mut fmt::Formatter<'_>, own: &ProcessSummary) -> fmt::Result {
    write_title(f, own.pid, own.process)?;
    for held in &own.chains {
        write_chain(f, &held.chain)?;
        write_duration(f, held)?;
        for advice in &held.chain.advice {
            writeln!(f, "  do       {advice}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Writes what was looked at if no process has a chain.
fn write_nothing(f: &mut fmt::Formatter<'_>, processes: &[ProcessSummary]) -> fmt::Result {
    let longest = processes.iter().map(|own| own.observed_ns).max();
    let seconds = seconds(longest.unwrap_or(0));
    let noun = if processes.len() == 1 {
        "process"
    } else {
        "processes"
    };
    writeln!(
        f,
        "Nothing stands out: {} {noun} observed for {seconds:.0} s.",
        processes.len()
    )
}

/// Writes the calls and the time off the CPU of a process.
fn write_figures(f: &mut fmt::Formatter<'_>, own: &ProcessSummary) -> fmt::Result {
    write_title(f, own.pid, own.process)?;
    write_tables(f, &own.seen, own.observed_ns)?;
    writeln!(f)
}

/// What was found out about a process in one period, as text.
pub(super) struct Period<'a>(pub(super) &'a ProcessReport);

impl fmt::Display for Period<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        write_title(f, report.pid, report.process)?;
        for chain in &report.chains {
            write_chain(f, chain)?;
        }
        let observed_ns = report.to_ns.saturating_sub(report.from_ns);
        write_tables(f, &report.seen, observed_ns)
    }
}

fn write_title(f: &mut fmt::Formatter<'_>, pid: u32, process: Option<Process>) -> fmt::Result {
    match process {
        Some(process) => writeln!(f, "Rank {} (pid {pid})", process.rank),
        None => writeln!(f, "Process {pid} (no rank)"),
    }
}

fn write_chain(f: &mut fmt::Formatter<'_>, chain: &CausalChain) -> fmt::Result {
    writeln!(f, "  {:<8} {chain}", chain.severity().name())?;
    for link in &chain.links {
        writeln!(f, "  because  {link}")?;
    }
    if let Some(place) = &chain.place {
        let mut lines = place.lines();
        lines.truncate(MAX_FRAMES);
        write!(f, "  where    {}", lines.join(" <- "))?;
        if place.share > 0.0 {
            writeln!(f, " ({:.0} % of the samples)", place.share * 100.0)?;
        } else {
            writeln!(f, " (read in a call that no sample met)")?;
        }
    }
    Ok(())
}

fn write_duration(f: &mut fmt::Formatter<'_>, held: &HeldChain) -> fmt::Result {
    write!(f, "  held     for {:.0} s, ", seconds(held.held_ns))?;
    if held.over_ns == 0 {
        writeln!(f, "and still does")
    } else {
        writeln!(f, "until {:.0} s before the end", seconds(held.over_ns))
    }
}

fn write_tables(f: &mut fmt::Formatter<'_>, seen: &Observation, observed_ns: u64) -> fmt::Result {
    if let Some(threads) = seen.threads {
        writeln!(
            f,
            "  off the CPU: blocked {:.1} ms/s, preempted {:.1} ms/s, {} preemptions",
            per_second(threads.off_cpu_ns, observed_ns),
            per_second(threads.preempted_ns, observed_ns),
            threads.preemptions
        )?;
    }
    let mut calls: Vec<&FunctionDurations> = seen.calls.values().collect();
    if calls.is_empty() {
        return Ok(());
    }
    calls.sort_by_key(|calls| std::cmp::Reverse(calls.total_ns));
    writeln!(
        f,
        "  {:<32} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "function", "calls", "ms/s", "p50 ms", "p99 ms", "max ms"
    )?;
    for calls in calls.into_iter().take(MAX_FUNCTIONS) {
        let percentile = |percent| millis(calls.percentile_ns(percent).unwrap_or(0));
        writeln!(
            f,
            "  {:<32} {:>9} {:>9.1} {:>9.3} {:>9.3} {:>9.3}",
            calls.label(),
            calls.calls(),
            per_second(calls.total_ns, observed_ns),
            percentile(50),
            percentile(99),
            millis(calls.longest_ns)
        )?;
    }
    Ok(())
}

fn seconds(ns: u64) -> f64 {
    millis(ns) / 1e3
}

/// Milliseconds per second.
fn per_second(ns: u64, observed_ns: u64) -> f64 {
    if observed_ns == 0 {
        0.0
    } else {
        millis(ns) / millis(observed_ns) * 1e3
    }
}
