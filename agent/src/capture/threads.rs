//! States of the threads of a process and of its descendants. Only files are read that do not need the
//! memory of the process, which can be locked for as long as it hangs.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fleet_agent_core::printable::printable;
use procfs_core::process::{Stat, Status};
use procfs_core::{FromRead, ProcError};

/// Largest number of threads, and of descendants.
const MAX_TASKS: usize = 1024;
/// Largest number of characters of a name, and of a function of the kernel.
const MAX_TEXT: usize = 120;
/// Ticks of the CPU time in `/proc` per second, the same on all architectures of the agent.
const TICKS_PER_SECOND: u64 = 100;

/// Returns a table of the threads, then one of the descendants: workers of a data loader, for example.
pub(super) fn states(proc: &Path, pid: u32) -> io::Result<String> {
    let own = proc.join(pid.to_string());
    let tasks = numbers(&own.join("task"))?;
    let mut text = format!("Threads of process {pid}:\n\n{HEADER}");
    for tid in tasks.iter().take(MAX_TASKS) {
        text += &row(&own.join("task").join(tid.to_string()));
    }
    let _infallible = writeln!(text, "\n{} threads.", tasks.len());
    let descendants = descendants(proc, pid);
    if !descendants.is_empty() {
        let _infallible = writeln!(text, "\nDescendants:\n\n{HEADER}");
    }
    let is_cut = tasks.len() > MAX_TASKS || descendants.len() >= MAX_TASKS;
    for pid in descendants {
        text += &row(&proc.join(pid.to_string()));
    }
    if is_cut {
        let _infallible = writeln!(text, "\nOnly the first {MAX_TASKS} of each are listed.");
    }
    Ok(text)
}

const HEADER: &str = "     id  state    CPU s   switches  name             waits in\n";

/// Row of a task with this folder; empty if it has ended.
fn row(folder: &Path) -> String {
    let Ok(stat) = parsed::<Stat>(&folder.join("stat")) else {
        return String::new();
    };
    let status = parsed::<Status>(&folder.join("status")).ok();
    let switches = status.and_then(|status| status.voluntary_ctxt_switches);
    let ticks = stat.utime.saturating_add(stat.stime);
    let (seconds, rest) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    let name = printable(&stat.comm, MAX_TEXT);
    format!(
        "{:>7}  {}    {seconds:>6}.{rest:02} {:>10}  {name:<15}  {}\n",
        stat.pid,
        stat.state,
        switches.unwrap_or(0),
        waits_in(folder)
    )
}

/// Function of the kernel in which a task waits.
fn waits_in(folder: &Path) -> String {
    let function = fs::read_to_string(folder.join("wchan")).unwrap_or_default();
    match function.trim() {
        "" | "0" => "-".to_owned(),
        function => printable(function, MAX_TEXT),
    }
}

/// Process ids of the children of a process, their children, and so on.
fn descendants(proc: &Path, pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        let tasks = proc.join(pid.to_string()).join("task");
        for tid in numbers(&tasks).unwrap_or_default() {
            let children = tasks.join(tid.to_string()).join("children");
            let children = fs::read_to_string(children).unwrap_or_default();
            for child in children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
            {
                if found.len() < MAX_TASKS && found.insert(child) {
                    next.push(child);
                }
            }
        }
    }
    found
}

/// Names of the entries of a folder that are numbers, in order.
fn numbers(folder: &Path) -> io::Result<BTreeSet<u32>> {
    let entries = fs::read_dir(folder)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.collect())
}

fn parsed<T: FromRead>(path: &PathBuf) -> Result<T, ProcError> {
    T::from_read(fs::File::open(path)?)
}
