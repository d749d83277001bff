//! Loops seen without the times of their GPUs: judged by the waits of their hosts.

use echo_bench::loops::case::LoopCase;
use echo_bench::loops::fault::LoopFaultKind;
use echo_bench::loops::kind::Kind;
use echo_bench::loops::recorded::LOOPS;
use echo_bench::loops::table::{self, Sight};
use echo_bench::loops::verdict::{Expected, Judgement, Verdict};

use crate::loops::clear;
use crate::repository;

fn judged(case: &LoopCase) -> Judgement {
    table::run(case, Sight::Hosts).unwrap().echo
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
        for judged in table::run_recorded(recorded, &repository("testdata"), Sight::Hosts).unwrap()
        {
            let (verdict, summary) = (judged.echo.verdict, judged.echo.summary);
            assert_ne!(verdict, Verdict::Wrong, "{}: {summary}", judged.name);
        }
    }
}
