//! Jobs whose GPUs report their waits.

use echo_core::model::detector_output::{Baseline, CauseClass, Culprit, Signal};
use echo_core::model::event::{Source, StoredEvent};

use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::outcome::{culprit, incidents, named, only_culprit};

/// Rank 3 of eight is late by 8 ms in each iteration from block 10 on; `also` changes its other
/// measurements.
fn late(also: impl Fn(Gpu, bool) -> Gpu) -> Vec<StoredEvent> {
    Gpus::alike(8).events(30, |block, rank| {
        let (slow, is_culprit) = (block >= 10, rank == 3);
        let gpu = Gpu {
            period_ms: if slow { 58.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        let gpu = if slow && is_culprit {
            gpu.late_by(8.0)
        } else {
            gpu
        };
        also(gpu, slow && is_culprit)
    })
}

fn class(also: impl Fn(Gpu, bool) -> Gpu) -> CauseClass {
    let culprit = only_culprit(&late(also));
    assert_eq!(culprit.rank.value(), 3);
    culprit.class
}

#[test]
fn the_gpu_that_waits_least_is_the_one_the_others_wait_for() {
    let Culprit {
        rank,
        signal,
        source,
        ..
    } = only_culprit(&late(|gpu, _| gpu));
    assert_eq!(
        (rank.value(), signal, source),
        (3, Signal::DeviceWait, Source::Device)
    );
}

#[test]
fn a_late_gpu_whose_host_was_on_time_is_a_late_device() {
    let in_time = |gpu, _| Gpu {
        gap_ms: Some(4.0),
        ..gpu
    };
    assert_eq!(class(in_time), CauseClass::Device);
}

#[test]
fn a_source_disagreement_is_reported_when_only_the_gpu_is_late() {
    let reason = |also: fn(Gpu, bool) -> Gpu| incidents(&late(also))[0].reason.clone();
    let in_time = reason(|gpu, _| Gpu {
        gap_ms: Some(4.0),
        ..gpu
    });
    assert!(in_time.contains("source_disagreement"), "{in_time}");
    let late_host = reason(|gpu, is_late| Gpu {
        gap_ms: Some(if is_late { 12.0 } else { 4.0 }),
        ..gpu
    });
    assert!(!late_host.contains("source_disagreement"), "{late_host}");
    let unseen = reason(|gpu, _| gpu);
    assert!(!unseen.contains("source_disagreement"), "{unseen}");
}

#[test]
fn a_late_host_whose_gpu_had_enough_work_is_not_named() {
    let events = Gpus::alike(8).events(30, |block, rank| Gpu {
        gap_ms: Some(if block >= 10 && rank == 3 { 12.0 } else { 4.0 }),
        period_ms: if block >= 10 { 58.0 } else { 50.0 },
        ..Gpu::HEALTHY
    });
    assert_eq!(named(&incidents(&events)), [0_u32; 0]);
}

#[test]
fn a_late_gpu_whose_host_was_late_is_a_late_host() {
    let late = |gpu, is_late| Gpu {
        gap_ms: Some(if is_late { 12.0 } else { 4.0 }),
        ..gpu
    };
    assert_eq!(class(late), CauseClass::Host);
}

#[test]
fn a_late_gpu_whose_queue_ran_dry_waited_for_its_host() {
    let dry = |gpu, is_late| Gpu {
        queue_ms: Some(if is_late { 0.1 } else { 10.0 }),
        ..gpu
    };
    assert_eq!(class(dry), CauseClass::Host);
}

#[test]
fn a_late_gpu_with_work_in_its_queue_is_a_late_device() {
    let full = |gpu, is_late| Gpu {
        queue_ms: Some(if is_late { 18.0 } else { 10.0 }),
        ..gpu
    };
    assert_eq!(class(full), CauseClass::Device);
}

#[test]
fn without_host_and_queue_the_cause_of_a_late_gpu_is_unknown() {
    assert_eq!(class(|gpu, _| gpu), CauseClass::Inconclusive);
}

#[test]
fn a_lag_that_repeats_in_each_operation_is_counted_once() {
    // Each of ten operations is entered 2 ms later, yet the iteration takes 8 ms longer.
    let events = Gpus::alike(8).events(30, |block, rank| {
        let slow = block >= 10;
        Gpu {
            inside_ms: if slow && rank == 3 { 1.0 } else { 3.0 },
            blocked_ms: Some(if slow && rank == 3 { 22.0 } else { 30.0 }),
            period_ms: if slow { 58.0 } else { 50.0 },
            ..Gpu::HEALTHY
        }
    });
    let found = incidents(&events);
    assert_eq!(named(&found), [3]);
    let lag_ms = found[0].culprit_lag_ms().unwrap();
    let loss_ms = found[0].period_ms - found[0].baseline.period_ms();
    assert!(
        lag_ms <= loss_ms + 1e-9 && lag_ms > 7.0,
        "{lag_ms} of {loss_ms}"
    );
}

/// Certain healthy duration of an iteration of 60 ms, milliseconds, if rank 5 is late from the
/// first iteration on.
fn healthy_ms_without_a_past(late: impl Fn(Gpu) -> Gpu) -> f64 {
    // Some hundred iterations are needed, because the usual alternation of ranks is not known yet.
    let events = Gpus::alike(8).events(30, |_, rank| {
        let gpu = Gpu {
            period_ms: 60.0,
            longest_ms: Some(13.0),
            ..Gpu::HEALTHY
        };
        if rank == 5 { late(gpu) } else { gpu }
    });
    let found = incidents(&events);
    assert_eq!(named(&found), [5]);
    assert!(found[0].confidence <= 0.7);
    let Baseline::None { period_ms } = found[0].baseline else {
        panic!("{found:#?}")
    };
    period_ms
}

#[test]
fn a_gpu_that_is_slow_from_the_first_iteration_has_cost_its_lag_at_one_operation() {
    let at_one = |gpu: Gpu| Gpu {
        longest_ms: Some(3.0),
        blocked_ms: Some(20.0),
        ..gpu
    };
    let period_ms = healthy_ms_without_a_past(at_one);
    assert!((period_ms - 50.0).abs() < 0.1, "{period_ms}");
    // As recorded under DDP: other operations, which overlap with computation, show the same lag
    // again.
    let again = |gpu: Gpu| Gpu {
        inside_ms: 1.0,
        longest_ms: Some(3.0),
        blocked_ms: Some(2.0),
        ..gpu
    };
    let period_ms = healthy_ms_without_a_past(again);
    assert!((period_ms - 50.0).abs() < 0.1, "{period_ms}");
}

#[test]
fn a_quarter_of_a_lag_spread_over_many_operations_is_certain() {
    let period_ms = healthy_ms_without_a_past(|gpu| Gpu {
        longest_ms: Some(12.0),
        ..gpu.late_by(10.0)
    });
    assert!((period_ms - 57.5).abs() < 0.3, "{period_ms}");
}

#[test]
fn a_gpu_that_is_late_and_costs_nothing_is_not_named() {
    let events = Gpus::alike(8).events(40, |block, rank| {
        if block >= 10 && rank == 3 {
            Gpu::HEALTHY.late_by(8.0)
        } else {
            Gpu::HEALTHY
        }
    });
    assert!(incidents(&events).is_empty());
}

#[test]
fn two_late_gpus_are_both_named() {
    let events = Gpus::alike(16).events(30, |block, rank| {
        let gpu = Gpu {
            period_ms: if block >= 10 { 58.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        match rank {
            3 if block >= 10 => gpu.late_by(8.0),
            9 if block >= 10 => gpu.late_by(7.0),
            _ => gpu,
        }
    });
    let mut ranks = named(&incidents(&events));
    ranks.sort_unstable();
    assert_eq!(ranks, [3, 9]);
}

#[test]
fn a_rank_that_is_late_at_one_kind_of_operation_and_waits_a_little_at_another_is_named() {
    // As recorded under FSDP: rank 3 is late at gathers, and waits at scatters for a GPU that was
    // always a little slower.
    let events = Gpus::alike(8).events(60, |block, rank| {
        let slow = block >= 50;
        let gpu = Gpu {
            period_ms: if slow { 53.0 } else { 50.0 },
            second_ms: Some(if rank == 6 { 2.7 } else { 3.0 }),
            ..Gpu::HEALTHY
        };
        if slow && rank == 3 {
            gpu.late_by(12.0)
        } else {
            gpu
        }
    });
    assert_eq!(named(&incidents(&events)), [3]);
}

#[test]
fn with_two_ranks_the_lag_is_the_whole_difference_of_their_waits() {
    // Half of it would be less than a tenth of the period, the minimum difference of two ranks
    // without a history.
    let events = Gpus::alike(2).events(80, |block, rank| {
        let slow = block >= 50;
        let gpu = Gpu {
            period_ms: if slow { 60.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        if slow && rank == 1 {
            gpu.late_by(10.0)
        } else {
            gpu
        }
    });
    assert_eq!(named(&incidents(&events)), [1]);
}

#[test]
fn a_late_gpu_has_no_victims_in_a_job_of_one_role() {
    let found = incidents(&late(|gpu, _| gpu));
    assert!(culprit(&found[0]).unwrap().victims.is_empty());
}

/// Rank 3 of four has a GPU that is always a little slower, and from block 50 on one that is late
/// by 16 ms.
fn always_a_little_slower(usual_ms: f64) -> Vec<StoredEvent> {
    Gpus::alike(4).events(100, |block, rank| {
        let slow = block >= 50;
        let gpu = Gpu {
            period_ms: if slow { 66.0 } else { 50.0 },
            gap_ms: Some(4.0),
            ..Gpu::HEALTHY
        };
        match (rank, slow) {
            (3, false) => gpu.late_by(usual_ms),
            (3, true) => gpu.late_by(16.0 + usual_ms),
            _ => gpu,
        }
    })
}

#[test]
fn a_gpu_that_was_always_a_little_slower_has_a_healthy_history() {
    for usual_ms in [0.5, 2.0, 4.0] {
        let found = incidents(&always_a_little_slower(usual_ms));
        assert_eq!(named(&found), [3], "{usual_ms}");
        let Baseline::History { period_ms } = found[0].baseline else {
            panic!("{usual_ms}: {found:#?}")
        };
        assert!((period_ms - 50.0).abs() < 0.1, "{usual_ms}: {period_ms}");
        let first = found[0].first_iteration;
        assert!((first - 200.0).abs() < 0.1, "{usual_ms}: {first}");
    }
}
