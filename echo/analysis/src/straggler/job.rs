//! One job: its ranks and communicators, and its windows in order.

use std::collections::{BTreeMap, HashMap};

use echo_core::units::Nanos;

use crate::straggler::block::{BlockSum, Heartbeat, NodeKey, ProcessKey};
use crate::straggler::clock::align;
use crate::straggler::communicator::{CommKey, Communicator, MatchedBlock, Place, Row};
use crate::straggler::incident::RankOfJob;
use crate::straggler::judge::Judge;
use crate::straggler::ledger::{Coverage, WindowSums};
use crate::straggler::measure::{LeadFloor, Measured, Placement};
use crate::straggler::peers::{PeerComparison, compare};
use crate::straggler::rule::Rule;
use crate::straggler::stall::behind;

/// Time after which a rank that reports nothing is not waited for, seconds. Agents report every
/// 5 s by default, and repeat what fails.
const SILENT_S: f64 = 15.0;

/// Difference of clocks within which a block may still be reported, seconds.
const SLACK_S: f64 = 0.25;

/// Longest evaluation, seconds. It is extended while the most regular communicators have completed
/// nothing.
const LONGEST_S: f64 = 30.0;

/// Rank of the job.
#[derive(Debug)]
struct Member {
    process: ProcessKey,
    node: NodeKey,
    /// Largest communicator of the process: its size, and the rank in it.
    largest: (usize, u32),
    /// Latest instant that it reported, on its own clock, seconds since the origin.
    latest: f64,
    lead_floor: LeadFloor,
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    rule: Rule,
    /// Origin of the job's clock.
    origin: Nanos,
    members: Vec<Member>,
    by_process: HashMap<ProcessKey, usize>,
    offsets: Vec<Option<f64>>,
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
    /// Creates a job whose clock begins at `origin`.
    pub(super) fn new(origin: Nanos, rule: Rule) -> Self {
        Self {
            rule,
            origin,
            members: Vec::new(),
            by_process: HashMap::new(),
            offsets: Vec::new(),
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
            judge: Judge::new(rule),
        }
    }

    /// Number of ranks.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Processes of the job.
    pub(super) fn processes(&self) -> impl Iterator<Item = ProcessKey> {
        self.members.iter().map(|member| member.process)
    }

    /// Communicators of the job.
    pub(super) fn comm_keys(&self) -> impl Iterator<Item = CommKey> {
        self.comms.iter().map(|comm| comm.key)
    }

    /// Identity of a rank by its index.
    pub(super) fn rank(&self, index: usize) -> Option<RankOfJob> {
        let member = self.members.get(index)?;
        Some(self.identity(member))
    }

    /// Identity of a node by its index, with its ranks.
    pub(super) fn node(&self, index: usize) -> Option<(NodeKey, Vec<RankOfJob>)> {
        let node = *self.nodes.get(index)?;
        let ranks = self.members.iter().filter(|member| member.node == node);
        Some((node, ranks.map(|member| self.identity(member)).collect()))
    }

    fn identity(&self, member: &Member) -> RankOfJob {
        let (size, rank) = member.largest;
        RankOfJob {
            rank: (size == self.len()).then_some(rank),
            process: member.process,
            node: member.node,
        }
    }

    /// Comparison of the ranks by the waiting that they caused in the last evaluation.
    pub(super) fn peers(&self) -> Option<PeerComparison> {
        let usual = self.judge.usual_peers(self.peers.len());
        let ranks = self.members.iter().zip(&self.peers).enumerate();
        let ranks: Vec<(RankOfJob, f64, Option<f64>)> = ranks
            .map(|(rank, (member, caused))| {
                let usual = usual.as_ref().and_then(|usual| usual.get(rank).copied());
                (self.identity(member), *caused, usual)
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

    /// Adds a report.
    pub(super) fn add(&mut self, block: &BlockSum, place: Place) {
        let rank = self.member(block);
        let end = self.seconds(block.end);
        if let Some(member) = self.members.get_mut(rank) {
            member.latest = member.latest.max(end);
        }
        let index = self.communicator(place);
        let Some(comm) = self.comms.get_mut(index) else {
            return;
        };
        comm.has_transfers |= block.is_transfer();
        if let Some(member) = comm.members.get_mut(place.slot) {
            *member = u32::try_from(rank).ok();
        }
        if block.count == 0 {
            return;
        }
        let row = Row::from_block(block, end);
        for closed in comm.add(place.slot, block.seq_first, row) {
            self.close(index, &closed);
        }
    }

    /// Notes that a process lives.
    pub(super) fn note(&mut self, beat: &Heartbeat, place: Place) {
        let at = self.seconds(beat.at);
        let Some(rank) = self.by_process.get(&beat.process).copied() else {
            return;
        };
        if let Some(member) = self.members.get_mut(rank) {
            member.latest = member.latest.max(at);
        }
        let comm = self.by_key.get(&place.key);
        let comm = comm.and_then(|index| self.comms.get_mut(*index));
        let enqueued = comm.and_then(|comm| comm.enqueued.get_mut(place.slot));
        if let Some(enqueued) = enqueued.filter(|enqueued| beat.enqueued > **enqueued) {
            *enqueued = beat.enqueued;
            let offset = self.offsets.get(rank).copied().flatten();
            self.last_enqueue = self.last_enqueue.max(at - offset.unwrap_or(0.0));
        }
    }

    /// Evaluates the windows that no rank will add to any more.
    pub(super) fn advance(&mut self) {
        let Some(until) = self.reported_until() else {
            return;
        };
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
        self.check_stall(until);
    }

    /// Instant of the job's clock up to which all ranks have reported, except silent ones.
    fn reported_until(&self) -> Option<f64> {
        let latest = self.members.iter().zip(&self.offsets);
        let latest: Vec<f64> = latest
            .map(|(member, offset)| member.latest - offset.unwrap_or(0.0))
            .collect();
        let newest = latest.iter().copied().reduce(f64::max)?;
        let alive = latest.iter().filter(|at| newest - **at < SILENT_S);
        let oldest = alive.copied().reduce(f64::min)?;
        Some(oldest - SLACK_S)
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
        };
        let mut measured = Measured::take(&sums, &mut self.comms, placement, self.evaluated);
        let has_transfers = self.comms.iter().any(|comm| comm.has_transfers);
        let [collectives, transfers] = &sums.leads;
        let leads = if has_transfers {
            transfers
        } else {
            collectives
        };
        let members = self.members.iter_mut().enumerate();
        measured.leads = members
            .map(|(rank, member)| {
                let lead = leads.get(rank).copied().unwrap_or_default();
                member.lead_floor.above(lead, measured.until)
            })
            .collect();
        self.evaluated = measured.until;
        self.peers = measured.ranks.iter().map(|flow| flow.peer).collect();
        if self.judge.incidents.end_stall() {
            self.judge.skip();
        } else {
            self.judge.judge(&measured, has_transfers);
        }
    }

    /// Finds that nothing completes although ranks report.
    fn check_stall(&mut self, until: f64) {
        let Some(usual) = self.judge.usual() else {
            return;
        };
        let operations = self.rule.stall_operations * usual.longest_step();
        let progress = self.last_end.max(self.last_enqueue);
        if until - progress >= self.rule.stall_s.max(operations) {
            let n = self.len();
            let behind = behind(&self.comms, n);
            let judge = &mut self.judge;
            judge.incidents.stall(self.last_end, until, n, behind);
        }
    }

    /// Adds a closed block to its window.
    fn close(&mut self, index: usize, block: &MatchedBlock) {
        let is_first = self.offsets.iter().all(Option::is_none);
        let Some(comm) = self.comms.get_mut(index) else {
            return;
        };
        let ends: Vec<(usize, f64)> = block
            .rows()
            .filter_map(|(slot, row)| Some((comm.members.get(slot).copied()?? as usize, row.end)))
            .collect();
        let end = align(&ends, &mut self.offsets, is_first);
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
        if window < self.next_window {
            self.coverage.late += u64::from(block.operations());
            window = self.next_window;
        }
        let sums = self.pending.entry(window).or_default();
        self.coverage.add(sums.add(index, comm, block, end));
    }

    /// Index of the communicator, which is created if it is new.
    fn communicator(&mut self, place: Place) -> usize {
        let comms = &mut self.comms;
        *self.by_key.entry(place.key).or_insert_with(|| {
            comms.push(Communicator::new(place));
            comms.len() - 1
        })
    }

    /// Index of the rank, which is created if it is new.
    fn member(&mut self, block: &BlockSum) -> usize {
        let size = block.member.size as usize;
        let index = match self.by_process.get(&block.process) {
            Some(index) => *index,
            None => self.join(block),
        };
        if let Some(member) = self.members.get_mut(index) {
            member.largest = member.largest.max((size, block.member.rank));
        }
        index
    }

    fn join(&mut self, block: &BlockSum) -> usize {
        let index = self.members.len();
        self.by_process.insert(block.process, index);
        let known = self.nodes.iter().position(|node| *node == block.node);
        let node = known.unwrap_or_else(|| {
            self.nodes.push(block.node);
            self.nodes.len() - 1
        });
        self.node_of.push(u32::try_from(node).unwrap_or(u32::MAX));
        self.offsets.push(None);
        self.members.push(Member {
            process: block.process,
            node: block.node,
            largest: (0, 0),
            latest: f64::NEG_INFINITY,
            lead_floor: LeadFloor::default(),
        });
        index
    }
}
