//! One job: its ranks and communicators, and its windows in order.

mod members;

use std::collections::{BTreeMap, HashMap};

use echo_core::model::event::Source;
use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, Heartbeat, NodeKey, ProcessKey};
use crate::straggler::clock::Clocks;
use crate::straggler::communicator::{CommKey, Communicator, Place};
use crate::straggler::early::Early;
use crate::straggler::incident::RankOfJob;
use crate::straggler::judge::Judge;
use crate::straggler::ledger::{Coverage, WindowSums};
use crate::straggler::matched_block::{MatchedBlock, Row};
use crate::straggler::measure::{Measured, Placement};
use crate::straggler::member::Member;
use crate::straggler::peers::{PeerComparison, compare};
use crate::straggler::rule::Rule;
use crate::straggler::stall::behind;

/// Time after which a rank from which nothing is received is not waited for, seconds. Agents report
/// every 5 s by default, and repeat what fails.
const SILENT_S: f64 = 15.0;

/// Time within which a block is reported after it has ended, seconds: agents report a block to which
/// nothing is added for a second as it is, and clocks differ.
const SLACK_S: f64 = 2.5;

/// Time within which an operation that has ended is part of a block, seconds: agents keep the rows of
/// the GPU until the calls before them are known, and reports of progress overtake them.
const OVERTAKEN_S: f64 = 5.0;

/// Longest evaluation, seconds. It is extended while the most regular communicators have completed
/// nothing.
const LONGEST_S: f64 = 30.0;

/// Number of blocks of a communicator that are left out because the clocks of its ranks are not aligned
/// with those of the others; after that they are taken as right.
const MAX_UNPLACED: u32 = 16;

/// A minute, nanoseconds; a multiple of the window.
const MINUTE_NS: i64 = 60_000_000_000;

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    rule: Rule,
    source: Source,
    /// Reports that were received while ranks were expected to begin; `None` from then on.
    early: Option<Early>,
    /// Origin of the job's clock.
    origin: Nanos,
    members: Vec<Member>,
    by_process: HashMap<ProcessKey, usize>,
    clocks: Clocks,
    nodes: Vec<NodeKey>,
    /// Node of each rank.
    node_of: Vec<u32>,
    comms: Vec<Communicator>,
    by_key: HashMap<CommKey, usize>,
    /// Windows that are not evaluated yet, by their number.
    pending: BTreeMap<i64, WindowSums>,
    /// Sums of the evaluation in progress.
    current: WindowSums,
    /// Number of the first window that is not evaluated, and end of the last evaluation, job time.
    next_window: i64,
    evaluated: f64,
    /// End of the last completed block, job time.
    last_end: f64,
    /// Latest instant at which a rank was seen to have enqueued more, job time.
    last_enqueue: f64,
    /// Time that each peer waited for each rank in the last evaluation, as a share.
    peers: Vec<f64>,
    pub(super) coverage: Coverage,
    pub(super) judge: Judge,
}

impl Job {
    /// Creates a job of which an operation ended at `first`. Its clock begins with the minute, so that
    /// the windows are the same whichever rank reports first.
    pub(super) fn new(first: Nanos, source: Source, rule: Rule) -> Self {
        let origin = Nanos::new(first.value().div_euclid(MINUTE_NS) * MINUTE_NS);
        Self {
            rule,
            source,
            early: Some(Early::default()),
            origin,
            members: Vec::new(),
            by_process: HashMap::new(),
            clocks: Clocks::default(),
            nodes: Vec::new(),
            node_of: Vec::new(),
            comms: Vec::new(),
            by_key: HashMap::new(),
            pending: BTreeMap::new(),
            current: WindowSums::default(),
            next_window: i64::MIN,
            evaluated: f64::NAN,
            last_end: f64::NEG_INFINITY,
            last_enqueue: f64::NEG_INFINITY,
            peers: Vec::new(),
            coverage: Coverage::default(),
            judge: Judge::new(rule, source),
        }
    }

    /// What measures its ranks.
    pub(super) const fn source(&self) -> Source {
        self.source
    }

    /// Comparison of the ranks by the waiting that they caused in the last evaluation.
    pub(super) fn peers(&self) -> Option<PeerComparison> {
        let usual = self.judge.usual_peers(self.peers.len());
        let n = self.len();
        let ranks = self.members.iter().zip(&self.peers).enumerate();
        let ranks: Vec<(RankOfJob, f64, Option<f64>)> = ranks
            .map(|(rank, (member, caused))| {
                let usual = usual.as_ref().and_then(|usual| usual.get(rank).copied());
                (member.identity(n), *caused, usual)
            })
            .collect();
        compare(&ranks)
    }

    /// Instant of a time of the job's clock.
    pub(super) fn instant(&self, seconds: f64) -> Nanos {
        self.origin.offset((seconds * 1e9) as i64)
    }

    fn seconds(&self, instant: Nanos) -> f64 {
        instant.millis_since(self.origin) / 1e3
    }

    /// Reports that no evaluation contains yet, because ranks are expected to begin; `None` after that.
    pub(super) const fn early(&self) -> Option<&Early> {
        self.early.as_ref()
    }

    /// Adds a report.
    pub(super) fn add(&mut self, block: &BlockSum, place: Place, received: Nanos) {
        let rank = self.member(block);
        let end = self.seconds(block.end);
        if let Some(member) = self.members.get_mut(rank) {
            member.measure(end, received);
        }
        let index = self.communicator(place, received);
        let Some(comm) = self.comms.get_mut(index) else {
            return;
        };
        comm.has_transfers |= block.is_transfer();
        let number = u32::try_from(rank).ok();
        let slot = comm.members.get_mut(place.slot);
        let before = slot.and_then(|member| std::mem::replace(member, number));
        let replaced = before.filter(|before| Some(*before) != number);
        let early = self.early.as_mut();
        if let Some(early) = early.filter(|early| !early.is_full()) {
            early.push(*block, place, received);
        } else {
            self.begin();
            self.match_block(block, place);
        }
        if let Some(old) = replaced {
            self.clocks.replace(old as usize, rank);
        }
        if let Some(member) = replaced.and_then(|old| self.members.get_mut(old as usize)) {
            // A new process has this rank, so the evaluation does not wait for reports of the old one.
            member.heard = Nanos::EARLIEST;
        }
    }

    /// Matches the early reports in the order of their times, which does not depend on how fast each
    /// agent sent them.
    fn begin(&mut self) {
        let Some(early) = self.early.take() else {
            return;
        };
        let rank = |process: ProcessKey| self.by_process.get(&process).copied();
        let common = early.common_ends(rank, |block| block.end.millis_since(self.origin) / 1e3);
        self.clocks.align_all(&common);
        for (block, place) in early.in_order(|block| self.aligned(block)) {
            self.match_block(&block, place);
        }
    }

    /// End of a block on the job's clock, seconds, as far as the clock of its rank is known.
    fn aligned(&self, block: &BlockSum) -> f64 {
        let rank = self.by_process.get(&block.process);
        let offset = rank.and_then(|rank| self.clocks.offset(*rank));
        self.seconds(block.end) - offset.unwrap_or(0.0)
    }

    /// Matches a report with those of the other ranks about the same operations.
    fn match_block(&mut self, block: &BlockSum, place: Place) {
        let aligned = self.aligned(block);
        let row = Row::from_block(block, self.seconds(block.end));
        let Some(index) = self.by_key.get(&place.key).copied() else {
            return;
        };
        let Some(comm) = self.comms.get_mut(index) else {
            return;
        };
        for closed in comm.add(place.slot, block.seqs, (&row, aligned)) {
            self.close(index, &closed);
        }
    }

    /// Notes that a process lives.
    pub(super) fn note_alive(&mut self, process: ProcessKey, (at, received): (Nanos, Nanos)) {
        let at = self.seconds(at) - OVERTAKEN_S;
        let rank = self.by_process.get(&process);
        if let Some(member) = rank.and_then(|rank| self.members.get_mut(*rank)) {
            member.hear(at, received);
        }
    }

    /// Notes that a process lives, and how far it is.
    pub(super) fn note(&mut self, beat: &Heartbeat, place: Place, received: Nanos) {
        let at = self.seconds(beat.at);
        let Some(rank) = self.by_process.get(&beat.process).copied() else {
            return;
        };
        if let Some(member) = self.members.get_mut(rank) {
            member.hear(at, received);
        }
        let comm = self.by_key.get(&place.key);
        let comm = comm.and_then(|index| self.comms.get_mut(*index));
        let enqueued = comm.and_then(|comm| comm.enqueued.get_mut(place.slot));
        if let Some(enqueued) = enqueued.filter(|enqueued| beat.enqueued > **enqueued) {
            *enqueued = beat.enqueued;
            let offset = self.clocks.offset(rank);
            self.last_enqueue = self.last_enqueue.max(at - offset.unwrap_or(0.0));
        }
    }

    /// Evaluates the windows that no rank will add to any more; returns true if there was one, or if
    /// the job stalls.
    pub(super) fn advance(&mut self, now: Nanos) -> bool {
        let Some(until) = self.reported_until(now) else {
            return false;
        };
        self.begin();
        let first = self.next_window;
        for index in 0..self.comms.len() {
            let overdue = self.comms.get_mut(index).map(|comm| comm.overdue(until));
            for block in overdue.into_iter().flatten() {
                self.close(index, &block);
            }
        }
        let complete = (until / self.rule.window_s).floor() as i64;
        while let Some(window) = self.pending.first_entry() {
            if *window.key() >= complete {
                break;
            }
            self.next_window = window.key() + 1;
            let sums = window.remove();
            self.current.merge(sums);
            self.evaluate(self.next_window);
        }
        self.check_stall(until) || self.next_window > first
    }

    /// Instant of the job's clock up to which all ranks have reported, except silent ones and those whose
    /// clocks are not aligned yet; `None` while ranks are expected to begin.
    fn reported_until(&self, now: Nanos) -> Option<f64> {
        let mut comms = self.comms.iter();
        if comms.any(|comm| comm.is_expected(now, SILENT_S)) {
            return None;
        }
        let is_alive = |member: &Member| now.millis_since(member.heard) < 1e3 * SILENT_S;
        let members = self.members.iter().enumerate();
        let alive = members.filter(|(_, member)| is_alive(member));
        let is_first = self.clocks.is_unaligned();
        let latest = alive.filter_map(|(rank, member)| {
            let offset = self
                .clocks
                .offset(rank)
                .or_else(|| is_first.then_some(0.0))?;
            Some(member.reported(now) - offset)
        });
        Some(latest.reduce(f64::min)? - SLACK_S)
    }

    /// Evaluates the sums so far if they cover enough of the job.
    fn evaluate(&mut self, window: i64) {
        let end = window as f64 * self.rule.window_s;
        let paces = Measured::paces(&self.current, &self.comms);
        let loss = self.judge.usual().and_then(|usual| usual.loss(&paces));
        let is_seen = loss.is_none_or(|loss| loss.seen >= 0.5);
        if !is_seen && end - self.evaluated < LONGEST_S {
            return;
        }
        let sums = std::mem::take(&mut self.current);
        let placement = Placement {
            node: &self.node_of,
            nodes: self.nodes.len(),
            living: self.len(),
        };
        let mut measured = Measured::take(&sums, &mut self.comms, placement, self.evaluated);
        let has_transfers = self.comms.iter().any(|comm| comm.has_transfers);
        let [collectives, transfers] = &sums.leads;
        let leads = if has_transfers {
            transfers
        } else {
            collectives
        };
        for (rank, member) in self.members.iter_mut().enumerate() {
            let lead = leads.get(rank).copied().unwrap_or_default();
            measured.add_lead(lead, &mut member.lead_floor, self.source);
        }
        self.evaluated = measured.until;
        self.peers = measured.ranks.iter().map(|flow| flow.peer).collect();
        if self.judge.incidents.end_stall() {
            self.judge.skip();
        } else {
            self.judge.judge(&measured, has_transfers);
        }
    }

    /// Finds that nothing completes although ranks report; returns true if so.
    fn check_stall(&mut self, until: f64) -> bool {
        let Some(usual) = self.judge.usual() else {
            return false;
        };
        let operations = self.rule.stall_operations * usual.longest_step();
        let progress = self.last_end.max(self.last_enqueue);
        let is_stalled = until - progress >= self.rule.stall_s.max(operations);
        if is_stalled {
            let n = self.len();
            let behind = behind(&self.comms, n);
            let judge = &mut self.judge;
            let reported = until + SLACK_S;
            judge.incidents.stall(self.last_end, reported, n, behind);
        }
        is_stalled
    }

    /// Adds a closed block to its window.
    fn close(&mut self, index: usize, block: &MatchedBlock) {
        let is_first = self.clocks.is_unaligned();
        let Some(comm) = self.comms.get_mut(index) else {
            return;
        };
        if block.operations() == 0 {
            return;
        }
        let ends: Vec<(usize, f64)> = block
            .rows()
            .filter_map(|(slot, row)| Some((comm.members.get(slot).copied()?? as usize, row.end)))
            .collect();
        let is_aligned = |(rank, _): &(usize, f64)| self.clocks.offset(*rank).is_some();
        let is_placed = is_first || ends.iter().any(is_aligned);
        if !is_placed && comm.unplaced < MAX_UNPLACED {
            // Its place in time is unknown, by as much as clocks differ.
            comm.unplaced += 1;
            self.coverage.late += u64::from(block.operations());
            return;
        }
        comm.learn(block);
        let end = self.clocks.align(&ends, is_first || !is_placed);
        self.last_end = self.last_end.max(end);
        if comm.evaluated.is_none() {
            // Time is measured from the end of the first block.
            comm.evaluated = Some(end);
            self.evaluated = if self.evaluated.is_nan() {
                end
            } else {
                self.evaluated
            };
            return;
        }
        let mut window = (end / self.rule.window_s).floor() as i64;
        self.clocks.note_window(window);
        if window < self.next_window {
            self.coverage.late += u64::from(block.operations());
            window = self.next_window;
        }
        let sums = self.pending.entry(window).or_default();
        self.coverage.add(sums.add(index, comm, block, end));
    }

    /// Index of the communicator, which is created if it is new.
    fn communicator(&mut self, place: Place, received: Nanos) -> usize {
        let comms = &mut self.comms;
        *self.by_key.entry(place.key).or_insert_with(|| {
            comms.push(Communicator::new(place, received));
            comms.len() - 1
        })
    }
}
