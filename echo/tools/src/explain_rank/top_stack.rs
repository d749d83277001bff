//! Where a rank is more often than its peers, by samples of stacks. Pure.

use std::collections::BTreeMap;

use echo_store::process_reports::StackTotals;

use crate::host::stacks::{PYTHON, SampledStack};

/// Function of a GPU library and innermost line of the program, or native function without a line.
type Spot<'a> = (Option<&'a str>, &'a str);

/// Stack of a rank, and how often its peers are at the same place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TopStack {
    pub(super) stack: SampledStack,
    /// Share of the samples of its peers at the same line, 0 to 1; `None` if none was sampled.
    pub(super) peer_share: Option<f64>,
}

/// Finds the line at which a rank is more often than the other ranks of its job. Its samples are those of
/// all stacks at the line, and the stack is the most frequent one.
pub(super) fn top_stack(own: &[StackTotals], of_job: &[StackTotals]) -> Option<TopStack> {
    let process = &own.first()?.process;
    let is_peer = |totals: &&StackTotals| {
        let other = &totals.process;
        let is_of_job = (&other.cluster, &other.job) == (&process.cluster, &process.job);
        is_of_job && other.rank.is_some() && other.rank != process.rank
    };
    let (at_spots, samples) = spots(own.iter());
    let (peers_at_spots, peer_samples) = spots(of_job.iter().filter(is_peer));
    let peer_share = |spot: &Spot<'_>| {
        let at_spot = peers_at_spots.get(spot).copied().unwrap_or(0);
        (peer_samples > 0).then(|| share(at_spot, peer_samples))
    };
    let beyond = |(spot, at_spot): &(&Spot<'_>, &u64)| {
        share(**at_spot, samples) - peer_share(spot).unwrap_or(0.0)
    };
    let spot_and_samples = at_spots
        .iter()
        .max_by(|a, b| beyond(a).total_cmp(&beyond(b)));
    let (spot, at_spot) = spot_and_samples?;
    let peer_share = peer_share(spot);
    let at = own.iter().filter(|totals| spot_of(totals) == *spot);
    let stack = at.max_by_key(|totals| totals.samples)?.clone();
    let stack = SampledStack {
        samples: *at_spot,
        share: share(*at_spot, samples),
        ..SampledStack::from(stack)
    };
    Some(TopStack { stack, peer_share })
}

/// Samples by place, and of all places. A thread of a library without a line of the program waits for work
/// most of the time, so its samples count only if there are no others.
fn spots<'a>(all: impl Iterator<Item = &'a StackTotals> + Clone) -> (BTreeMap<Spot<'a>, u64>, u64) {
    let is_of_program =
        |totals: &&StackTotals| totals.function.is_some() || line_of(&totals.stack).is_some();
    let has_program = all.clone().any(|totals| is_of_program(&totals));
    let mut spots: BTreeMap<Spot<'_>, u64> = BTreeMap::new();
    for totals in all.filter(|totals| !has_program || is_of_program(totals)) {
        *spots.entry(spot_of(totals)).or_default() += totals.samples;
    }
    let samples = spots.values().sum();
    (spots, samples)
}

fn spot_of(totals: &StackTotals) -> Spot<'_> {
    let innermost = || totals.stack.lines().next().unwrap_or_default();
    let place = line_of(&totals.stack).unwrap_or_else(innermost);
    (totals.function.as_deref(), place)
}

/// Innermost line of a Python program.
fn line_of(stack: &str) -> Option<&str> {
    stack.lines().find(|frame| frame.starts_with(PYTHON))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the number of samples is far below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use echo_core::ids::Rank;
    use echo_store::process_reports::ProcessKey;

    use super::*;

    fn sampled(rank: u32, function: Option<&str>, stack: &str, samples: u64) -> StackTotals {
        StackTotals {
            process: ProcessKey {
                cluster: "prod".parse().unwrap(),
                node: "node-1".parse().unwrap(),
                job: None,
                rank: Some(Rank::new(rank)),
                pid: Some(700 + rank),
                name: None,
            },
            function: function.map(str::to_owned),
            stack: stack.to_owned(),
            samples,
            process_samples: 200,
        }
    }

    const IDLE: &str = "pthread_cond_wait+0x20d (libc.so.6)\ntorch::autograd::ReadyQueue::pop()+0x4b (libtorch_cpu.so)";
    const BACKWARD: &str = "[Python] graph.py:869 in _engine_run_backward()";

    #[test]
    fn a_rank_is_where_its_peers_are_not_whatever_waits_for_work() {
        let collect = "[Python] job.py:66 in collect()";
        let own = [
            sampled(1, None, IDLE, 100),
            sampled(1, None, BACKWARD, 40),
            sampled(1, None, &format!("visit+0x1 (python3.12)\n{collect}"), 29),
            sampled(
                1,
                None,
                &format!("{collect}\n[Python] job.py:80 in main()"),
                31,
            ),
        ];
        let mut of_job = own.to_vec();
        of_job.extend([
            sampled(0, None, IDLE, 100),
            sampled(0, None, BACKWARD, 90),
            sampled(
                0,
                Some("cudaMemcpyAsync"),
                "[Python] job.py:90 in main()",
                10,
            ),
        ]);
        // Neither a process without a rank nor a rank of another job is a peer.
        let mut unranked = sampled(0, None, collect, 500);
        unranked.process.rank = None;
        let mut of_other_job = sampled(0, None, collect, 500);
        of_other_job.process.job = Some("other".parse().unwrap());
        of_job.extend([unranked, of_other_job]);
        let top = top_stack(&own, &of_job).unwrap();
        assert_eq!(
            top.stack.stack.last().unwrap(),
            "[Python] job.py:80 in main()"
        );
        assert_eq!((top.stack.samples, top.stack.share), (60, 0.6));
        assert_eq!(top.peer_share, Some(0.0));
    }

    #[test]
    fn without_lines_and_peers_it_is_the_most_frequent_function() {
        let own = [
            sampled(1, None, IDLE, 60),
            sampled(1, None, "poll+0x1 (libc.so.6)", 20),
        ];
        let top = top_stack(&own, &own).unwrap();
        assert_eq!((top.stack.share, top.peer_share), (0.75, None));
        assert_eq!(top_stack(&[], &own), None);
    }
}
