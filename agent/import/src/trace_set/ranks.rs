//! Ranks of traces of the profiler: windows of one rank, and traces whose rank nothing tells.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{ImportError, TraceSet};
use crate::trace::RankTrace;

/// Maximum number of files that are listed with the ranks that they were given.
const MAX_ASSIGNED: usize = 16;

/// Least number of digits of a time in the name of a file: seconds since 1970.
const MIN_TIME_DIGITS: usize = 10;

/// Trace whose rank neither its content nor a word in the name of its file tells.
#[derive(Debug)]
pub(super) struct UnplacedTrace {
    pub(super) file: String,
    /// Numbers in the name that may be the rank, the likeliest first.
    pub(super) numbers: [Option<u32>; 2],
    pub(super) trace: RankTrace,
}

impl TraceSet {
    /// Adds a trace of the profiler. Of several windows of one rank the newest counts; two traces of
    /// the same time are an error.
    pub(super) fn add_window(
        &mut self,
        file: String,
        rank: u32,
        trace: RankTrace,
    ) -> Result<(), ImportError> {
        if let Some(known) = self.traces.get(&rank) {
            let other = self.files.get(&rank).cloned().unwrap_or_default();
            let by_time = || window_order_in_time(known, &trace);
            let order = window_order(&other, &file).or_else(by_time);
            let (newer, older) = match order {
                Some(Ordering::Less) => (&file, &other),
                Some(Ordering::Greater) => (&other, &file),
                _ => return Err(ImportError::SameRank { file, other, rank }),
            };
            let left_out = ImportError::Damaged {
                file: older.clone(),
                reason: format!("an earlier window of rank {rank} than {newer}"),
            };
            self.skip(&left_out);
            if order == Some(Ordering::Greater) {
                return Ok(());
            }
        }
        self.files.insert(rank, file);
        self.traces.insert(rank, trace);
        Ok(())
    }

    /// Adds a trace without a known rank. Of several windows of one process the newest counts.
    pub(super) fn add_unplaced(&mut self, one: UnplacedTrace) {
        let process = window(&one.file).map_or_else(|| one.file.clone(), |(process, _)| process);
        let Some(known) = self.unplaced.remove(&process) else {
            self.unplaced.insert(process, one);
            return;
        };
        let is_newer = window_order(&known.file, &one.file) == Some(Ordering::Less);
        let (newer, older) = if is_newer { (one, known) } else { (known, one) };
        let reason = format!("an earlier window than {}", newer.file);
        self.unplaced.insert(process, newer);
        self.skip(&ImportError::Damaged {
            file: older.file,
            reason,
        });
    }

    /// Gives each trace without a known rank a number in its name, if these can be ranks, else one in
    /// the order of the files.
    pub(super) fn place_traces(&mut self) {
        let unplaced: Vec<_> = std::mem::take(&mut self.unplaced).into_values().collect();
        let by_name = [0, 1]
            .into_iter()
            .find_map(|kind| self.ranks(&unplaced, kind));
        let is_by_name = by_name.is_some();
        let free = (0..=u32::MAX).filter(|rank| !self.files.contains_key(rank));
        let ranks = by_name.unwrap_or_else(|| free.take(unplaced.len()).collect());
        let mut assigned = Vec::new();
        for (one, rank) in unplaced.into_iter().zip(ranks) {
            assigned.push(format!("rank {rank} is {}", one.file));
            self.files.insert(rank, one.file);
            self.traces.insert(rank, one.trace);
        }
        if !is_by_name {
            let more = assigned.len().saturating_sub(MAX_ASSIGNED);
            assigned.truncate(MAX_ASSIGNED);
            assigned.extend((more > 0).then(|| format!("and {more} more")));
            self.notes.push(format!(
                "neither contents nor names (such as rank_3) tell the ranks, so that they are numbered by the order of the files: {}",
                assigned.join(", ")
            ));
        }
    }

    /// Returns the numbers of this kind in the names, if they can be ranks of the job: each another one,
    /// of no other file, and below the number of files or of ranks that the contents tell.
    fn ranks(&self, unplaced: &[UnplacedTrace], kind: usize) -> Option<Vec<u32>> {
        let traces = unplaced.iter().map(|one| &one.trace);
        let traces = traces.chain(self.traces.values());
        let declared = traces.filter_map(RankTrace::n_declared_ranks).max();
        let n_files = u32::try_from(unplaced.len() + self.files.len()).unwrap_or(u32::MAX);
        let limit = declared.unwrap_or(0).max(n_files);
        let is_free = |rank: &u32| *rank < limit && !self.files.contains_key(rank);
        let number = |one: &UnplacedTrace| one.numbers.get(kind).copied().flatten();
        let ranks: Option<Vec<u32>> = unplaced
            .iter()
            .map(|one| number(one).filter(is_free))
            .collect();
        let ranks = ranks?;
        let distinct: BTreeSet<&u32> = ranks.iter().collect();
        (distinct.len() == ranks.len()).then_some(ranks)
    }
}

/// Splits the name of a file such as `worker0.1708722576381.pt.trace.json` into the name without the
/// time of its window, and that time.
fn window(name: &str) -> Option<(String, u64)> {
    let is_time = |part: &&str| part.len() >= MIN_TIME_DIGITS && part.parse::<u64>().is_ok();
    let time = name.split('.').find(is_time)?;
    Some((name.replacen(time, "", 1), time.parse().ok()?))
}

/// Order of two files of one rank whose names differ by the time of their windows only.
fn window_order(one: &str, other: &str) -> Option<Ordering> {
    let ((one, one_time), (other, other_time)) = (window(one)?, window(other)?);
    (one == other).then(|| one_time.cmp(&other_time))
}

/// Order of two traces of one rank if one ends before the other begins.
fn window_order_in_time(one: &RankTrace, other: &RankTrace) -> Option<Ordering> {
    let (one, other) = (one.span_ns()?, other.span_ns()?);
    match (one.1 < other.0, other.1 < one.0) {
        (true, _) => Some(Ordering::Less),
        (_, true) => Some(Ordering::Greater),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of two ranks that says neither, from this microsecond on.
    fn trace(ts: u32) -> String {
        format!(
            r#"{{"traceEvents":[{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce(x)","ts":{ts},"dur":5,"args":{{"stream":7}}}}]}}"#
        )
    }

    fn ranks(files: &[(&str, u32)]) -> (Vec<u32>, Vec<String>, usize) {
        let mut set = TraceSet::default();
        for (name, ts) in files {
            set.add(name, trace(*ts).as_bytes()).unwrap();
        }
        let imported = set.finish().unwrap();
        let ranks = imported.traces.into_keys().collect();
        (ranks, imported.report.notes, imported.report.skipped.len())
    }

    #[test]
    fn numbers_that_can_be_ranks_are_ranks() {
        for names in [
            ["t_1.json", "t_0.json"],
            ["worker0.json", "worker1.json"],
            ["llama_tp8_0.json", "llama_tp8_1.json"],
        ] {
            let (found, notes, _) = ranks(&names.map(|name| (name, 1)));
            assert_eq!(found, [0, 1], "{names:?}");
            assert_eq!(notes, [""; 0], "{names:?}");
        }
    }

    #[test]
    fn numbers_of_processes_are_no_ranks_and_the_order_of_the_files_is_told() {
        for names in [
            ["host_41230.json", "host_41231.json"],
            ["node1_123.json", "node2_123.json"],
            ["a.json", "b.json"],
            ["job-worker-0_41230.json", "job-worker-0_41231.json"],
        ] {
            let (found, notes, _) = ranks(&names.map(|name| (name, 1)));
            assert_eq!(found, [0, 1], "{names:?}");
            let told = format!("rank 0 is {}, rank 1 is {}", names[0], names[1]);
            assert!(notes[0].ends_with(&told), "{notes:?}");
        }
    }

    #[test]
    fn the_newest_window_of_a_rank_counts() {
        for files in [
            [
                ("w/rank0.1708722576381.pt.trace.json", 1),
                ("w/rank0.1708722599999.pt.trace.json", 1),
            ],
            [
                ("w/host_41230.1708722576381.pt.trace.json", 1),
                ("w/host_41230.1708722599999.pt.trace.json", 1),
            ],
            [("1/rank0.json", 1), ("2/rank0.json", 9)],
            [("2/rank0.json", 9), ("1/rank0.json", 1)],
        ] {
            let (found, _, n_skipped) = ranks(&files);
            assert_eq!((found, n_skipped), (vec![0], 1), "{files:?}");
        }
        let mut set = TraceSet::default();
        set.add("1/rank0.json", trace(1).as_bytes()).unwrap();
        let same = set.add("2/rank0.json", trace(3).as_bytes());
        assert!(
            matches!(same, Err(ImportError::SameRank { .. })),
            "{same:?}"
        );
    }
}
