//! Tasks that ran while a rank was runnable, or on its GPU, compared with its peers.

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

/// Task that had a CPU while threads of a rank were runnable, or process that computed on its GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Name; `None` for the sum of those that were not named.
    pub name: Option<String>,
    /// CPU on which it ran last; `None` on a GPU.
    pub cpu: Option<u32>,
}

/// Returns the tasks that took more from the rank than from its peers, longest first. `iterations`
/// has the iterations of each rank.
pub(super) fn standing_out(
    totals: &[&HostTotal],
    iterations: &BTreeMap<Rank, f64>,
    rank: Rank,
) -> Vec<Task> {
    let rate = |total: &HostTotal| {
        let iterations = iterations.get(&total.rank).copied();
        total.sum / iterations.unwrap_or(total.iterations)
    };
    let of_tasks = || totals.iter().copied().filter(|total| total.task.is_some());
    let own: Vec<&HostTotal> = of_tasks().filter(|total| total.rank == rank).collect();
    let all_ms: f64 = own.iter().map(|total| rate(total)).sum();
    // The same program has another process id on each GPU.
    let program = |task: &Task| {
        let name = task.name.as_deref()?;
        Some(name.split(" (PID ").next().unwrap_or(name).to_owned())
    };
    let excess = |total: &HostTotal, own: &Task| {
        let name = program(own);
        let others = iterations.keys().filter(|peer| **peer != rank);
        let rates: Vec<f64> = others
            .map(|peer| {
                let same = of_tasks().filter(|other| {
                    other.rank == *peer && other.task.as_ref().and_then(program) == name
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
            task.name.as_ref()?;
            let stands_out = excess(total, &task) >= LEAST_EXCESS * own_ms;
            (is_large && stands_out).then_some((own_ms, task))
        })
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    named.truncate(MAX_NAMED);
    named.into_iter().map(|(_, task)| task).collect()
}

/// Returns "by kworker/3:1H and `node_exporter` on cpu 12", or the CPU of each if they differ; of
/// processes on a GPU "with bench.py (PID 4711)".
pub(super) fn list(tasks: &[Task]) -> String {
    let first = tasks.first().and_then(|task| task.cpu);
    let shared = first.filter(|_| tasks.iter().all(|task| task.cpu == first));
    let words: Vec<String> = tasks
        .iter()
        .map(|task| {
            let name = task.name.clone().unwrap_or_default();
            match task.cpu.filter(|_| shared.is_none()) {
                Some(cpu) => format!("{name} on cpu {cpu}"),
                None => name,
            }
        })
        .collect();
    let listed = match words.as_slice() {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        words => words.concat(),
    };
    match (shared, first) {
        (Some(cpu), _) => format!("by {listed} on cpu {cpu}"),
        (None, Some(_)) => format!("by {listed}"),
        (None, None) => format!("with {listed}"),
    }
}
