//! Pipelines of processes that are older than the agent.

use std::collections::BTreeSet;

use super::{MS, Pipeline, call, init, operation, pipeline};
use crate::event::{GpuOperation, GpuSpan, Op};
use crate::pipeline::attach::JOB_SEARCH_NS;
use crate::signal::CommId;

/// Issues the `seq`-th collective of the process's `nth` communicator, and returns the job once it is
/// settled.
fn run(pipeline: &mut Pipeline, at_ms: u64, nth: u32, seq: u64) -> Option<String> {
    run_op(pipeline, Op::AllReduce, at_ms, nth, seq)
}

fn run_op(pipeline: &mut Pipeline, op: Op, at_ms: u64, nth: u32, seq: u64) -> Option<String> {
    let entry_ns = at_ms * MS;
    let issued = operation(u64::from(nth) + 1, op);
    pipeline.on_call(&call(entry_ns, MS / 2, issued));
    pipeline.on_gpu_operation(&GpuOperation {
        ts_ns: entry_ns + 3 * MS,
        pid: 1,
        comm_id: 0xA0 + u64::from(nth),
        rank: 0,
        nranks: 4,
        nth,
        op,
        root: None,
        seq,
        nccl_seq: None,
        count: 1,
        host_ns: entry_ns + MS / 4,
        timer: Some(GpuSpan {
            start_ns: entry_ns + MS,
            stop_ns: entry_ns + 2 * MS,
        }),
        lost: 0,
    });
    let now_ns = entry_ns + 5 * MS;
    pipeline.tick(now_ns);
    let is_settled = pipeline.is_job_settled(now_ns);
    is_settled.then(|| pipeline.job().unwrap().to_string())
}

#[test]
fn a_late_agent_names_the_job_once_it_knows_the_oldest_communicator() {
    let mut pipeline = pipeline();
    let mut named = BTreeSet::new();
    // The first steps use a younger communicator only.
    for seq in 0..20 {
        named.extend(run(&mut pipeline, 10 * seq, 1, seq));
    }
    assert_eq!(named, BTreeSet::new());
    for seq in 20..40 {
        named.extend(run(&mut pipeline, 10 * seq, 1, seq));
        named.extend(run(&mut pipeline, 10 * seq + 5, 0, seq));
    }
    assert_eq!(named, BTreeSet::from(["00000000000000a0".to_owned()]));
}

#[test]
fn recorded_transfers_name_a_job_that_has_nothing_else_and_are_not_unknown() {
    let mut pipeline = pipeline();
    let mut named = BTreeSet::new();
    for seq in 0..1_200 {
        named.extend(run_op(&mut pipeline, Op::Send, 10 * seq, 0, seq));
    }
    assert_eq!(named, BTreeSet::from(["00000000000000a0".to_owned()]));
    assert_eq!(
        pipeline.unknown_comm_ops(),
        1,
        "the one before the first record"
    );
}

#[test]
fn a_communicator_that_is_created_names_the_job_before_recorded_transfers() {
    for created_after in [0, 500] {
        let mut pipeline = pipeline();
        for seq in 0..1_200 {
            if seq == created_after {
                let at_ns = 10 * seq * MS;
                pipeline.on_call(&call(at_ns, 1, init(7, 4)));
                pipeline.on_call(&call(at_ns + 1, 1, operation(9, Op::AllReduce)));
            }
            run_op(&mut pipeline, Op::Send, 10 * seq + 1, 0, seq);
        }
        assert_eq!(pipeline.job(), Some(CommId::new(7)), "{created_after}");
    }
}

#[test]
fn a_job_that_does_not_use_its_oldest_communicator_is_named_after_ten_seconds() {
    let mut pipeline = pipeline();
    let named_at = |(seq, job): (u64, Option<String>)| job.map(|job| (10 * seq, job));
    let mut jobs = (0..1_200).map(|seq| (seq, run(&mut pipeline, 10 * seq, 1, seq)));
    let (at_ms, job) = jobs.find_map(named_at).unwrap();
    assert_eq!(job, "00000000000000a1");
    let search_ms = JOB_SEARCH_NS / MS;
    assert!((search_ms..search_ms + 20).contains(&at_ms), "{at_ms}");
}
