//! Tasks that ran while a rank was runnable, compared with its peers.

use std::collections::BTreeMap;

use echo_core::ids::Rank;
use echo_core::stats::median;

use crate::evidence::HostTotal;

/// Maximum number of tasks that are named.
const MAX_NAMED: usize = 3;
/// Smallest share of the time of all tasks for which a task is named.
const LEAST_SHARE: f64 = 0.1;
/// Smallest excess over the peers, as a share of the rank's own rate, for which a task is named:
/// a task that runs beside every rank makes none of them late.
const LEAST_EXCESS: f64 = 0.5;
/// Smallest rate for which a task is named, milliseconds per iteration.
const LEAST_MS: f64 = 0.1;

/// Task that had a CPU while threads of a rank were runnable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Name; `None` for the sum of those that were not named.
    pub name: Option<String>,
    /// CPU on which it ran last.
    pub cpu: u32,
}

/// Returns the tasks that took more of the rank's CPU than of its peers', longest first.
/// `iterations` has the iterations of each rank.
pub(super) fn preempting(
    totals: &[HostTotal],
    iterations: &BTreeMap<Rank, f64>,
    rank: Rank,
) -> Vec<Task> {
    let rate = |total: &HostTotal| {
        let iterations = iterations.get(&total.rank).copied();
        total.sum / iterations.unwrap_or(total.iterations)
    };
    let of_tasks = || totals.iter().filter(|total| total.task.is_some());
    let own: Vec<&HostTotal> = of_tasks().filter(|total| total.rank == rank).collect();
    let all_ms: f64 = own.iter().map(|total| rate(total)).sum();
    let excess = |total: &HostTotal, name: &str| {
        let others = iterations.keys().filter(|peer| **peer != rank);
        let rates: Vec<f64> = others
            .map(|peer| {
                let same = of_tasks().filter(|other| {
                    let task = other.task.as_ref();
                    other.rank == *peer && task.and_then(|task| task.name.as_deref()) == Some(name)
                });
                same.map(rate).sum()
            })
            .collect();
        rate(total) - median(&rates).unwrap_or(0.0)
    };
    let mut named: Vec<(f64, Task)> = own
        .into_iter()
        .filter_map(|total| {
            let task = total.task.clone()?;
            let own_ms = rate(total);
            let is_large = own_ms >= LEAST_MS && own_ms >= LEAST_SHARE * all_ms;
            let stands_out = excess(total, task.name.as_deref()?) >= LEAST_EXCESS * own_ms;
            (is_large && stands_out).then_some((own_ms, task))
        })
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    named.truncate(MAX_NAMED);
    named.into_iter().map(|(_, task)| task).collect()
}

/// Returns "kworker/3:1H and `node_exporter` on cpu 12", or the CPU of each if they differ.
pub(super) fn list(tasks: &[Task]) -> String {
    let name = |task: &Task| task.name.clone().unwrap_or_default();
    let first = tasks.first().map(|task| task.cpu);
    let share_cpu = tasks.iter().all(|task| Some(task.cpu) == first);
    let words: Vec<String> = tasks
        .iter()
        .map(|task| {
            if share_cpu {
                name(task)
            } else {
                format!("{} on cpu {}", name(task), task.cpu)
            }
        })
        .collect();
    let listed = match words.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        words => words.concat(),
    };
    match first.filter(|_| share_cpu) {
        Some(cpu) => format!("{listed} on cpu {cpu}"),
        None => listed,
    }
}
