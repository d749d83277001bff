//! Lines that `PyTorch`'s watchdog logs when an operation takes too long: how far a rank is in a
//! process group, and what it waits for.
//!
//! The logs of all ranks may be in one file, among other lines.

use std::collections::BTreeMap;

use fleet_hang::{Group, Job, Operation, Progress};

/// Line about an operation.
const TIMEOUT: &str = "Watchdog caught collective operation timeout: WorkNCCL(";
/// Line about the progress in a group.
const STATUS: &str = "last enqueued work: ";
/// Group of all ranks.
const DEFAULT_GROUP: &str = "default_pg";

/// What the watchdogs of all ranks logged.
#[derive(Debug, Default)]
pub(crate) struct WatchdogLog {
    /// Progress by process group and rank.
    groups: BTreeMap<String, BTreeMap<u32, Progress>>,
    /// Operations that took too long, by rank.
    timeouts: BTreeMap<u32, BTreeMap<u64, Operation>>,
}

/// Returns whether a file has lines of the watchdog.
pub(crate) fn is_log(bytes: &[u8]) -> bool {
    let has = |key: &str| memchr::memmem::find(bytes, key.as_bytes()).is_some();
    has(TIMEOUT) || (has(STATUS) && has("last completed work: "))
}

impl WatchdogLog {
    /// Adds the lines of a file.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines() {
            let Some(rank) = number_after(line, "Rank ").and_then(|rank| rank.try_into().ok())
            else {
                continue;
            };
            if let Some((_, work)) = line.split_once(TIMEOUT) {
                self.add_timeout(rank, work);
            } else if let Some(enqueued) = number_after(line, STATUS) {
                let progress = Progress {
                    enqueued: Some(enqueued),
                    completed: number_after(line, "last completed work: "),
                    ..Progress::default()
                };
                let group = self.groups.entry(group(line).to_owned()).or_default();
                group.insert(rank, progress);
            }
        }
    }

    /// Adds `SeqNum=101, OpType=ALLREDUCE, NumelIn=1024, ...`.
    fn add_timeout(&mut self, rank: u32, work: &str) {
        let op = work.split_once("OpType=").map_or("", |(_, rest)| rest);
        let op = op.split([',', ')']).next().unwrap_or_default();
        let name = op.to_ascii_lowercase();
        let is_transfer = ["send", "recv", "coalesced"].contains(&name.as_str());
        if let Some(seq) = number_after(work, "SeqNum=").filter(|_| !is_transfer) {
            let is_even = name == "allreduce" || name == "broadcast";
            let operation = Operation {
                elements: number_after(work, "NumelIn=").filter(|_| is_even),
                name,
                ..Operation::default()
            };
            self.timeouts
                .entry(rank)
                .or_default()
                .insert(seq, operation);
        }
    }

    /// Returns the ranks that logged something.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = u32> {
        let of_groups = self.groups.values().flat_map(BTreeMap::keys);
        of_groups.chain(self.timeouts.keys()).copied()
    }

    /// Returns the progress of the ranks. All ranks up to the highest belong to the default group.
    pub(crate) fn job(mut self) -> Job {
        let highest = self.ranks().max();
        for (rank, operations) in self.timeouts {
            for (seq, operation) in operations {
                let waits = |own: &Progress| own.completed < Some(seq) && own.enqueued >= Some(seq);
                let mut groups = self.groups.values_mut();
                let known = groups.find_map(|own| own.get_mut(&rank).filter(|own| waits(own)));
                let own = if let Some(own) = known {
                    own
                } else {
                    // Watchdogs before `PyTorch` 2.4 log no more than the operation.
                    let group = self.groups.entry(DEFAULT_GROUP.to_owned()).or_default();
                    group.entry(rank).or_default()
                };
                own.enqueued = own.enqueued.max(Some(seq));
                own.operations.insert(seq, operation);
            }
        }
        let group = |(name, progress): (String, BTreeMap<u32, Progress>)| {
            let all = (0..=highest.unwrap_or(0)).filter(|_| name == DEFAULT_GROUP);
            Group {
                members: all.chain(progress.keys().copied()).collect(),
                name,
                progress,
                ..Group::default()
            }
        };
        Job {
            groups: self.groups.into_iter().map(group).collect(),
            ..Job::default()
        }
    }
}

/// Reads the group of `[PG ID 0 PG GUID 0(default_pg) Rank 1]`.
fn group(line: &str) -> &str {
    let guid = line.split_once("PG GUID ").map_or("", |(_, rest)| rest);
    let (guid, _) = guid.split_once(" Rank ").unwrap_or((guid, ""));
    let name = guid
        .split_once('(')
        .map(|(_, name)| name.trim_end_matches(')'));
    match name {
        Some(DEFAULT_GROUP) => DEFAULT_GROUP,
        _ if guid.is_empty() => DEFAULT_GROUP,
        _ => guid,
    }
}

/// Reads the number that follows a text.
fn number_after(line: &str, text: &str) -> Option<u64> {
    let (_, rest) = line.split_once(text)?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use fleet_hang::{Hang, Kind, analyse};

    use super::*;

    fn hang(lines: &[&str]) -> Hang {
        let mut log = WatchdogLog::default();
        log.add(lines.join("\n").as_bytes());
        analyse(&log.job())
    }

    fn status(group: &str, rank: u32, enqueued: u64) -> String {
        format!(
            "[rank{rank}]:[E101] [PG ID 1 PG GUID {group} Rank {rank}]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: {enqueued}, last completed work: 6"
        )
    }

    #[test]
    fn a_rank_that_is_behind_in_its_group_is_named() {
        let lines = [
            status("3(TP)", 0, 9),
            status("3(TP)", 1, 6),
            status("5(DP)", 2, 8),
        ];
        let hang = hang(&lines.each_ref().map(String::as_str));
        assert_eq!(hang.missing, [1]);
        assert_eq!(hang.blocked[0].group, "3(TP)");
    }

    #[test]
    fn operations_without_a_status_are_compared() {
        let timeout = |rank, numel| {
            format!(
                "[Rank {rank}] {TIMEOUT}SeqNum=7, OpType=ALLREDUCE, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=1000) ran for 1001 milliseconds before timing out."
            )
        };
        let lines = [timeout(0, 16), timeout(1, 16), timeout(2, 17)];
        let hang = hang(&lines.each_ref().map(String::as_str));
        assert_eq!(
            (hang.findings[0].kind, &hang.findings[0].ranks[..]),
            (Kind::Mismatch, &[2][..])
        );
    }
}
