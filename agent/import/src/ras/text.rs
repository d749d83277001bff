//! Answers in text, the only format before NCCL 2.28.
//!
//! They name communicators with a discrepancy only. Ranks with the count of the majority are not
//! listed: they are those that no other line lists.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::event::Op;
use fleet_agent_core::ras::{CommStatus, Member, MemberProcess, RankStatus, Status};

use crate::ras::{RasFormatError, op};

/// Largest communicator of which unlisted ranks are added: a size in a damaged answer must not
/// decide how much memory is used.
const MAX_RANKS: u32 = 1 << 20;

/// Parses an answer.
pub fn parse_text(answer: &str) -> Result<Status, RasFormatError> {
    if !answer.contains("Communicators...") {
        return Err(RasFormatError::Text);
    }
    let mut parser = Parser::default();
    for line in answer.lines() {
        parser.line(line.trim_end());
    }
    Ok(parser.finish())
}

/// Section of a communicator.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Nothing of interest.
    #[default]
    Other,
    /// Ranks that did not answer.
    Incomplete,
    /// Ranks that differ, by status or counts.
    Mismatch,
    /// Ranks that differ in their number of these operations.
    Counts(Op),
}

#[derive(Debug, Default)]
struct Parser {
    sizes: BTreeMap<u32, u32>,
    comms: BTreeMap<u64, Comm>,
    current: Option<u64>,
    section: Section,
    /// Count to which the following ranks belong.
    count: Option<u64>,
}

#[derive(Debug, Default)]
struct Comm {
    size: u32,
    members: BTreeMap<u32, Option<MemberProcess>>,
    missing: BTreeSet<u32>,
    leaving: BTreeSet<u32>,
    counts: BTreeMap<Op, Counts>,
}

/// Counts of one operation.
#[derive(Debug, Default)]
struct Counts {
    by_rank: BTreeMap<u32, u64>,
    /// Number of ranks with each count, and how many of them are listed.
    groups: BTreeMap<u64, u32>,
}

impl Parser {
    fn line(&mut self, line: &str) {
        if let Some(title) = line.strip_prefix('#') {
            self.begin_comm(title);
        } else if let Some(detail) = line.strip_prefix("  ") {
            self.group_size(detail);
            self.detail(detail.trim_start());
        }
    }

    /// Reads a row of the table of groups: number, communicators, nodes, ranks per node, ranks per
    /// communicator, ranks, status, errors.
    fn group_size(&mut self, row: &str) {
        let words: Vec<&str> = row.split_whitespace().collect();
        if let [group, comms, _, _, size, _, _, _] = words.as_slice()
            && let (Ok(group), Ok(_), Ok(size)) =
                (group.parse(), comms.parse::<u32>(), size.parse())
        {
            self.sizes.insert(group, size);
        }
    }

    /// Reads `0-1 (0123456789abcdef) MISMATCH` after the number sign.
    fn begin_comm(&mut self, title: &str) {
        (self.current, self.section, self.count) = (None, Section::Other, None);
        let mut words = title.split_whitespace();
        let group = words.next().and_then(|word| word.split('-').next());
        let hash = words
            .next()
            .and_then(|word| u64::from_str_radix(word.trim_matches(['(', ')']), 16).ok());
        let (Some(Ok(group)), Some(hash)) = (group.map(str::parse::<u32>), hash) else {
            return;
        };
        self.section = match words.next() {
            Some("INCOMPLETE") => Section::Incomplete,
            Some("MISMATCH") => Section::Mismatch,
            _ => return,
        };
        self.current = Some(hash);
        let size = self.sizes.get(&group).copied().unwrap_or(0);
        self.comms.entry(hash).or_default().size = size;
    }

    fn detail(&mut self, line: &str) {
        let Some(comm) = self.current.and_then(|hash| self.comms.get_mut(&hash)) else {
            return;
        };
        if let Some(rest) = line.strip_prefix("Communicator ranks have different ") {
            self.count = None;
            let name = rest.split(' ').next().unwrap_or_default();
            self.section = op(name).map_or(Section::Mismatch, Section::Counts);
        } else if let Some(rest) = line.strip_prefix("Rank ") {
            if let Some((rank, rest)) = leading_number(rest) {
                let own = count(rest).or(self.count);
                comm.add(self.section, rank, rest, own);
            }
        } else if let Section::Counts(op) = self.section
            && let Some((n, rest)) = leading_number(line)
        {
            self.count = count(rest);
            if let Some(count) = self.count {
                let counts = comm.counts.entry(op).or_default();
                counts.groups.insert(count, n);
            }
        }
    }

    fn finish(self) -> Status {
        let comms = self.comms.into_iter();
        Status {
            comms: comms.map(|(hash, comm)| comm.status(hash)).collect(),
        }
    }
}

impl Comm {
    fn add(&mut self, section: Section, rank: u32, rest: &str, count: Option<u64>) {
        let known = self.members.entry(rank).or_default();
        *known = known.take().or_else(|| process(rest));
        match (section, count) {
            (Section::Incomplete, _) => {
                self.missing.insert(rank);
            }
            (Section::Counts(op), Some(count)) => {
                let counts = self.counts.entry(op).or_default();
                counts.by_rank.insert(rank, count);
            }
            (Section::Mismatch, _) if !rest.contains(" status RUNNING") => {
                self.leaving.insert(rank);
            }
            _ => {}
        }
    }

    fn status(mut self, hash: u64) -> CommStatus {
        let has_counts = !self.counts.is_empty() && self.size <= MAX_RANKS;
        for counts in self.counts.values_mut() {
            counts.add_unlisted(self.size.min(MAX_RANKS), &self.missing);
        }
        let all = (0..self.size).filter(|_| has_counts);
        let ranks = all.filter(|rank| !self.missing.contains(rank));
        let ranks: Vec<RankStatus> = ranks.filter_map(|rank| self.rank_status(rank)).collect();
        CommStatus {
            hash,
            creator: 0,
            size: self.size,
            ranks,
            missing: self.missing.iter().map(|rank| self.member(*rank)).collect(),
        }
    }

    /// Returns a rank whose counts are all known.
    fn rank_status(&self, rank: u32) -> Option<RankStatus> {
        let own = |(op, counts): (&Op, &Counts)| Some((*op, *counts.by_rank.get(&rank)?));
        let launched = self.counts.iter().map(own).collect::<Option<_>>()?;
        Some(RankStatus {
            member: self.member(rank),
            launched,
            is_leaving: self.leaving.contains(&rank),
        })
    }

    fn member(&self, rank: u32) -> Member {
        let process = self.members.get(&rank).cloned().flatten();
        Member { rank, process }
    }
}

impl Counts {
    /// Adds the unlisted ranks, if all of them have the same count.
    fn add_unlisted(&mut self, size: u32, missing: &BTreeSet<u32>) {
        let mut unlisted = self.groups.clone();
        for count in self.by_rank.values() {
            unlisted
                .entry(*count)
                .and_modify(|n| *n = n.saturating_sub(1));
        }
        unlisted.retain(|_, n| *n > 0);
        let mut counts = unlisted.into_keys();
        if let (Some(count), None) = (counts.next(), counts.next()) {
            for rank in (0..size).filter(|rank| !missing.contains(rank)) {
                self.by_rank.entry(rank).or_insert(count);
            }
        }
    }
}

/// Splits `12 ranks have ...` after the number.
fn leading_number(line: &str) -> Option<(u32, &str)> {
    let (number, rest) = line.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

/// Reads the number of launched operations.
fn count(rest: &str) -> Option<u64> {
    if rest.contains("not launched any operations") {
        return Some(0);
    }
    let (_, number) = rest.split_once("launched up to operation ")?;
    number.split(' ').next()?.parse().ok()
}

/// Reads `GPU 3 (NVML 7) managed by process 4711 on node 10.0.0.1`.
fn process(rest: &str) -> Option<MemberProcess> {
    let (_, rest) = rest.split_once("GPU ")?;
    let (device, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once("managed by process ")?;
    let (pid, host) = rest.split_once(" on node ")?;
    Some(MemberProcess {
        host: host.trim().to_owned(),
        pid: pid.parse().ok()?,
        device: device.parse().ok()?,
    })
}

#[cfg(test)]
mod tests;
