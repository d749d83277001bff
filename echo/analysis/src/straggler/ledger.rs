//! Ledger: who waited for whom, in sums per window.
//!
//! An operation that waits for its peers ends everywhere at once, so the last rank to arrive is in
//! it for the shortest time, and every other rank waited for it by the difference of the durations.
//! The same holds for sums over the operations of a block. No clocks are compared.

use echo_core::model::event::Source;

use crate::straggler::communicator::Communicator;
use crate::straggler::matched_block::{Comparison, MatchedBlock, Row};

/// Largest factor by which waiting is scaled up for operations that could not be compared. Beyond
/// it too little is known.
const MAX_SCALE: f64 = 3.0;

/// Operations that were compared, and those that were not, by reason. Counted once per
/// communicator, not per rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Compared by the law.
    pub compared: u64,
    /// A rank's report is missing.
    pub incomplete: u64,
    /// The ranks reported blocks of different length.
    pub unequal: u64,
    /// Reported after their window had been evaluated; counted in the next one.
    pub late: u64,
    /// Blocks that contradict themselves, such as a rank outside of its communicator.
    pub invalid: u64,
}

impl Coverage {
    /// Counts the operations of a block.
    fn with(mut self, comparison: Comparison, operations: u32) -> Self {
        let counter = match comparison {
            Comparison::Complete | Comparison::Lacking(..) => &mut self.compared,
            Comparison::Incomplete => &mut self.incomplete,
            Comparison::Unequal => &mut self.unequal,
        };
        *counter += u64::from(operations);
        self
    }

    /// Adds other counts.
    pub(super) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.incomplete += other.incomplete;
        self.unequal += other.unequal;
        self.late += other.late;
        self.invalid += other.invalid;
    }
}

/// Sums of one communicator in one window.
#[derive(Debug, Default)]
pub(super) struct CommSums {
    /// Waiting for the rank in each slot by all others, seconds.
    pub(super) caused: Vec<f32>,
    /// Waiting of the rank in each slot, seconds.
    pub(super) suffered: Vec<f32>,
    /// Operations that completed.
    pub(super) operations: f64,
    /// Those that were compared.
    pub(super) compared: f64,
    /// Shortest sums of durations: the operations themselves without waiting, seconds.
    pub(super) transfer: f64,
    /// Sum over the compared blocks of their shortest operation, seconds, and number of blocks.
    pub(super) shortest: f64,
    pub(super) blocks: f64,
    /// End of the last block, job time.
    pub(super) end: f64,
}

impl CommSums {
    /// Factor for the operations that could not be compared: they were like the others.
    pub(super) fn scale(&self) -> f64 {
        if self.compared > 0.0 {
            (self.operations / self.compared).clamp(1.0, MAX_SCALE)
        } else {
            0.0
        }
    }

    fn merge(&mut self, later: Self) {
        let sums = [
            (&mut self.caused, later.caused),
            (&mut self.suffered, later.suffered),
        ];
        for (sum, more) in sums {
            sum.resize(sum.len().max(more.len()), 0.0);
            for (sum, more) in sum.iter_mut().zip(more) {
                *sum += more;
            }
        }
        self.operations += later.operations;
        self.compared += later.compared;
        self.transfer += later.transfer;
        self.shortest += later.shortest;
        self.blocks += later.blocks;
        self.end = self.end.max(later.end);
    }
}

/// Leads of one rank in one window, seconds. Where GPUs are not timed, by how much its host enqueued
/// before the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeadSum {
    pub(super) sum: f64,
    pub(super) operations: f64,
    pub(super) least: f64,
}

impl LeadSum {
    /// The same lead of so many operations.
    fn new(lead: f64, operations: f64) -> Self {
        Self {
            sum: lead * operations,
            operations,
            least: lead,
        }
    }

    fn from_row(row: &Row) -> Self {
        Self {
            sum: f64::from(row.lead),
            operations: f64::from(row.count),
            least: f64::from(row.least_lead),
        }
    }

    /// Mean, seconds; NaN without operations.
    pub(super) fn mean(self) -> f64 {
        self.sum / self.operations
    }

    /// Smallest, seconds; NaN without operations.
    pub(super) fn smallest(self) -> f64 {
        if self.operations > 0.0 {
            self.least
        } else {
            f64::NAN
        }
    }

    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.operations += other.operations;
        self.least = self.least.min(other.least);
    }
}

impl Default for LeadSum {
    fn default() -> Self {
        Self {
            sum: 0.0,
            operations: 0.0,
            least: f64::INFINITY,
        }
    }
}

/// Time of one rank in its sends and receives in one window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TransferSum {
    /// Sum of their durations, seconds.
    sum: f64,
    operations: f64,
}

impl TransferSum {
    /// Mean duration, seconds; NaN without operations.
    pub(super) fn mean(self) -> f64 {
        self.sum / self.operations
    }

    fn add(&mut self, sum: f64, operations: f64) {
        self.sum += sum;
        self.operations += operations;
    }
}

/// Sums of a job in one window. Memory: 8 bytes per slot of a communicator that completed a block,
/// 24 bytes per rank, 40 more with transfers.
#[derive(Debug, Default)]
pub(super) struct WindowSums {
    /// By communicator.
    pub(super) comms: Vec<Option<CommSums>>,
    /// By rank of the job: leads of collectives, and of communicators with transfers. Leads of the
    /// same kind of operation are comparable.
    pub(super) leads: [Vec<LeadSum>; 2],
    /// By rank of the job, of communicators with transfers whose GPUs are timed.
    pub(super) transfers: Vec<TransferSum>,
}

impl WindowSums {
    /// Adds a block that ended at `end`, job time. Takes time proportional to the ranks of the
    /// block: O(1) per report.
    pub(super) fn add(
        &mut self,
        index: usize,
        comm: &Communicator,
        block: &MatchedBlock,
        end: f64,
    ) -> Coverage {
        let comparison = block.comparison(comm.usual);
        self.add_leads(comm, block, comparison);
        self.add_transfers(comm, block);
        update(&mut self.comms, index, |sums| {
            let sums = sums.get_or_insert_default();
            sums.operations += f64::from(block.operations());
            sums.end = sums.end.max(end);
            if matches!(comparison, Comparison::Complete | Comparison::Lacking(..)) {
                sums.compared += f64::from(block.operations());
                let arrivals = block.sums(comparison, comm.usual);
                apply_law(sums, comm.size(), block.least(), arrivals);
            }
        });
        Coverage::default().with(comparison, block.operations())
    }

    fn add_leads(&mut self, comm: &Communicator, block: &MatchedBlock, comparison: Comparison) {
        let leads: Vec<(usize, LeadSum)> = match comm.key.source() {
            Source::Device => {
                let rows = block.rows().filter(|(_, row)| row.lead.is_finite());
                rows.map(|(slot, row)| (slot, LeadSum::from_row(row)))
                    .collect()
            }
            Source::Host if comparison == Comparison::Complete => block
                .advances()
                .into_iter()
                .map(|(slot, advance, operations)| (slot, LeadSum::new(advance, operations)))
                .collect(),
            Source::Host => Vec::new(),
        };
        let [collectives, transfers] = &mut self.leads;
        let own = if comm.has_transfers {
            transfers
        } else {
            collectives
        };
        for (slot, lead) in leads {
            if let Some(rank) = comm.members.get(slot).copied().flatten() {
                update(own, rank as usize, |own| own.add(lead));
            }
        }
    }

    fn add_transfers(&mut self, comm: &Communicator, block: &MatchedBlock) {
        if !comm.has_transfers || comm.key.source() != Source::Device {
            return;
        }
        for (slot, row) in block.rows() {
            if let Some(rank) = comm.members.get(slot).copied().flatten() {
                let (sum, operations) = (f64::from(row.sum), f64::from(row.count));
                update(&mut self.transfers, rank as usize, |own| {
                    own.add(sum, operations);
                });
            }
        }
    }

    /// Adds the sums of a later window.
    pub(super) fn merge(&mut self, later: Self) {
        for (rank, later) in later.transfers.into_iter().enumerate() {
            update(&mut self.transfers, rank, |own| {
                own.add(later.sum, later.operations);
            });
        }
        for (index, sums) in later.comms.into_iter().enumerate() {
            if let Some(sums) = sums {
                update(&mut self.comms, index, |own| {
                    own.get_or_insert_default().merge(sums);
                });
            }
        }
        for (own, later) in self.leads.iter_mut().zip(later.leads) {
            for (rank, lead) in later.into_iter().enumerate() {
                update(own, rank, |own| own.add(lead));
            }
        }
    }

    /// Share of the operations of all communicators that were compared, 0 to 1.
    pub(super) fn compared_share(&self) -> f64 {
        let (mut compared, mut operations) = (0.0, 0.0);
        for (_, sums) in self.comms() {
            compared += sums.compared;
            operations += sums.operations;
        }
        compared / operations
    }

    /// Communicators that completed a block, with their sums.
    pub(super) fn comms(&self) -> impl Iterator<Item = (usize, &CommSums)> {
        let comms = self.comms.iter().enumerate();
        comms.filter_map(|(index, sums)| Some((index, sums.as_ref()?)))
    }
}

/// Adds the waiting of one block. Of all time that ranks wait, each rank that has not arrived yet
/// causes an equal part: the Shapley value of the airport game (Littlechild and Owen 1973). A
/// single late rank causes all of it; ranks that arrive together share it, and no matter which is
/// the last.
fn apply_law(sums: &mut CommSums, size: usize, least: f32, arrivals: Vec<(usize, f32)>) {
    let Some(shortest) = arrivals.iter().map(|(_, sum)| *sum).reduce(f32::min) else {
        return;
    };
    sums.caused.resize(size, 0.0);
    sums.suffered.resize(size, 0.0);
    // Alone, a rank's own waiting is in it.
    sums.transfer += if size > 1 { f64::from(shortest) } else { 0.0 };
    sums.shortest += f64::from(least);
    sums.blocks += 1.0;
    for (slot, sum) in &arrivals {
        if let Some(own) = sums.suffered.get_mut(*slot) {
            *own += sum - shortest;
        }
    }
    for (slot, caused) in share_of_waiting(arrivals) {
        if let Some(own) = sums.caused.get_mut(slot) {
            *own += caused;
        }
    }
}

/// Waiting that each slot causes, from the times that the slots spend in the operations.
fn share_of_waiting(mut arrivals: Vec<(usize, f32)>) -> impl Iterator<Item = (usize, f32)> {
    // The longest time first: the order of arrival.
    arrivals.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let n = arrivals.len() as f32;
    let (mut arrived, mut caused) = (0.0, 0.0);
    let mut before: Option<f32> = None;
    arrivals.into_iter().map(move |(slot, sum)| {
        if let Some(before) = before {
            caused += arrived * (before - sum) / (n - arrived);
        }
        arrived += 1.0;
        before = Some(sum);
        (slot, caused)
    })
}

/// Changes the element at an index, after growing the vector to it.
pub(super) fn update<T: Default>(values: &mut Vec<T>, index: usize, change: impl FnOnce(&mut T)) {
    if values.len() <= index {
        values.resize_with(index + 1, T::default);
    }
    if let Some(value) = values.get_mut(index) {
        change(value);
    }
}

#[cfg(test)]
mod tests {
    use super::share_of_waiting;

    fn caused(durations: &[f32]) -> Vec<f32> {
        let arrivals = durations.iter().copied().enumerate().collect();
        let mut caused = vec![0.0; durations.len()];
        for (slot, seconds) in share_of_waiting(arrivals) {
            caused[slot] = seconds;
        }
        caused
    }

    #[test]
    fn the_last_to_arrive_causes_all_waiting() {
        assert_eq!(caused(&[5.0, 1.0, 5.0]), [0.0, 8.0, 0.0]);
    }

    #[test]
    fn ranks_that_arrive_together_share_it() {
        assert_eq!(caused(&[5.0, 1.0, 1.0]), [0.0, 2.0, 2.0]);
        assert_eq!(caused(&[3.0, 3.0]), [0.0, 0.0]);
    }

    #[test]
    fn a_hidden_rank_causes_what_passes_before_it_arrives() {
        // Two ranks are there at once, one comes after 4 s, the last after 6 s.
        assert_eq!(caused(&[6.0, 6.0, 2.0, 0.0]), [0.0, 0.0, 4.0, 10.0]);
    }

    #[test]
    fn the_parts_add_up_to_what_the_ranks_waited() {
        let durations = [7.0, 3.5, 1.0, 6.0, 2.0];
        let waited: f32 = durations.iter().map(|duration| duration - 1.0).sum();
        assert!((caused(&durations).iter().sum::<f32>() - waited).abs() < 1e-4);
    }
}
