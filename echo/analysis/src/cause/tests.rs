use std::collections::BTreeMap;

use echo_core::ids::Rank;
use echo_core::model::detector_output::{CauseClass, Signal};

use super::{CauseEvidence, Slowness, class_of};
use crate::assembly::{Assembly, CohortBlock};
use crate::baseline::History;
use crate::lag::{Lag, Lags, lags};
use crate::simulated::device::{Gpu, Gpus};

/// Blocks of eight ranks whose times inside an operation are those given.
fn blocks(n_blocks: u64, inside_ms: impl Fn(u32) -> f64) -> Vec<CohortBlock> {
    blocks_of_two_kinds(n_blocks, |rank| (inside_ms(rank), None))
}

/// The same with a second kind of operation.
fn blocks_of_two_kinds(
    n_blocks: u64,
    inside_ms: impl Fn(u32) -> (f64, Option<f64>),
) -> Vec<CohortBlock> {
    let mut assembly = Assembly::default();
    let events = Gpus::alike(8).events(n_blocks, |_, rank| {
        let (inside_ms, second_ms) = inside_ms(rank);
        Gpu {
            inside_ms,
            second_ms,
            ..Gpu::HEALTHY
        }
    });
    for event in events {
        assembly.add(&event);
    }
    let closed = assembly.closed(30_000.0).into_iter();
    closed.map(|(_, block)| block).collect()
}

/// A history of transfers that take 2 ms and ranks that are 1 ms apart.
fn history(n_blocks: u64) -> History {
    let mut history = History::default();
    for block in blocks(n_blocks, |rank| if rank == 0 { 2.0 } else { 3.0 }) {
        history.record_transfer(&block.transfers[0]);
    }
    history
}

fn slowness(inside_ms: impl Fn(u32) -> f64) -> Option<Slowness> {
    let blocks = blocks(4, inside_ms);
    Slowness::from_blocks(&blocks.iter().collect::<Vec<_>>(), &history(6))
}

#[test]
fn slow_transfers_that_all_ranks_share_are_the_network() {
    let slow = slowness(|rank| if rank == 0 { 4.0 } else { 5.0 }).unwrap();
    assert!(slow.is_network() && !slow.is_mixed());
    assert!((slow.transfer_ratio - 2.0).abs() < 1e-9 && slow.skew.abs() < 1e-9);
}

#[test]
fn one_late_rank_is_all_skew() {
    let late = slowness(|rank| if rank == 0 { 2.0 } else { 11.0 }).unwrap();
    assert!(!late.is_network() && !late.is_mixed());
    assert!((late.skew - 1.0).abs() < 1e-9);
}

#[test]
fn a_late_rank_in_a_slow_network_is_mixed() {
    let both = slowness(|rank| if rank == 0 { 4.0 } else { 7.0 }).unwrap();
    assert!(both.is_mixed() && !both.is_network(), "{both:?}");
    assert!((both.skew - 0.5).abs() < 1e-9);
}

#[test]
fn transfers_a_little_slower_than_usual_are_no_network_fault() {
    let usual = slowness(|rank| if rank == 0 { 2.4 } else { 3.4 }).unwrap();
    assert!(!usual.is_network() && usual.transfer_ratio > 1.1);
}

#[test]
fn a_kind_of_operation_counts_by_its_share_of_the_time() {
    // As recorded under FSDP: a rank is late at gathers by milliseconds, and scatters take slightly
    // longer than usual.
    let (first, usual) = ((2.0, Some(0.1)), (3.0, Some(0.2)));
    let mut history = History::default();
    let healthy = blocks_of_two_kinds(6, |rank| if rank == 0 { first } else { usual });
    for transfer in healthy.iter().flat_map(|block| &block.transfers) {
        history.record_transfer(transfer);
    }
    let (late, waiting) = ((2.0, Some(0.2)), (11.0, Some(0.2)));
    let blocks = blocks_of_two_kinds(4, |rank| if rank == 0 { late } else { waiting });
    let slowness = Slowness::from_blocks(&blocks.iter().collect::<Vec<_>>(), &history).unwrap();
    assert!(!slowness.is_mixed() && !slowness.is_network());
    assert!(slowness.skew > 0.95, "{slowness:?}");
}

#[test]
fn few_transfers_are_no_history() {
    let blocks = blocks(4, |_| 9.0);
    let window: Vec<&CohortBlock> = blocks.iter().collect();
    assert_eq!(Slowness::from_blocks(&window, &history(3)), None);
}

/// Rank 3 by the signal, late by 10 ms in an iteration.
fn late(signal: Signal) -> Lag {
    let blocks = blocks(4, |rank| if rank == 3 { 2.0 } else { 3.0 });
    let lags = lags(Signal::DeviceWait, &blocks.iter().collect::<Vec<_>>()).unwrap();
    Lag {
        signal,
        ..lags.ranks[3].clone()
    }
}

fn class(signal: Signal, slowness: Option<Slowness>, queues: &[f64]) -> CauseClass {
    class_with_gaps(signal, slowness, (queues, None))
}

/// The same with host gaps, and their number per iteration.
fn class_with_gaps(
    signal: Signal,
    slowness: Option<Slowness>,
    (queues, gaps): (&[f64], Option<(&Lags, f64)>),
) -> CauseClass {
    let rates = gaps.map(|(_, rate)| (0..8).map(|rank| (Rank::new(rank), rate)).collect());
    let queues: BTreeMap<Rank, f64> = (0..).map(Rank::new).zip(queues.iter().copied()).collect();
    let evidence = CauseEvidence {
        gaps: gaps.map(|(gaps, _)| gaps),
        gap_rates: &rates.unwrap_or_default(),
        queues: &queues,
        slowness,
        damage_ms: Some(10.0),
    };
    class_of(&late(signal), &evidence)
}

#[test]
fn host_signals_never_attribute_a_lag_to_the_device() {
    for signal in [Signal::HostGap, Signal::Wait, Signal::Arrival] {
        assert_eq!(class(signal, None, &[9.0; 8]), CauseClass::Host);
    }
}

#[test]
fn a_late_gpu_in_a_slow_network_is_mixed() {
    let both = slowness(|rank| if rank == 0 { 4.0 } else { 7.0 });
    assert_eq!(
        class(Signal::DeviceWait, both, &[9.0; 8]),
        CauseClass::Mixed
    );
}

#[test]
fn work_of_a_late_host_waits_less_than_that_of_its_peers_by_a_large_part_of_the_lag() {
    // As recorded: with a host that is 8 ms late, work is 5 ms less in the queue; with a late GPU,
    // it is 2 ms more.
    let with = |own| [31.0, 31.0, 31.0, own, 31.0, 31.0, 31.0, 31.0];
    let class = |own| class(Signal::DeviceWait, None, &with(own));
    assert_eq!(class(26.0), CauseClass::Host);
    assert_eq!(class(28.4), CauseClass::Host);
    assert_eq!(class(28.6), CauseClass::Device);
    assert_eq!(class(33.0), CauseClass::Device);
}

#[test]
fn with_empty_queues_a_late_gpu_waits_for_its_host() {
    let with = |own| [0.1, 0.1, 0.1, own, 0.1, 0.1, 0.1, 0.1];
    let class = |own| class(Signal::DeviceWait, None, &with(own));
    assert_eq!(class(0.1), CauseClass::Host);
    assert_eq!(class(10.0), CauseClass::Device);
}

#[test]
fn a_late_host_that_is_seldom_blocked_is_shown_by_its_empty_queue() {
    let blocks = blocks(4, |_| 3.0);
    let alike = lags(Signal::DeviceWait, &blocks.iter().collect::<Vec<_>>()).unwrap();
    let ranks = alike.ranks.into_iter().map(|lag| Lag {
        signal: Signal::HostGap,
        mean_ms: 0.0,
        ..lag
    });
    let gaps = Lags {
        signal: Signal::HostGap,
        ranks: ranks.collect(),
        ..alike
    };
    let class = |peers, own, rate| {
        let queues = [peers, peers, peers, own, peers, peers, peers, peers];
        class_with_gaps(Signal::DeviceWait, None, (&queues, Some((&gaps, rate))))
    };
    // As recorded of a rank that sleeps after each token, and of gradient accumulation: its
    // synchronisations hardly block it.
    assert_eq!(class(9.0, 0.1, 0.2), CauseClass::Host);
    assert_eq!(class(0.1, 0.1, 0.2), CauseClass::Host);
    // It was blocked in each iteration, so its gaps would show what its host did.
    assert_eq!(class(0.1, 0.1, 1.0), CauseClass::Device);
    // As recorded of sequences of random length on a shared GPU: hosts run ahead by more or less,
    // and both queues are long.
    assert_eq!(class(26.0, 8.0, 0.2), CauseClass::Device);
}
