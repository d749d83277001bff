use echo_core::ids::Rank;
use echo_core::model::detector_output::{CauseClass, Condition, ConditionKind, Culprit, Signal};
use echo_core::model::event::Source;
use fleet_proto::{advice, metric};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;

use super::{for_condition, for_culprit};
use crate::evidence::{HostFact, HostTotal, Task, compare};

const UUID: &str = "GPU-5f0d2c1e-8a44-4c1f-9c1e-3b6d7d1a2f10";

const KINDS: [&str; 20] = [
    metric::OFF_CPU,
    metric::RUN_QUEUE,
    metric::PREEMPTED,
    metric::PREEMPTIONS,
    metric::MEMCPY,
    metric::LAUNCHES,
    metric::PAGE_ALLOCATIONS,
    metric::BLOCK_IO,
    metric::TCP_RETRANSMITS,
    metric::THROTTLED,
    metric::RDMA_ERRORS,
    metric::CGROUP_THROTTLED,
    metric::INTERRUPT,
    metric::LOCK,
    metric::PAGE_FAULT,
    metric::NETWORK_WAIT,
    metric::PRESSURE_CPU,
    metric::PRESSURE_MEMORY,
    metric::PRESSURE_IO,
    "fleet.host.later_kind_ms",
];

fn culprit(class: CauseClass, gpu_uuid: Option<&str>) -> Culprit {
    Culprit {
        rank: Rank::new(1),
        node: "node-1".parse().unwrap(),
        gpu_uuid: gpu_uuid.map(Into::into),
        class,
        signal: Signal::Wait,
        lag_ms: 10.0,
        z: 12.0,
        source: Source::Host,
    }
}

/// Totals of rank 1 and three peers for one kind of evidence.
fn totals(name: &str, own: f64) -> Vec<HostTotal> {
    let rates = [5_000.0, own, 5_010.0, 4_990.0];
    let ranks = (0..).zip(rates);
    ranks
        .map(|(rank, rate)| HostTotal {
            rank: Rank::new(rank),
            metric: name.parse().unwrap(),
            task: None,
            sum: rate * 10.0,
            iterations: 10.0,
        })
        .collect()
}

fn facts(totals: &[HostTotal]) -> Vec<HostFact> {
    compare(totals, Rank::new(1))
}

fn advised(class: CauseClass, name: &str) -> Vec<String> {
    for_culprit(&culprit(class, Some(UUID)), &facts(&totals(name, 50_000.0)))
}

#[test]
fn the_task_that_had_the_cpu_is_named() {
    let mut all = totals(metric::PREEMPTED, 50_000.0);
    all.push(HostTotal {
        task: Some(Task {
            name: Some("cpu-hog".to_owned()),
            cpu: Some(3),
        }),
        metric: metric::PREEMPTED_BY.parse().unwrap(),
        ..all[1].clone()
    });
    let found = for_culprit(&culprit(CauseClass::Host, None), &facts(&all));
    assert_eq!(
        found,
        [
            "keep cpu-hog off cpu 3, or move the process: taskset -apc CPUS PID, or a cpuset of its own"
        ]
    );
}

#[test]
fn a_throttled_gpu_is_looked_at_by_its_uuid() {
    for class in [CauseClass::Device, CauseClass::Host] {
        assert_eq!(
            advised(class, metric::THROTTLED),
            [format!(
                "find why the clocks of its GPU are reduced (power, temperature, a limit): nvidia-smi -q -d \
                 PERFORMANCE -i {UUID}"
            )]
        );
    }
}

#[test]
fn the_process_that_computes_on_the_gpu_of_a_rank_is_named() {
    let mut all = totals(metric::GPU_SHARED, 50_000.0);
    for class in [CauseClass::Device, CauseClass::Host] {
        let found = for_culprit(&culprit(class, Some(UUID)), &facts(&all));
        let look = format!("nvidia-smi -q -d PIDS,PERFORMANCE,ECC -i {UUID}");
        assert!(found.concat().ends_with(&look), "{found:?}");
    }
    all.push(HostTotal {
        task: Some(Task {
            name: Some("bench.py (PID 4711)".to_owned()),
            cpu: None,
        }),
        metric: metric::GPU_SHARED_BY.parse().unwrap(),
        ..all[1].clone()
    });
    let found = for_culprit(&culprit(CauseClass::Device, Some(UUID)), &facts(&all));
    assert_eq!(
        found,
        ["give the GPU of rank 1 to it alone: stop or move bench.py (PID 4711)"]
    );
}

#[test]
fn without_evidence_of_damage_a_slow_gpu_costs_nobody_a_node() {
    let found = for_culprit(&culprit(CauseClass::Device, Some(UUID)), &[]);
    assert_eq!(
        found,
        [format!(
            "look for other processes on {UUID} of node-1, reduced clocks and memory errors: nvidia-smi -q -d \
             PIDS,PERFORMANCE,ECC -i {UUID}"
        )]
    );
    // What its host does is no cause: it was measured, and was not late.
    assert_eq!(advised(CauseClass::Device, metric::BLOCK_IO), found);
}

#[test]
fn a_uuid_that_is_none_never_becomes_part_of_a_command() {
    for uuid in ["GPU-1; reboot", "$(reboot)", "GPU-\u{1b}[2J", "0x1002"] {
        for totals in [Vec::new(), totals(metric::THROTTLED, 50_000.0)] {
            let found = for_culprit(&culprit(CauseClass::Device, Some(uuid)), &facts(&totals));
            assert!(!found.concat().contains(uuid), "{found:?}");
        }
    }
}

#[test]
fn causes_that_agents_find_too_get_the_same_words() {
    for (name, text) in [
        (metric::CGROUP_THROTTLED, advice::CGROUP_THROTTLING),
        (metric::INTERRUPT, advice::INTERRUPTS),
        (metric::BLOCK_IO, advice::BLOCK_IO),
        (metric::PAGE_FAULT, advice::PAGE_FAULTS),
        (metric::NETWORK_WAIT, advice::NETWORK),
    ] {
        assert_eq!(advised(CauseClass::Host, name), [text], "{name}");
    }
}

#[test]
fn every_class_without_evidence_gets_a_way_to_find_the_cause() {
    for class in CauseClass::ALL {
        let found = for_culprit(&culprit(class, None), &[]);
        assert!(!found.is_empty(), "{class:?}");
    }
}

#[test]
fn the_plugin_is_advised_only_where_no_gpu_is_timed() {
    let advised = |source| {
        let culprit = Culprit {
            source,
            ..culprit(CauseClass::Inconclusive, None)
        };
        for_culprit(&culprit, &[]).concat()
    };
    assert!(advised(Source::Host).contains("NCCL_PROFILER_PLUGIN"));
    assert!(!advised(Source::Device).contains("NCCL_PROFILER_PLUGIN"));
}

#[test]
fn a_hang_names_its_missing_ranks_and_no_others() {
    let mut hang = Condition::new(ConditionKind::Hang);
    hang.ranks = vec![Rank::new(3), Rank::new(7)];
    assert_eq!(
        for_condition(&hang),
        [
            "see where the threads of ranks 3, 7 are: fleet-echo host stacks has the samples of its agent; on its \
             host, fleet-agent stacks --pid PID"
        ]
    );
}

fn any_class() -> impl Strategy<Value = CauseClass> {
    select(CauseClass::ALL.to_vec())
}

proptest! {
    #[test]
    fn no_advice_without_evidence_that_stands_out(
        class in any_class(),
        own in vec(0.0..60_000.0, KINDS.len()),
        has_task in any::<bool>(),
    ) {
        let all: Vec<HostTotal> = KINDS.iter().zip(&own).flat_map(|(name, own)| totals(name, *own)).collect();
        let mut tasks = all.clone();
        if has_task {
            tasks.push(HostTotal {
                metric: metric::PREEMPTED_BY.parse().unwrap(),
                task: Some(Task { name: Some("cpu-hog".to_owned()), cpu: Some(3) }),
                ..all[1].clone()
            });
        }
        let facts = facts(&tasks);
        let who = culprit(class, Some(UUID));
        let found = for_culprit(&who, &facts);
        let fallback = for_culprit(&who, &[]);
        prop_assert!(!found.is_empty() && found.len() <= 4);
        // Every piece of advice is that of one fact that stands out, alone, or the fallback.
        let each: Vec<String> = facts
            .iter()
            .filter(|fact| fact.stands_out())
            .flat_map(|fact| for_culprit(&who, std::slice::from_ref(fact)))
            .collect();
        for text in &found {
            prop_assert!(each.contains(text) || found == fallback, "{text}");
        }
        let is_named = facts.iter().any(|fact| fact.stands_out() && !fact.tasks.is_empty());
        if !is_named {
            prop_assert!(!found.concat().contains("cpu-hog"));
        }
        if facts.iter().all(|fact| !fact.stands_out()) {
            prop_assert_eq!(found, fallback);
        }
    }
}
