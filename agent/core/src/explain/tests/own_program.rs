//! A process without peers that runs its own program longer than before.

use super::*;

/// A period in which a process waits for its GPU for so many tenths, and is at a line of its own for the
/// rest, of which `blocked_tenths` are blocked.
fn period(ts_ns: u64, gpu_tenths: u64, blocked_tenths: u64, line: u32) -> Vec<Event> {
    let synchronize = [(PERIOD / 1000, 100 * gpu_tenths)];
    vec![
        calls(7, ts_ns, "cudaStreamSynchronize", &synchronize),
        blocked(7, ts_ns, BlockReason::Pipe, blocked_tenths * PERIOD / 10),
        stack(7, ts_ns, None, line, 80),
    ]
}

/// Chains of each of the periods of one process: tenths that it waits for its GPU, and is blocked.
fn explained(ranks: &mut Ranks, periods: &[(u64, u64)]) -> Vec<CausalChain> {
    let mut reports = Vec::new();
    for (gpu, blocked) in periods {
        let line = if *gpu < 5 { 71 } else { 12 };
        reports = ranks.period(|_, ts_ns| period(ts_ns, *gpu, *blocked, line));
    }
    reports.remove(0).chains
}

fn alone() -> Ranks {
    Ranks {
        ranks: 1,
        ..Ranks::new(0)
    }
}

#[test]
fn a_process_that_runs_its_own_program_longer_than_before_is_explained_with_the_line() {
    let chains = explained(&mut alone(), &[(8, 0), (7, 0), (8, 0), (1, 0), (1, 0)]);
    let [chain] = &chains[..] else {
        panic!("{chains:#?}")
    };
    assert_eq!(
        chain.to_string(),
        "running its own program longer than before for 87.5 % of its time"
    );
    assert_eq!(
        chain.links,
        ["it ran 90.000 ms between two calls of GPU libraries, before 2.500 ms"]
    );
    let place = chain.place.as_ref().unwrap();
    assert_eq!(place.lines(), ["train.py:71 in forward()"]);
}

#[test]
fn time_blocked_and_a_first_phase_without_calls_are_not_its_own_program() {
    let mut ranks = alone();
    // While it imports its libraries, it calls no GPU.
    ranks.periods(6, |_, ts_ns| vec![blocked(7, ts_ns, BlockReason::Pipe, 0)]);
    let chains = explained(&mut ranks, &[(8, 0), (8, 0), (8, 0), (1, 7), (1, 7)]);
    let found: Vec<Cause> = chains.iter().map(|chain| chain.cause).collect();
    assert_eq!(found, [Cause::Pipe]);
}

#[test]
fn a_difference_of_a_tenth_of_the_time_is_a_phase() {
    assert_eq!(
        explained(&mut alone(), &[(8, 0), (8, 0), (8, 0), (7, 0), (7, 0)]),
        []
    );
}

/// With larger batches, calls are fewer and each takes longer.
#[test]
fn more_work_per_call_is_no_longer_program() {
    let mut ranks = alone();
    let batches = |ts_ns, calls_each| {
        let waits = [(7 * PERIOD / 10 / calls_each, calls_each)];
        vec![
            calls(7, ts_ns, "cudaStreamSynchronize", &waits),
            blocked(7, ts_ns, BlockReason::Pipe, 0),
        ]
    };
    ranks.periods(4, |_, ts_ns| batches(ts_ns, 700));
    let reports = ranks.periods(4, |_, ts_ns| batches(ts_ns, 70));
    assert_eq!(reports[0].chains, []);
}

#[test]
fn a_program_that_stays_longer_for_five_minutes_is_the_usual_one() {
    let mut ranks = alone();
    ranks.periods(4, |_, ts_ns| period(ts_ns, 8, 0, 12));
    let is_explained = |reports: &[ProcessReport]| !reports[0].chains.is_empty();
    let reports = ranks.periods(30, |_, ts_ns| period(ts_ns, 1, 0, 71));
    assert!(is_explained(&reports));
    let reports = ranks.periods(8, |_, ts_ns| period(ts_ns, 1, 0, 71));
    assert!(!is_explained(&reports));
}

/// Launches are not measured, and block while the queue of the GPU is full.
#[test]
fn a_process_that_samples_find_in_a_library_of_the_gpu_is_not_in_its_program() {
    let mut ranks = alone();
    ranks.periods(4, |_, ts_ns| period(ts_ns, 8, 0, 12));
    let reports = ranks.periods(3, |_, ts_ns| {
        let mut events = period(ts_ns, 1, 0, 71);
        events.push(stack(7, ts_ns, Some("cudaLaunchKernel"), 71, 200));
        events
    });
    assert_eq!(reports[0].chains, []);
    // Stacks are sampled for ten seconds of a minute.
    for _ in 0..5 {
        let reports = ranks.period(|_, ts_ns| {
            let mut events = period(ts_ns, 1, 0, 71);
            events.truncate(2);
            events
        });
        assert_eq!(reports[0].chains, []);
    }
}

/// Of memory that is not pinned.
#[test]
fn a_process_that_samples_find_in_copies_is_explained_with_their_line_also_while_nothing_is_sampled()
 {
    let mut ranks = alone();
    ranks.periods(4, |_, ts_ns| period(ts_ns, 8, 0, 12));
    let copying = |ts_ns, samples| {
        let mut events = period(ts_ns, 1, 0, 71);
        events.truncate(2);
        if samples > 0 {
            events.push(stack(7, ts_ns, Some("cudaMemcpyAsync"), 71, samples));
            events.push(stack(7, ts_ns, None, 12, samples / 3));
        }
        events
    };
    let explained = |ranks: &mut Ranks, samples| {
        let mut reports = ranks.periods(2, |_, ts_ns| copying(ts_ns, samples));
        reports.remove(0).chains
    };
    assert_eq!(explained(&mut ranks, 0)[0].cause, Cause::OwnProgram);
    for samples in [60, 0, 0] {
        let chains = explained(&mut ranks, samples);
        let [chain] = &chains[..] else {
            panic!("{chains:#?}")
        };
        assert_eq!((chain.cause, chain.since_ns), (Cause::Copies, 4 * PERIOD));
        let place = chain.place.as_ref().unwrap();
        assert_eq!(
            place.lines(),
            ["cudaMemcpyAsync", "train.py:71 in forward()"]
        );
    }
    assert_eq!(
        explained(&mut ranks, 0)[0].links,
        ["it ran 90.000 ms between two measured calls, which copies are not, before 2.500 ms"]
    );
    ranks.periods(2, |_, ts_ns| period(ts_ns, 1, 0, 71));
    let reports = ranks.period(|_, ts_ns| period(ts_ns, 1, 0, 71));
    assert_eq!(reports[0].chains[0].cause, Cause::OwnProgram);
}

#[test]
fn a_rank_is_not_compared_with_its_past() {
    let mut ranks = Ranks::new(2);
    let waits = |rank: u32, ts_ns, tenths: u64| {
        let waits = [(PERIOD / 1000, 100 * tenths)];
        vec![
            calls(rank, ts_ns, "cudaStreamSynchronize", &waits),
            blocked(rank, ts_ns, BlockReason::Pipe, 0),
        ]
    };
    ranks.periods(4, |rank, ts_ns| waits(rank, ts_ns, 8));
    let reports = ranks.periods(3, |rank, ts_ns| {
        waits(rank, ts_ns, if rank == 0 { 1 } else { 9 })
    });
    assert!(reports.iter().all(|report| report.chains.is_empty()));
}
