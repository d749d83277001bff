//! Loops seen without the times of their GPUs: judged by the waits of their hosts.

use std::io::Cursor;

use echo_bench::loops::case::LoopCase;
use echo_bench::loops::fault::LoopFaultKind;
use echo_bench::loops::kind::Kind;
use echo_bench::loops::recorded::LOOPS;
use echo_bench::loops::table::watch;
use echo_bench::loops::verdict::{Expected, Judgement, Truth, Verdict};
use echo_bench::recordings::play;
use fleet_agent_core::event::Event;
use fleet_agent_sources::recording::Recording;

use crate::loops::clear;
use crate::repository;

fn judged_by_hosts(recording: Recording, truth: &Truth, block_ms: f64) -> Judgement {
    let is_of_host = |event: &Event| !matches!(event, Event::GpuOperation(_));
    let deliveries = play(recording, block_ms * 1e6, is_of_host).unwrap();
    let (alerts, lost_gpu_s) = watch(deliveries);
    Judgement::new(truth, &alerts, Some(lost_gpu_s))
}

fn judged(case: &LoopCase) -> Judgement {
    let generated = case.generate().unwrap();
    let recording = Recording::new("loop", Cursor::new(generated.bytes)).unwrap();
    judged_by_hosts(recording, &generated.truth, case.block_ms)
}

#[test]
fn a_late_host_is_named_with_its_cost() {
    for kind in [Kind::Ddp, Kind::Fsdp, Kind::Accumulation] {
        let judged = judged(&clear(kind, 1));
        assert_eq!(
            (judged.verdict, judged.is_cost_right),
            (Verdict::Right, Some(true)),
            "{}: {}",
            kind.name(),
            judged.summary
        );
    }
}

#[test]
fn slow_gpus_of_all_ranks_name_no_rank() {
    for kind in [Kind::Ddp, Kind::Pipeline] {
        let mut case = clear(kind, 2);
        if let Some(fault) = &mut case.fault {
            fault.kind = LoopFaultKind::Uniform;
        }
        let judged = judged(&case.calibrated());
        assert_ne!(judged.verdict, Verdict::Wrong, "{}", judged.summary);
    }
}

#[test]
fn no_innocent_rank_of_a_recorded_loop_is_named_without_its_gpu_times() {
    let ranks = LOOPS.iter().filter(|recorded| {
        matches!(
            recorded.expected,
            Expected::Rank(_) | Expected::RankOrCondition(_)
        )
    });
    for recorded in ranks.filter(|recorded| !recorded.name.starts_with("attached")) {
        let recording = recorded.open(&repository("testdata")).unwrap();
        let judged = judged_by_hosts(recording, &recorded.truth(), 1_000.0);
        let (verdict, summary) = (judged.verdict, judged.summary);
        assert_ne!(verdict, Verdict::Wrong, "{}: {summary}", recorded.name);
    }
}
