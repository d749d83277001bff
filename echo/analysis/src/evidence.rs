//! Host evidence: measurements of the hosts of a cohort in the same operations, rank by rank.
//!
//! Every kind of evidence is a rate per iteration and is compared by the same robust statistics as
//! lags: the distance from the median of the peers in units of [`robust_sigma`]. Evidence explains
//! a verdict but never causes one: a rank that is on time is not reported, however busy its host.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use echo_core::ids::{MetricName, Rank};
use echo_core::stats::{median, robust_sigma};
use echo_core::text::decimal;
use fleet_proto::metric;

/// Smallest z-score that is significant: the usual threshold of the modified z-score (Iglewicz and
/// Hoaglin 1993).
const Z_CUT: f64 = 3.5;

/// Smallest distance that is significant, as a share of the peers' median.
const LEAST_SHARE: f64 = 0.1;

/// Smallest scale as a share of the peers' median, so that exact ties do not divide by zero.
const FLOOR_SHARE: f64 = 0.01;

/// Report of one rank about one kind of evidence over the compared operations.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTotal {
    /// Rank within the job.
    pub rank: Rank,
    /// Kind of evidence.
    pub metric: MetricName,
    /// Sum of the values, in the unit of the kind.
    pub sum: f64,
    /// Iterations of the blocks that they belong to.
    pub iterations: f64,
}

/// One kind of evidence of one rank, compared with its peers.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFact {
    /// Kind of evidence.
    pub metric: MetricName,
    /// Description of the measurement.
    pub meaning: Cow<'static, str>,
    /// Unit of the rates.
    pub unit: Unit,
    /// The rank's own rate, per iteration.
    pub own: f64,
    /// Median of the peers' rates, per iteration; `None` without peers.
    pub peers: Option<f64>,
    /// Distance from that median (modified z-score); `None` below three ranks.
    pub z: Option<f64>,
    phrase: Phrase,
}

/// Unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds per iteration.
    Millis,
    /// Bytes per iteration.
    Bytes,
    /// Times per iteration.
    Count,
}

impl Unit {
    /// Name in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Millis => "ms per iteration",
            Self::Bytes => "bytes per iteration",
            Self::Count => "per iteration",
        }
    }

    /// Smallest distance that is significant, and smallest scale.
    const fn floor(self) -> f64 {
        match self {
            Self::Millis | Self::Count => 0.1,
            Self::Bytes => 4_096.0,
        }
    }

    fn write(self, rate: f64) -> String {
        match self {
            Self::Millis => format!("{} ms", decimal(rate, 1)),
            Self::Bytes if rate.abs() >= 1e6 => format!("{} MB", decimal(rate / 1e6, 1)),
            Self::Bytes => format!("{} kB", decimal(rate / 1e3, 1)),
            Self::Count => decimal(rate, 1),
        }
    }
}

/// Position of the kind in a sentence: before the rate ("preempted 14.7 ms") or after it ("12.0
/// preemptions").
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phrase {
    Before(&'static str),
    After(Cow<'static, str>),
}

impl HostFact {
    /// Returns true if it is worth reporting with a verdict: significantly above its peers, and
    /// not negligible.
    pub fn stands_out(&self) -> bool {
        let (Some(peers), Some(z)) = (self.peers, self.z) else {
            return false;
        };
        let more = self.own - peers;
        z >= Z_CUT && more >= self.unit.floor() && more >= LEAST_SHARE * peers.abs()
    }

    /// "preempted 14.7 ms per step, peers 5.0".
    pub fn sentence(&self) -> String {
        let own = self.unit.write(self.own);
        let text = match &self.phrase {
            Phrase::Before(phrase) => format!("{phrase} {own} per step"),
            Phrase::After(phrase) => format!("{own} {phrase} per step"),
        };
        match self.peers {
            Some(peers) if self.unit == Unit::Bytes => {
                format!("{text}, peers {}", self.unit.write(peers))
            }
            Some(peers) => format!("{text}, peers {}", decimal(peers, 1)),
            None => text,
        }
    }
}

/// Every kind of evidence that `rank` reported, compared with its peers, largest difference first.
///
/// A rank without a block of a kind had nothing to report in it; a rank without any block of a kind
/// does not measure it and is no peer.
pub fn compare(totals: &[HostTotal], rank: Rank) -> Vec<HostFact> {
    let mut iterations: BTreeMap<Rank, f64> = BTreeMap::new();
    let mut kinds: BTreeMap<&MetricName, Vec<&HostTotal>> = BTreeMap::new();
    for total in totals.iter().filter(|total| total.iterations > 0.0) {
        let most = iterations.entry(total.rank).or_default();
        *most = most.max(total.iterations);
        kinds.entry(&total.metric).or_default().push(total);
    }
    let rate = |total: &HostTotal| {
        let iterations = iterations.get(&total.rank).copied();
        total.sum / iterations.unwrap_or(total.iterations)
    };
    let fact = |(metric, totals): (&MetricName, Vec<&HostTotal>)| {
        let own = totals.iter().find(|total| total.rank == rank)?;
        let others = totals.iter().filter(|total| total.rank != rank);
        let peers: Vec<f64> = others.map(|total| rate(total)).collect();
        Some(fact(metric, rate(own), &peers))
    };
    let mut facts: Vec<HostFact> = kinds.into_iter().filter_map(fact).collect();
    facts.sort_by(|a, b| {
        let by_z = || larger_first(a.z.map(f64::abs), b.z.map(f64::abs));
        let by_effect = || larger_first(effect(a), effect(b));
        by_z().then_with(by_effect).then(a.metric.cmp(&b.metric))
    });
    facts
}

fn fact(metric: &MetricName, own: f64, peers: &[f64]) -> HostFact {
    let (meaning, unit, phrase) = kind(metric.as_str());
    let center = median(peers);
    let all_rates: Vec<f64> = peers.iter().copied().chain([own]).collect();
    let z = robust_sigma(&all_rates).zip(center).map(|(sigma, center)| {
        let floor = (FLOOR_SHARE * center.abs()).max(unit.floor() / Z_CUT);
        (own - center) / sigma.hypot(floor)
    });
    HostFact {
        metric: metric.clone(),
        meaning,
        unit,
        own,
        peers: center,
        z,
        phrase,
    }
}

/// Distance from the peers as a share of the larger of both.
fn effect(fact: &HostFact) -> Option<f64> {
    let peers = fact.peers?;
    let larger = fact.own.abs().max(peers.abs());
    (larger > 0.0).then(|| (fact.own - peers).abs() / larger)
}

fn larger_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    let value = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
    value(b).total_cmp(&value(a))
}

/// Description of a kind, its unit, and its phrase in a sentence.
fn kind(name: &str) -> (Cow<'static, str>, Unit, Phrase) {
    let known = |meaning, unit, phrase| (Cow::Borrowed(meaning), unit, phrase);
    let after = |phrase| Phrase::After(Cow::Borrowed(phrase));
    let before = Phrase::Before;
    let (ms, count) = (Unit::Millis, Unit::Count);
    match name {
        metric::OFF_CPU => known("time its threads were blocked", ms, before("off the CPU")),
        metric::PREEMPTED => known(
            "time its threads were runnable but not running",
            ms,
            before("preempted"),
        ),
        metric::PREEMPTIONS => known(
            "times that its threads were preempted",
            count,
            after("preemptions"),
        ),
        metric::MEMCPY => known(
            "bytes copied between host and device",
            Unit::Bytes,
            before("copied"),
        ),
        metric::LAUNCHES => known("kernels launched", count, after("kernel launches")),
        metric::PAGE_ALLOCATIONS => {
            known("memory pages allocated", count, after("page allocations"))
        }
        metric::BLOCK_IO => known("time of block I/O", ms, before("block I/O")),
        metric::TCP_RETRANSMITS => known(
            "TCP segments retransmitted",
            count,
            after("TCP retransmits"),
        ),
        metric::THROTTLED => known(
            "time the clocks of its GPU were reduced",
            ms,
            before("GPU clocks reduced"),
        ),
        metric::RDMA_ERRORS => known(
            "RDMA packets lost or retransmitted",
            count,
            after("RDMA errors"),
        ),
        other => unknown_kind(other),
    }
}

/// Describes a kind that only a later agent knows, with the unit in its name.
fn unknown_kind(name: &str) -> (Cow<'static, str>, Unit, Phrase) {
    let short = name.strip_prefix(metric::HOST_EVIDENCE).unwrap_or(name);
    let (short, unit) = match (short.strip_suffix("_ms"), short.strip_suffix("_bytes")) {
        (Some(short), _) => (short, Unit::Millis),
        (None, Some(short)) => (short, Unit::Bytes),
        (None, None) => (short, Unit::Count),
    };
    let words = short.replace('_', " ");
    (
        Cow::Owned(words.clone()),
        unit,
        Phrase::After(Cow::Owned(words)),
    )
}

#[cfg(test)]
mod tests {
    use echo_core::ids::Rank;
    use fleet_proto::metric;
    use proptest::prelude::{prop_assert, proptest};

    use super::{HostFact, HostTotal, compare};

    fn total(rank: u32, metric: &str, sum: f64, iterations: f64) -> HostTotal {
        HostTotal {
            rank: Rank::new(rank),
            metric: metric.parse().unwrap(),
            sum,
            iterations,
        }
    }

    /// Ten iterations of each rank.
    fn totals(metric: &str, rates: &[f64]) -> Vec<HostTotal> {
        let ranks = (0..).zip(rates);
        ranks
            .map(|(rank, rate)| total(rank, metric, rate * 10.0, 10.0))
            .collect()
    }

    fn compare_rank(totals: &[HostTotal], rank: u32) -> Vec<HostFact> {
        compare(totals, Rank::new(rank))
    }

    #[test]
    fn a_rank_that_is_preempted_more_than_its_peers_stands_out() {
        let preempted = totals(metric::PREEMPTED, &[5.1, 14.7, 5.0, 4.9]);
        let facts = compare_rank(&preempted, 1);
        assert_eq!(facts.len(), 1);
        assert!(facts[0].stands_out(), "{facts:?}");
        assert_eq!(facts[0].sentence(), "preempted 14.7 ms per step, peers 5.0");
        let peer = &compare_rank(&preempted, 0)[0];
        assert!(!peer.stands_out(), "{peer:?}");
    }

    #[test]
    fn significant_trifles_and_large_scatter_do_not_stand_out() {
        for rates in [
            [1.0, 1.05, 1.0, 1.0],
            [100.0, 105.0, 100.0, 100.0],
            [1.0, 9.0, 7.0, 4.0],
            [5.0, 1.0, 5.0, 5.0],
        ] {
            let facts = compare_rank(&totals(metric::OFF_CPU, &rates), 1);
            assert!(!facts[0].stands_out(), "{rates:?}: {facts:?}");
        }
    }

    #[test]
    fn the_largest_difference_comes_first() {
        let mut all = totals(metric::LAUNCHES, &[100.0, 100.0, 100.0, 100.0]);
        all.extend(totals(metric::PREEMPTED, &[5.0, 14.7, 5.2, 4.9]));
        all.extend(totals(metric::PREEMPTIONS, &[3.0, 5.0, 3.3, 2.5]));
        let names: Vec<_> = compare_rank(&all, 1)
            .iter()
            .map(|fact| fact.metric.to_string())
            .collect();
        assert_eq!(
            names,
            [metric::PREEMPTED, metric::PREEMPTIONS, metric::LAUNCHES]
        );
    }

    #[test]
    fn two_ranks_have_no_scale_and_one_has_no_peers() {
        let two = compare_rank(&totals(metric::BLOCK_IO, &[9.0, 1.0]), 0);
        assert_eq!((two[0].peers, two[0].z), (Some(1.0), None));
        assert!(!two[0].stands_out());
        let alone = compare_rank(&totals(metric::BLOCK_IO, &[9.0]), 0);
        assert_eq!(alone[0].peers, None);
        assert_eq!(alone[0].sentence(), "block I/O 9.0 ms per step");
    }

    #[test]
    fn a_block_without_a_kind_counts_as_nothing_and_a_rank_without_it_as_unknown() {
        let all = [
            total(0, metric::LAUNCHES, 1_000.0, 10.0),
            total(0, metric::TCP_RETRANSMITS, 6.0, 2.0),
            total(1, metric::LAUNCHES, 1_000.0, 10.0),
        ];
        let facts = compare_rank(&all, 0);
        let retransmits = facts
            .iter()
            .find(|fact| fact.metric.as_str() == metric::TCP_RETRANSMITS)
            .unwrap();
        assert!((retransmits.own - 0.6).abs() < 1e-12, "{retransmits:?}");
        assert_eq!(retransmits.peers, None);
        assert!(compare_rank(&all, 7).is_empty());
    }

    #[test]
    fn every_kind_makes_a_sentence() {
        let sentences: Vec<String> = [
            metric::OFF_CPU,
            metric::PREEMPTIONS,
            metric::MEMCPY,
            metric::LAUNCHES,
            metric::PAGE_ALLOCATIONS,
            metric::BLOCK_IO,
            metric::TCP_RETRANSMITS,
            metric::THROTTLED,
            metric::RDMA_ERRORS,
            "fleet.host.page_faults",
            "fleet.host.swap_ms",
        ]
        .into_iter()
        .map(|name| compare_rank(&totals(name, &[4_321.0, 12_345_678.9]), 1)[0].sentence())
        .collect();
        insta::assert_snapshot!(sentences.join("\n"));
    }

    proptest! {
        #[test]
        fn every_result_is_finite(
            rates in proptest::collection::vec(0.0..1e12_f64, 1..20),
            iterations in 0.0..1e3_f64,
        ) {
            let ranks = (0..).zip(rates);
            let all: Vec<_> = ranks
                .map(|(rank, rate)| total(rank, metric::MEMCPY, rate, iterations))
                .collect();
            for fact in compare_rank(&all, 0) {
                let numbers = [Some(fact.own), fact.peers, fact.z];
                prop_assert!(numbers.into_iter().flatten().all(f64::is_finite), "{fact:?}");
            }
        }
    }
}
