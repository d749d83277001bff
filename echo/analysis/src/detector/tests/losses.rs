//! Attribution of a job's loss: completely, once, and to the ranks that caused it.

#![expect(
    clippy::suboptimal_flops,
    reason = "expectations read better as plain arithmetic"
)]

use std::collections::BTreeMap;

use echo_core::ids::{CommId, IncidentId, NodeId};
use echo_core::model::detector_output::{DetectorOutput, LostTime};
use echo_core::model::event::StoredEvent;
use echo_core::units::Nanos;
use proptest::prelude::{prop_assert, proptest};
use proptest::test_runner::Config;

use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::outcome::{culprit, detect, last_states, named};
use crate::simulated::{Job, Measured};

const HEALTHY: Measured = Measured::HEALTHY;

/// Iterations in a block of the simulated jobs.
const PER_BLOCK: f64 = 4.0;

/// The latest row of each interval, as the store keeps it.
fn latest_rows(output: &DetectorOutput) -> Vec<LostTime> {
    let mut rows: BTreeMap<(IncidentId, NodeId, Nanos), LostTime> = BTreeMap::new();
    for row in &output.lost {
        let key = (row.incident, row.node.clone(), row.interval.from());
        rows.insert(key, row.clone());
    }
    rows.into_values().collect()
}

fn total(rows: &[LostTime]) -> f64 {
    rows.iter().map(|row| row.lost_gpu_ms).sum()
}

fn waited(rows: &[LostTime]) -> f64 {
    let waited = rows.iter().map(|row| row.peer_wait_gpu_ms.unwrap());
    waited.sum()
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() < 0.05,
        "{found}, expected {expected}"
    );
}

/// Rank 1 is late by `lag_ms` from block 10 on; its peers are blocked longer for it, and the job
/// loses `damage_ms`.
fn late(n_ranks: u32, lag_ms: f64, damage_ms: f64) -> Vec<StoredEvent> {
    Job::with_ranks(n_ranks).events(40, |block, rank| match (block >= 10, rank) {
        (false, _) => HEALTHY,
        (true, 1) => Measured {
            gap_ms: 4.0 + lag_ms,
            period_ms: 50.0 + damage_ms,
            ..HEALTHY
        },
        (true, _) => Measured {
            blocked_ms: 30.0 + lag_ms,
            period_ms: 50.0 + damage_ms,
            ..HEALTHY
        },
    })
}

#[test]
fn healthy_ranks_wait_and_the_culprit_only_takes_longer() {
    let rows = latest_rows(&detect(&late(8, 8.0, 8.0)));
    let iterations = 30.0 * PER_BLOCK;
    assert_near(total(&rows), 8.0 * 8.0 * iterations);
    assert_near(waited(&rows), 7.0 * 8.0 * iterations);
}

#[test]
fn a_lag_that_is_overlapped_with_work_costs_nothing() {
    // The queues hide 3 of 8 ms of the lag.
    let rows = latest_rows(&detect(&late(8, 8.0, 5.0)));
    let iterations = 30.0 * PER_BLOCK;
    assert_near(total(&rows), 8.0 * 5.0 * iterations);
    assert_near(waited(&rows), 7.0 * 5.0 * iterations);
}

/// Rank 1 is late by `lag_ms(block)`, which the job loses, in blocks 10 to 29; before and after
/// them iterations take 50 ms and
/// `after_ms`.
fn late_for_a_while(lag_ms: impl Fn(u64) -> f64, after_ms: f64) -> Vec<StoredEvent> {
    Job::with_ranks(8).events(60, |block, rank| match (block, rank) {
        (..10, _) => HEALTHY,
        (30.., _) => Measured {
            period_ms: after_ms,
            ..HEALTHY
        },
        (_, 1) => Measured {
            gap_ms: 4.0 + lag_ms(block).max(0.0),
            period_ms: 50.0 + lag_ms(block),
            ..HEALTHY
        },
        _ => Measured {
            blocked_ms: 30.0 + lag_ms(block).max(0.0),
            period_ms: 50.0 + lag_ms(block),
            ..HEALTHY
        },
    })
}

#[test]
fn a_job_that_is_faster_after_the_fault_reduces_no_loss() {
    let rows = latest_rows(&detect(&late_for_a_while(|_| 8.0, 45.0)));
    assert_near(total(&rows), 8.0 * 8.0 * 20.0 * PER_BLOCK);
}

#[test]
fn iterations_that_are_faster_between_slow_ones_reduce_their_loss() {
    let lag_ms = |block: u64| if block % 4 == 1 { -4.0 } else { 12.0 };
    let rows = latest_rows(&detect(&late_for_a_while(lag_ms, 46.0)));
    // Block 29 is a fast one: nothing shows that it still belongs to the fault.
    assert_near(total(&rows), 8.0 * (15.0 * 12.0 - 4.0 * 4.0) * PER_BLOCK);
}

#[test]
fn many_small_waits_cost_as_much_as_a_large_one() {
    let small = Job::with_ranks(8).events(40, |block, rank| match (block >= 10, rank) {
        (false, _) => Measured {
            blocked_ms: 3.0,
            gap_ms: 0.4,
            n_syncs: 40,
            ..HEALTHY
        },
        (true, 1) => Measured {
            blocked_ms: 3.0,
            gap_ms: 1.2,
            n_syncs: 40,
            period_ms: 58.0,
            ..HEALTHY
        },
        (true, _) => Measured {
            blocked_ms: 3.8,
            gap_ms: 0.4,
            n_syncs: 40,
            period_ms: 58.0,
            ..HEALTHY
        },
    });
    let (small, large) = (
        latest_rows(&detect(&small)),
        latest_rows(&detect(&late(8, 8.0, 8.0))),
    );
    assert_near(total(&small), total(&large));
    assert_near(waited(&small), waited(&large));
}

/// From block 10 on rank 1, of stage 0, computes 12 ms longer, and its replica is late in every
/// stage.
fn slow_worker() -> Vec<StoredEvent> {
    Gpus::pipeline(4, 4).events(40, |block, rank| {
        let slow = block >= 10;
        let gpu = Gpu {
            period_ms: if slow { 62.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        match (slow, rank % 4, rank / 4) {
            (true, 1, 0) => gpu.late_by(12.0),
            (true, 1, _) => Gpu {
                blocked_ms: gpu.blocked_ms,
                ..gpu.late_by(12.0)
            },
            _ => gpu,
        }
    })
}

#[test]
fn the_loss_of_all_stages_is_attributed_to_a_slow_worker() {
    let output = detect(&slow_worker());
    assert_eq!(named(&last_states(&output)), [1]);
    assert_near(total(&latest_rows(&output)), 16.0 * 12.0 * 30.0 * PER_BLOCK);
}

#[test]
fn one_more_communicator_costs_nothing() {
    let events = slow_worker();
    let elsewhere = events.iter().filter_map(|stored| {
        let mut more = stored.clone();
        let block = more.event.block.as_mut()?;
        block.comm = CommId::new(block.comm.value() + 100);
        let is_wait = more.event.metric.as_str() == fleet_proto::metric::WAIT;
        is_wait.then_some(more)
    });
    let mut both: Vec<StoredEvent> = events.iter().cloned().chain(elsewhere).collect();
    both.sort_by_key(|stored| stored.event.timestamp);
    let (one, two) = (latest_rows(&detect(&events)), latest_rows(&detect(&both)));
    assert!(
        (total(&one) - total(&two)).abs() < 1e-6,
        "{} became {}",
        total(&one),
        total(&two)
    );
}

/// From block 10 on rank 1 is late by 12 ms, and from block 20 on rank 5 by 9 ms.
fn two_late_ranks() -> DetectorOutput {
    detect(&Job::with_ranks(8).events(60, |block, rank| {
        let period_ms = if block >= 10 { 62.0 } else { 50.0 };
        let lag_ms = match rank {
            1 if block >= 10 => 12.0,
            5 if block >= 20 => 9.0,
            _ => 0.0,
        };
        Measured {
            gap_ms: 4.0 + lag_ms,
            period_ms,
            ..HEALTHY
        }
    }))
}

#[test]
fn two_late_ranks_share_their_common_loss() {
    let output = two_late_ranks();
    let rows = latest_rows(&output);
    assert_near(total(&rows), 8.0 * 12.0 * 50.0 * PER_BLOCK);
    let states = last_states(&output);
    let of = |rank: u32| -> Vec<LostTime> {
        let is_of = |incident: IncidentId| {
            let mut known = states.iter().filter(|state| state.id == incident);
            known.any(|state| culprit(state).is_some_and(|found| found.rank.value() == rank))
        };
        let rows = rows.iter().filter(|row| is_of(row.incident));
        rows.cloned().collect()
    };
    // Alone for 10 blocks. In the next 40 blocks it causes a quarter of the loss alone, and half of
    // the rest.
    let (first, second) = (of(1), of(5));
    let block = 8.0 * 12.0 * PER_BLOCK;
    assert_near(total(&first), (10.0 + 0.625 * 40.0) * block);
    assert_near(total(&second), 0.375 * 40.0 * block);
    let saved = |rows: &[LostTime]| rows.iter().map(|row| row.saved_gpu_ms).sum::<f64>();
    assert_near(saved(&first), (10.0 + 0.25 * 40.0) * block);
    assert!(saved(&second).abs() < 1e-9, "{}", saved(&second));
}

/// From block 10 on all ranks are slower and none is late. From block 25 on rank 1 is late.
fn cause_found_later() -> DetectorOutput {
    detect(&Job::with_ranks(8).events(60, |block, rank| Measured {
        period_ms: if block >= 10 { 58.0 } else { 50.0 },
        gap_ms: if rank == 1 && block >= 25 { 12.0 } else { 4.0 },
        ..HEALTHY
    }))
}

#[test]
fn the_loss_of_an_iteration_is_attributed_once_even_if_its_cause_changes() {
    let output = cause_found_later();
    let states = last_states(&output);
    assert_eq!(states.len(), 2, "{states:#?}");
    assert_near(total(&latest_rows(&output)), 8.0 * 8.0 * 50.0 * PER_BLOCK);
}

proptest! {
    #![proptest_config(Config::with_cases(16))]

    #[test]
    fn a_later_rank_costs_more(lag_ms in 5.0..40.0_f64) {
        let cost = |lag_ms| total(&latest_rows(&detect(&late(4, lag_ms, lag_ms))));
        prop_assert!(cost(lag_ms) < cost(lag_ms + 1.0));
    }

    #[test]
    fn peers_never_wait_longer_than_the_job_takes_longer(
        lag_ms in 5.0..40.0_f64,
        share in 0.3..1.0_f64,
    ) {
        let rows = latest_rows(&detect(&late(4, lag_ms, lag_ms * share)));
        prop_assert!(waited(&rows) <= total(&rows) + 1e-6);
    }
}
