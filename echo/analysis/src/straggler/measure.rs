//! Measures one evaluation: pace, and waiting as shares of time.

use echo_core::model::event::Source;

use crate::straggler::communicator::Communicator;
use crate::straggler::ledger::{CommSums, LeadSum, WindowSums, update};

/// Largest number of communicators at which the pace is measured. The communicators of a job
/// proceed together, so a few tell its pace.
const MAX_PACES: usize = 32;

/// Pace of one communicator in one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Pace {
    /// From the end of the last block before it to the end of the last block in it, seconds.
    pub(super) seconds: f64,
    /// Operations that completed in this time.
    pub(super) operations: f64,
    /// Part of it spent in the operations themselves, without waiting, seconds.
    pub(super) transfer: f64,
    /// Sum over the blocks of their shortest operation, seconds, and number of blocks.
    pub(super) shortest: f64,
    pub(super) blocks: f64,
}

impl Pace {
    /// Seconds per operation.
    pub(super) fn step(self) -> f64 {
        self.seconds / self.operations
    }

    /// Shortest operation of a block, mean over the blocks, seconds.
    pub(super) fn shortest_operation(self) -> f64 {
        self.shortest / self.blocks
    }

    /// Adds a later evaluation.
    pub(super) fn add(&mut self, later: Self) {
        self.seconds += later.seconds;
        self.operations += later.operations;
        self.transfer += later.transfer;
        self.shortest += later.shortest;
        self.blocks += later.blocks;
    }
}

/// Waiting for one rank or node, as shares of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Flow {
    /// Caused, per rank that waits, over all communicators, less what the rank itself waited in
    /// other communicators: a rank that is late because it waits elsewhere is not the root.
    pub(super) net: f64,
    /// Caused, per rank that waits, in the communicator where it is largest.
    pub(super) peer: f64,
    /// Caused and suffered, over all communicators.
    pub(super) caused: f64,
    pub(super) suffered: f64,
}

/// One evaluation.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// End of its last block, job time, seconds.
    pub(super) until: f64,
    /// Time since the end of the evaluation before it, seconds.
    pub(super) seconds: f64,
    /// Paces by communicator.
    pub(super) paces: Vec<(usize, Pace)>,
    /// By rank of the job.
    pub(super) ranks: Vec<Flow>,
    /// By node of the job.
    pub(super) nodes: Vec<Flow>,
    /// Node of each rank.
    pub(super) node_of: Vec<u32>,
    /// Number of ranks that still report.
    pub(super) living: usize,
    /// Share of the operations that were compared, 0 to 1.
    pub(super) compared: f64,
    /// Mean lead by rank above the smallest so far, seconds; NaN if unknown. Where GPUs are
    /// not timed, by how much the host enqueued before the others, with a constant per rank.
    pub(super) leads: Vec<f64>,
    /// Smallest lead by rank, with an offset that drifts, seconds; NaN if unknown or where GPUs are not
    /// timed.
    pub(super) lows: Vec<f64>,
    /// Mean duration of the sends and receives of each rank, seconds; NaN without them.
    pub(super) transfers: Vec<f64>,
}

/// Ranks of the job: node of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement<'a> {
    /// Index of the node by rank of the job.
    pub(super) node: &'a [u32],
    /// Number of nodes.
    pub(super) nodes: usize,
    /// Number of ranks that still report.
    pub(super) living: usize,
}

impl Measured {
    /// Measures the sums since the previous evaluation and moves the communicators' last ends.
    /// Takes time proportional to the slots of all communicators.
    pub(super) fn take(
        sums: &WindowSums,
        comms: &mut [Communicator],
        placement: Placement<'_>,
        before: f64,
    ) -> Self {
        let mut measured = Self {
            until: f64::NEG_INFINITY,
            ranks: vec![Flow::default(); placement.node.len()],
            nodes: vec![Flow::default(); placement.nodes],
            node_of: placement.node.to_vec(),
            living: placement.living,
            transfers: (0..placement.node.len())
                .map(|rank| sums.transfers.get(rank).map_or(f64::NAN, |sum| sum.mean()))
                .collect(),
            ..Self::default()
        };
        measured.paces = Self::paces(sums, comms);
        let mut shares = Vec::new();
        measured.compared = sums.compared_share();
        for (index, sums) in sums.comms() {
            measured.until = measured.until.max(sums.end);
            let Some(comm) = comms.get_mut(index) else {
                continue;
            };
            let last = comm.evaluated.replace(sums.end);
            let seconds = last.map_or(0.0, |last| sums.end - last);
            if seconds > 0.0 {
                measured.add(sums, seconds, (comm, placement));
                shares.push((index, sums.scale() / seconds));
            }
        }
        measured.subtract_cascades(sums, comms, &shares);
        measured.seconds = (measured.until - before).max(0.0);
        measured
    }

    /// Paces of the communicators that completed a block, the largest communicators first.
    pub(super) fn paces(sums: &WindowSums, comms: &[Communicator]) -> Vec<(usize, Pace)> {
        let measured = sums.comms().filter_map(|(index, sums)| {
            let comm = comms.get(index)?;
            let pace = Pace {
                seconds: sums.end - comm.evaluated?,
                operations: sums.operations,
                transfer: sums.transfer * sums.scale(),
                shortest: sums.shortest,
                blocks: sums.blocks,
            };
            (pace.seconds > 0.0).then_some((comm.size(), index, pace))
        });
        let mut paces: Vec<(usize, usize, Pace)> = measured.collect();
        paces.sort_by_key(|(size, index, _)| (std::cmp::Reverse(*size), *index));
        paces.truncate(MAX_PACES);
        paces
            .into_iter()
            .map(|(_, index, pace)| (index, pace))
            .collect()
    }

    /// Adds the leads of the next rank.
    pub(super) fn add_lead(&mut self, lead: LeadSum, floor: &mut LeadFloor, source: Source) {
        let (mean, low) = match source {
            Source::Device => (floor.above(lead, self.until), lead.smallest()),
            Source::Host => (lead.mean(), f64::NAN),
        };
        self.leads.push(mean);
        self.lows.push(low);
    }

    /// The rank that its peers wait for most.
    pub(super) fn always_last(&self) -> Option<(usize, Flow)> {
        let flows = self.ranks.iter().copied().enumerate();
        flows.max_by(|a, b| a.1.peer.total_cmp(&b.1.peer))
    }

    /// GPU time lost by all ranks when a share of the time is lost, seconds. Operations that overlap
    /// are waited for at once, so the sum of the waiting can exceed the time, and the loss cannot.
    pub(super) fn lost_gpu_s(&self, seconds: f64, share: f64) -> f64 {
        self.living as f64 * seconds * share.clamp(0.0, 1.0)
    }

    fn add(
        &mut self,
        sums: &CommSums,
        seconds: f64,
        (comm, placement): (&Communicator, Placement<'_>),
    ) {
        if comm.size() < 2 {
            return;
        }
        let share = sums.scale() / seconds;
        let peers = comm.size() as f64 - 1.0;
        let mut by_node: Vec<(u32, f64)> = Vec::new();
        for (rank, caused, suffered) in slots(sums, comm, share) {
            update(&mut self.ranks, rank, |flow| {
                flow.caused += caused;
                flow.suffered += suffered;
                flow.peer = flow.peer.max(caused / peers);
            });
            if let Some(node) = placement.node.get(rank) {
                by_node.push((*node, caused - suffered));
            }
        }
        self.add_nodes(by_node, comm.size() as f64);
    }

    /// Sums up what each rank caused beyond what it waited in other communicators.
    fn subtract_cascades(
        &mut self,
        sums: &WindowSums,
        comms: &[Communicator],
        shares: &[(usize, f64)],
    ) {
        for (index, share) in shares {
            let comm = comms.get(*index);
            let sums = sums.comms.get(*index).and_then(Option::as_ref);
            let Some((comm, sums)) = comm.zip(sums).filter(|(comm, _)| comm.size() > 1) else {
                continue;
            };
            let peers = comm.size() as f64 - 1.0;
            for (rank, caused, suffered) in slots(sums, comm, *share) {
                update(&mut self.ranks, rank, |flow| {
                    let elsewhere = flow.suffered - suffered;
                    flow.net += (caused / peers - elsewhere).max(0.0);
                });
            }
        }
    }

    /// Adds what the ranks of each node caused together. Waiting among the ranks of one node
    /// cancels in the sum of their net.
    fn add_nodes(&mut self, mut by_node: Vec<(u32, f64)>, size: f64) {
        by_node.sort_by_key(|(node, _)| *node);
        for ranks in by_node.chunk_by(|one, next| one.0 == next.0) {
            let Some((node, _)) = ranks.first() else {
                continue;
            };
            let net: f64 = ranks.iter().map(|(_, net)| net).sum();
            let outside = size - ranks.len() as f64;
            if outside > 0.0 {
                update(&mut self.nodes, *node as usize, |flow| {
                    flow.net += net / outside;
                    flow.peer = flow.peer.max(net / outside);
                });
            }
        }
    }
}

/// Ranks of a communicator with the shares of the time that they caused and suffered.
fn slots<'a>(
    sums: &'a CommSums,
    comm: &'a Communicator,
    share: f64,
) -> impl Iterator<Item = (usize, f64, f64)> + 'a {
    let slots = sums.caused.iter().zip(&sums.suffered).zip(&comm.members);
    slots.filter_map(move |((caused, suffered), rank)| {
        let rank = (*rank)? as usize;
        let (caused, suffered) = (f64::from(*caused), f64::from(*suffered));
        Some((rank, caused * share, suffered * share))
    })
}

/// Smallest lead of one rank: the offset between the clocks of its GPU and its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeadFloor {
    least: f64,
    at: f64,
}

/// Rate at which two clocks of a host may drift apart, ten times what GPUs of two hosts did. The smallest
/// lead so far rises by it, so an offset that grows is followed, and a queue that is never empty loses 12
/// ms of its length per minute.
const MOST_DRIFT: f64 = 2e-4;

impl Default for LeadFloor {
    fn default() -> Self {
        Self {
            least: f64::INFINITY,
            at: 0.0,
        }
    }
}

impl LeadFloor {
    /// Mean lead of an evaluation that ends at `now` above the smallest so far, seconds; NaN without
    /// operations.
    pub(super) fn above(&mut self, lead: LeadSum, now: f64) -> f64 {
        if lead.operations <= 0.0 {
            return f64::NAN;
        }
        self.least = MOST_DRIFT
            .mul_add(now - self.at, self.least)
            .min(lead.least);
        self.at = now;
        lead.mean() - self.least
    }
}

#[cfg(test)]
mod tests {
    use super::LeadFloor;
    use crate::straggler::ledger::LeadSum;

    /// Lead of one operation after so many seconds.
    fn after(floor: &mut LeadFloor, now: f64, lead: f64) -> f64 {
        let sum = LeadSum {
            operations: 1.0,
            sum: lead,
            least: lead,
        };
        floor.above(sum, now)
    }

    #[test]
    fn a_queue_that_is_not_empty_for_minutes_keeps_its_length() {
        let mut floor = LeadFloor::default();
        after(&mut floor, 0.0, 5.0);
        let mut lead = |now: f64| after(&mut floor, now, 5.4);
        assert!((lead(10.0) - 0.4).abs() < 0.01);
        assert!((lead(130.0) - 0.4).abs() < 0.03);
    }

    #[test]
    fn clocks_that_drift_apart_do_not_make_a_queue_longer() {
        for drift in [-1e-4, 1e-4] {
            let mut floor = LeadFloor::default();
            for second in 0..600 {
                let lead = after(&mut floor, f64::from(second), f64::from(second) * drift);
                assert!(lead.abs() < 1e-9, "{lead} s after {second} s");
            }
        }
    }
}
