//! Observations of a process before its block sizes are known.

use std::collections::BTreeMap;

use crate::block_size::{exponent, iteration_ns};
use crate::correlate::Observation;
use crate::discover::CommIndex;
use crate::iteration_pattern::IterationPattern;
use crate::pipeline::BlockRule;
use crate::rollup::attribution::Sample;

/// Number of observations after which the rollup starts without an iteration pattern.
const MAX_HELD: usize = 16_384;
/// Event time after which the rollup starts without an iteration pattern, nanoseconds: a slow job
/// must not stay unseen, and with so few operations its blocks are small in any case.
const MAX_HELD_NS: u64 = 30_000_000_000;

/// Buffered observations from the first collective on.
#[derive(Debug, Default)]
pub(super) struct PendingObservations {
    observations: Vec<Observation>,
    /// Samples with the number of observations before them.
    samples: Vec<(usize, Sample)>,
    since_ns: Option<u64>,
    now_ns: Option<u64>,
}

impl PendingObservations {
    /// Adds the next observation. Waits before the first collective are ignored.
    pub(super) fn push(&mut self, observation: Observation) {
        self.now_ns = instant_ns(&observation);
        if matches!(observation, Observation::Issued(_)) {
            self.since_ns = self.since_ns.or(self.now_ns);
        }
        if self.since_ns.is_some() {
            self.observations.push(observation);
        }
    }

    /// Adds a sample of the process. Those before the first collective are ignored.
    pub(super) fn push_sample(&mut self, sample: Sample) {
        if self.since_ns.is_some() {
            self.samples.push((self.observations.len(), sample));
        }
    }

    /// Returns whether waiting longer is pointless.
    pub(super) fn is_full(&self) -> bool {
        let waited_ns = self
            .now_ns
            .zip(self.since_ns)
            .map_or(0, |(now_ns, since_ns)| now_ns.saturating_sub(since_ns));
        self.observations.len() >= MAX_HELD || waited_ns > MAX_HELD_NS
    }

    /// Returns the observations in order, each with the samples since the one before.
    pub(super) fn into_observations(self) -> impl Iterator<Item = (Vec<Sample>, Observation)> {
        let mut samples = self.samples.into_iter().peekable();
        let observations = self.observations.into_iter().enumerate();
        observations.map(move |(at, observation)| {
            let mut before = Vec::new();
            while let Some((_, sample)) = samples.next_if(|(position, _)| *position <= at) {
                before.push(sample);
            }
            (before, observation)
        })
    }

    /// Returns the block sizes of all communicators of the iteration, once its duration is known.
    pub(super) fn exponents(
        &self,
        iteration_pattern: &IterationPattern,
        rule: BlockRule,
    ) -> Option<BTreeMap<CommIndex, u32>> {
        let primary = iteration_pattern.primary()?;
        let begins = self.observations.iter().filter_map(|observation| {
            let Observation::Issued(issued) = observation else {
                return None;
            };
            let begins = issued.at.comm == primary && iteration_pattern.begins_at(issued.at.seq);
            begins.then_some(issued.entry_ns)
        });
        let iteration_ns = iteration_ns(
            &begins.collect::<Vec<u64>>(),
            iteration_pattern.pattern()?.period,
        )?;
        let ops = &iteration_pattern.profile()?.ops;
        // Echo evaluates iterations: a block has to contain a good part of a long one.
        let target_ns = rule.target_ns.max(iteration_ns / 2.0);
        let size =
            |(comm, ops): (&CommIndex, &f64)| (*comm, exponent(target_ns, iteration_ns / ops));
        Some(ops.iter().map(size).collect())
    }

    /// Returns the block size of the busiest communicator from the rate of its operations.
    pub(super) fn fallback_exponents(
        &self,
        primary: CommIndex,
        rule: BlockRule,
    ) -> BTreeMap<CommIndex, u32> {
        let entries = self
            .observations
            .iter()
            .filter_map(|observation| match observation {
                Observation::Issued(issued) if issued.at.comm == primary => Some(issued.entry_ns),
                _ => None,
            });
        let rate = mean_interval_ns(entries);
        rate.map(|ns| (primary, exponent(rule.target_ns, ns)))
            .into_iter()
            .collect()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "held operations span less than 2^53 ns"
)]
fn mean_interval_ns(entries: impl Iterator<Item = u64>) -> Option<f64> {
    let entries: Vec<u64> = entries.collect();
    let (first, last) = (entries.first()?, entries.last()?);
    (entries.len() > 1).then(|| last.saturating_sub(*first) as f64 / (entries.len() - 1) as f64)
}

fn instant_ns(observation: &Observation) -> Option<u64> {
    match observation {
        Observation::Issued(issued) => Some(issued.entry_ns),
        Observation::Waited(waited) => Some(waited.return_ns),
        Observation::WaitBegan { .. }
        | Observation::Active(_)
        | Observation::Completed(_)
        | Observation::TransferTime { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Correlator;
    use crate::discover::CommTable;
    use crate::event::{CommInit, DelaySample, Delays, Op, Operation};

    #[test]
    fn samples_stay_between_the_observations_that_they_arrived_between() {
        let (mut table, mut correlator) = (CommTable::default(), Correlator::default());
        let (nranks, rank, unique_id, comm) = (2, 0, 1, None);
        table.record_init(
            1,
            CommInit {
                nranks,
                rank,
                unique_id,
                comm,
            },
        );
        let index = table.find(1, 9).unwrap();
        let mut issued = |seq, entry_ns| {
            let operation = Operation {
                op: Op::AllReduce,
                count: 8,
                datatype: 7,
                comm: 9,
                seq: Some(seq),
                peer: None,
            };
            correlator.issue(index, 2, operation, entry_ns)
        };
        let sample = |ts_ns| {
            Sample::Delays(Box::new(DelaySample {
                from_ns: 0,
                ts_ns,
                pid: 1,
                delays: Delays::default(),
            }))
        };
        let end_ns = |sample: &Sample| match sample {
            Sample::Delays(sample) => sample.ts_ns,
            Sample::Activity(sample) => sample.ts_ns,
        };
        let mut pending = PendingObservations::default();
        pending.push_sample(sample(1));
        pending.push(issued(0, 10));
        pending.push_sample(sample(2));
        pending.push_sample(sample(3));
        pending.push(issued(1, 20));
        let placed: Vec<Vec<u64>> = pending
            .into_observations()
            .map(|(before, _)| before.iter().map(end_ns).collect())
            .collect();
        assert_eq!(placed, [vec![], vec![2, 3]]);
    }
}
