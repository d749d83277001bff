//! Jobs with stages, replicas and tensor parallel groups: root ranks and victims.

use echo_core::model::detector_output::{ConditionKind, Incident};
use echo_core::model::event::StoredEvent;
use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::test_runner::Config;

use crate::detector::Detector;
use crate::settings::Settings;
use crate::simulated::device::{Gpu, Gpus};
use crate::simulated::outcome::{culprit, incidents, kinds, last_states, named, shuffled};

const N_STAGES: u32 = 4;
const N_REPLICAS: u32 = 4;

/// From block 10 on rank 1, of stage 0 and replica 1, computes 12 ms longer. Its replica is late in
/// every stage, but in the others because it waits: it is blocked as long as its peers.
fn slow_worker() -> Vec<StoredEvent> {
    Gpus::pipeline(N_STAGES, N_REPLICAS).events(30, |block, rank| {
        let slow = block >= 10;
        let gpu = Gpu {
            period_ms: if slow { 62.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        match (slow, rank % N_REPLICAS, rank / N_REPLICAS) {
            (true, 1, 0) => gpu.late_by(12.0),
            (true, 1, _) => Gpu {
                blocked_ms: gpu.blocked_ms,
                ..gpu.late_by(12.0)
            },
            _ => gpu,
        }
    })
}

fn victims(incident: &Incident) -> Vec<u32> {
    let victims = &culprit(incident).unwrap().victims;
    victims.iter().map(|rank| rank.value()).collect()
}

#[test]
fn a_slow_worker_of_a_pipeline_is_the_only_culprit() {
    let found = incidents(&slow_worker());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(named(&found), [1]);
}

#[test]
fn its_replica_in_the_other_stages_is_its_victim() {
    assert_eq!(victims(&incidents(&slow_worker())[0]), [5, 9, 13]);
}

proptest! {
    #![proptest_config(Config::with_cases(12))]

    #[test]
    fn the_order_of_messages_does_not_matter(
        seed in any::<u64>(),
        batch in 1..40_usize,
    ) {
        let mut state = seed | 1;
        let events = shuffled(&slow_worker(), |n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % 1_000_003).unwrap() % n
        });
        let mut detector = Detector::new(Settings::default());
        let mut all = echo_core::model::detector_output::DetectorOutput::default();
        for part in events.chunks(batch) {
            all.append(detector.observe(part));
        }
        prop_assert_eq!(last_states(&all), incidents(&slow_worker()));
    }
}

/// From block 10 on rank 0 is late, and with it its partner, rank 1, at the communicators across
/// the pairs. The blocked time is not reported.
fn slow_partner() -> Vec<StoredEvent> {
    Gpus::pairs(4).events(30, |block, rank| {
        let slow = block >= 10;
        let gpu = Gpu {
            blocked_ms: None,
            period_ms: if slow { 58.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        match (slow, rank) {
            (true, 0) => Gpu {
                elsewhere_ms: 2.2,
                ..gpu.late_by(8.0)
            },
            (true, 1) => gpu.late_by(8.0),
            _ => gpu,
        }
    })
}

#[test]
fn partners_of_a_slow_gpu_are_late_across_the_groups_and_are_not_named() {
    assert_eq!(named(&incidents(&slow_partner())), [0]);
}

#[test]
fn both_partners_are_named_when_neither_waits_for_the_other() {
    let events = Gpus::pairs(4).events(30, |block, rank| {
        let gpu = Gpu {
            blocked_ms: None,
            period_ms: if block >= 10 { 58.0 } else { 50.0 },
            ..Gpu::HEALTHY
        };
        if block >= 10 && rank < 2 {
            gpu.late_by(8.0)
        } else {
            gpu
        }
    });
    let mut ranks = named(&incidents(&events));
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1]);
}

#[test]
fn one_cohort_reports_a_job_that_is_slow_everywhere() {
    let events = Gpus::pipeline(N_STAGES, N_REPLICAS).events(40, |block, _| Gpu {
        period_ms: if block >= 15 { 60.0 } else { 50.0 },
        ..Gpu::HEALTHY
    });
    let found = incidents(&events);
    assert_eq!(kinds(&found), [ConditionKind::UniformSlowdown]);
    assert_eq!(found.len(), 1);
}

#[test]
fn a_stage_whose_gpus_compute_longer_is_an_imbalance_of_stages() {
    let events = Gpus::pipeline(N_STAGES, N_REPLICAS).events(40, |_, rank| Gpu {
        busy_ms: Some(if rank / N_REPLICAS == 3 { 40.0 } else { 25.0 }),
        ..Gpu::HEALTHY
    });
    let found = incidents(&events);
    assert_eq!(kinds(&found), [ConditionKind::StageImbalance], "{found:#?}");
    assert!(named(&found).is_empty());
    let condition = crate::simulated::outcome::condition(&found[0]).unwrap();
    let ranks: Vec<u32> = condition.ranks.iter().map(|rank| rank.value()).collect();
    assert_eq!(ranks, [12, 13, 14, 15]);
}
