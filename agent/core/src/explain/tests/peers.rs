//! Which processes of a host are ranks of one job.

use super::own_code::native_stack;
use super::*;
use crate::event::{Call, CallKind, CommInit, CommState};

/// Rank joining a communicator of all ranks of its job.
fn joins(pid: u32, nranks: u32, unique_id: u64) -> Event {
    let init = CommInit {
        nranks,
        rank: pid % nranks,
        unique_id,
        comm: None,
    };
    Event::Call(Call {
        ts_ns: 1,
        dur_ns: 0,
        pid,
        tid: pid,
        kind: CallKind::CommInit(init),
    })
}

/// The same communicator in the memory of a rank that joined it before.
fn has_joined(pid: u32, nranks: u32, comm_id: u64) -> Event {
    Event::CommState(CommState {
        from_ns: 1,
        ts_ns: 1,
        pid,
        pointer: 1,
        comm_id,
        rank: pid % nranks,
        nranks,
        collectives: 9,
    })
}

#[test]
fn ranks_of_two_jobs_of_one_size_and_without_a_name_are_not_compared() {
    // Two jobs of two ranks each, whose programs have other lines.
    let events = |pid: u32, ts_ns: u64| {
        let line = 17 + pid / 2;
        vec![native_stack(pid, ts_ns, "/lib/libc.so.6", line, 180)]
    };
    let causes_of = |ranks: u32, comms: [&dyn Fn(u32) -> Event; 2]| {
        let mut host = Ranks::new(4);
        for pid in 0..4 {
            let process = Process {
                pid,
                rank: pid % ranks,
                world_size: ranks,
            };
            host.explainer.add_process(process, 0);
            let comm = comms[usize::from(pid >= 2)];
            host.explainer.on_event(&comm(pid));
        }
        let reports = host.periods(3, events);
        reports.iter().flat_map(causes).collect::<Vec<Cause>>()
    };
    let joins = |ranks, comm| move |pid| joins(pid, ranks, comm);
    let has_joined = |ranks, comm| move |pid| has_joined(pid, ranks, comm);
    assert_eq!(causes_of(2, [&joins(2, 1), &joins(2, 2)]), []);
    assert_eq!(causes_of(2, [&has_joined(2, 1), &has_joined(2, 2)]), []);
    // The hash of a call is none in memory, but processes of one rank are of two jobs.
    assert_eq!(causes_of(2, [&joins(2, 1), &has_joined(2, 2)]), []);
    let started_in_between = |pid| match pid {
        0 => has_joined(2, 1)(pid),
        1 => joins(2, 2)(pid),
        _ => joins(2, 3)(pid),
    };
    assert_eq!(causes_of(2, [&started_in_between, &started_in_between]), []);
    // As ranks of one job they are different, also where the agent started in between.
    assert_eq!(
        causes_of(4, [&joins(4, 1), &joins(4, 1)]),
        [Cause::OwnCode; 4]
    );
    assert_eq!(
        causes_of(4, [&joins(4, 1), &has_joined(4, 2)]),
        [Cause::OwnCode; 4]
    );
    // A communicator of unknown origin tells nothing.
    assert_eq!(
        causes_of(4, [&joins(4, 0), &joins(4, 2)]),
        [Cause::OwnCode; 4]
    );
}
