//! Symmetries of lags: the numbering of the ranks, the zero of a signal and its unit do not change
//! them.

use echo_core::model::event::StoredEvent;
use proptest::prelude::{Strategy, prop_assert, proptest};
use proptest::test_runner::Config;

use crate::assembly::{Assembly, CohortBlock};
use crate::lag::{lags, suited_signal};
use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::{Job, Measured};

const N_RANKS: u32 = 8;

/// Offsets of the ranks from the usual, milliseconds: noise, and one rank that may be late from
/// block 10 on.
#[derive(Debug, Clone)]
struct Offsets {
    noise: Vec<f64>,
    late: u32,
    lag_ms: f64,
}

impl Offsets {
    fn any() -> impl Strategy<Value = Self> {
        let noise = proptest::collection::vec(-0.3..0.3_f64, N_RANKS as usize);
        (noise, 0..N_RANKS, 0.0..12.0_f64).prop_map(|(noise, late, lag_ms)| Self {
            noise,
            late,
            lag_ms,
        })
    }

    fn offset_ms(&self, block: u64, rank: u32) -> f64 {
        let own = self.noise[rank as usize];
        own + if block >= 10 && rank == self.late {
            self.lag_ms
        } else {
            0.0
        }
    }

    fn period_ms(&self, block: u64) -> f64 {
        50.0 + if block >= 10 { self.lag_ms } else { 0.0 }
    }

    /// Reports by hosts, with the ranks renumbered, all gaps moved by `shift_ms`, and all durations
    /// in another unit.
    fn by_gap(&self, number: impl Fn(u32) -> u32, shift_ms: f64, unit: f64) -> Vec<StoredEvent> {
        Job::with_ranks(N_RANKS).events(24, |block, rank| Measured {
            gap_ms: unit * (4.0 + shift_ms + self.offset_ms(block, number(rank))),
            period_ms: unit * self.period_ms(block),
            ..Measured::HEALTHY
        })
    }

    /// The same by GPUs, where late ranks spend the least time.
    fn by_device(&self, number: impl Fn(u32) -> u32, shift_ms: f64, unit: f64) -> Vec<StoredEvent> {
        Gpus::alike(N_RANKS).events(24, |block, rank| {
            let late_ms = self.offset_ms(block, number(rank));
            Gpu {
                inside_ms: unit * (3.0 + shift_ms / 10.0 - late_ms / 10.0),
                blocked_ms: Some(unit * (30.0 + shift_ms - late_ms)),
                period_ms: unit * self.period_ms(block),
                ..Gpu::HEALTHY
            }
        })
    }
}

fn blocks(events: &[StoredEvent]) -> Vec<CohortBlock> {
    let mut assembly = Assembly::default();
    for event in events {
        assembly.add(event);
    }
    let closed = assembly.closed(30_000.0).into_iter();
    closed.map(|(_, block)| block).collect()
}

/// Lags over all events, in the order of the ranks.
fn mean_lags(events: &[StoredEvent]) -> Vec<f64> {
    let blocks = blocks(events);
    let window: Vec<&CohortBlock> = blocks.iter().collect();
    let lags = lags(suited_signal(&window), &window).unwrap();
    lags.ranks.iter().map(|lag| lag.mean_ms).collect()
}

fn are_close(one: &[f64], other: &[f64]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-6)
}

fn same(rank: u32) -> u32 {
    rank
}

proptest! {
    #![proptest_config(Config::with_cases(24))]

    #[test]
    fn renumbered_ranks_have_the_same_lags(
        offsets in Offsets::any(),
        step in proptest::sample::select(vec![1_u32, 3, 5, 7]),
        first in 0..N_RANKS,
    ) {
        let number = |rank: u32| (rank * step + first) % N_RANKS;
        for signals in [Signals::Gap, Signals::Device] {
            let (straight, renumbered) = (signals.events(&offsets, same, 0.0, 1.0), signals.events(&offsets, number, 0.0, 1.0));
            let known = mean_lags(&straight);
            let expected: Vec<f64> = (0..N_RANKS).map(|rank| known[number(rank) as usize]).collect();
            prop_assert!(are_close(&mean_lags(&renumbered), &expected));
        }
    }

    #[test]
    fn an_offset_common_to_all_ranks_is_no_lag(offsets in Offsets::any(), shift_ms in 0.0..30.0_f64) {
        for signals in [Signals::Gap, Signals::Device] {
            let (straight, shifted) = (signals.events(&offsets, same, 0.0, 1.0), signals.events(&offsets, same, shift_ms, 1.0));
            prop_assert!(are_close(&mean_lags(&straight), &mean_lags(&shifted)));
        }
    }

    #[test]
    fn a_job_that_is_ten_times_as_slow_has_ten_times_the_lags(offsets in Offsets::any()) {
        for signals in [Signals::Gap, Signals::Device] {
            let (straight, slow) = (signals.events(&offsets, same, 0.0, 1.0), signals.events(&offsets, same, 0.0, 10.0));
            let tenfold: Vec<f64> = mean_lags(&straight).iter().map(|lag| lag * 10.0).collect();
            prop_assert!(are_close(&mean_lags(&slow), &tenfold));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Signals {
    Gap,
    Device,
}

impl Signals {
    fn events(
        self,
        offsets: &Offsets,
        number: impl Fn(u32) -> u32,
        shift_ms: f64,
        unit: f64,
    ) -> Vec<StoredEvent> {
        match self {
            Self::Gap => offsets.by_gap(number, shift_ms, unit),
            Self::Device => offsets.by_device(number, shift_ms, unit),
        }
    }
}
