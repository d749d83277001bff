use super::*;

const MEMBER_RANK: u32 = 1;

fn operation(pointer: u64, count: u64) -> Operation {
    Operation {
        op: Op::AllReduce,
        count,
        datatype: 7,
        comm: pointer,
        seq: None,
        peer: None,
    }
}

fn row(comm_id: u64, seq: u64, host_ns: u64, count: u64) -> GpuOperation {
    GpuOperation {
        ts_ns: host_ns + 1000,
        pid: 1,
        comm_id,
        rank: MEMBER_RANK,
        nranks: 4,
        nth: 0,
        op: Op::AllReduce,
        root: None,
        seq,
        nccl_seq: None,
        count,
        host_ns,
        timer: None,
        lost: 0,
    }
}

/// Matcher that already records calls, because of a row of an unrelated communicator.
fn recording_matcher() -> CommMatcher {
    let mut matcher = CommMatcher::default();
    assert_eq!(matcher.observe_row(&row(99, 5, 1, 1)), None);
    matcher
}

/// Records a call from `at_ns` for 10 ns.
fn call(matcher: &mut CommMatcher, at_ns: u64, pointer: u64, count: u64) {
    matcher.record_call(1, at_ns, Some(at_ns + 10), &operation(pointer, count));
}

#[test]
fn no_call_is_recorded_before_the_first_unmatched_row() {
    let mut matcher = CommMatcher::default();
    call(&mut matcher, 100, 0xa, 8);
    assert!(matcher.calls.is_empty() && matcher.issued.is_empty());
}

#[test]
fn rows_within_calls_determine_pointer_and_number() {
    let mut matcher = recording_matcher();
    for at in 0..4 {
        call(&mut matcher, 100 * at, 0xa, 8);
    }
    assert_eq!(
        matcher.observe_row(&row(7, 500, 105, 8)),
        None,
        "one row is not enough"
    );
    let found = matcher.observe_row(&row(7, 501, 205, 16)).unwrap();
    // The call at 100 ns has number 500, so the next one, after that at 300 ns, has number 503.
    let expected = Match {
        pointer: 0xa,
        next: 503,
    };
    assert_eq!(found, expected);
    call(&mut matcher, 400, 0xa, 8);
    assert_eq!(matcher.number(&operation(0xa, 8)), Some(503));
    assert_eq!(
        matcher.observe_row(&row(7, 502, 305, 8)),
        None,
        "already known"
    );
}

#[test]
fn a_call_in_flight_matches_a_row() {
    let mut matcher = recording_matcher();
    call(&mut matcher, 100, 0xa, 8);
    assert_eq!(matcher.observe_row(&row(7, 40, 105, 8)), None);
    matcher.record_call(1, 200, None, &operation(0xa, 8));
    matcher.record_return(1, 200, 90_000);
    call(&mut matcher, 100_000, 0xa, 8);
    let found = matcher.observe_row(&row(7, 41, 80_000, 8));
    assert_eq!(found.map(|found| found.next), Some(43));
}

#[test]
fn concurrent_calls_of_two_communicators_match_nothing() {
    let mut matcher = recording_matcher();
    for at in [100, 200, 300] {
        matcher.record_call(1, at, Some(at + 50), &operation(0xa, 8));
        matcher.record_call(2, at + 1, Some(at + 50), &operation(0xb, 8));
    }
    for (seq, host_ns) in [(10, 120), (11, 220), (12, 320)] {
        assert_eq!(matcher.observe_row(&row(7, seq, host_ns, 8)), None);
    }
}

#[test]
fn concurrent_calls_are_distinguished_by_their_operation() {
    let mut matcher = recording_matcher();
    for at in [100, 200] {
        matcher.record_call(1, at, Some(at + 50), &operation(0xa, 8));
        matcher.record_call(2, at + 1, Some(at + 50), &operation(0xb, 48));
    }
    assert_eq!(matcher.observe_row(&row(7, 10, 120, 16)), None);
    let found = matcher.observe_row(&row(7, 11, 220, 16));
    assert_eq!(found.map(|found| found.pointer), Some(0xa));
}

#[test]
fn operations_of_a_group_are_numbered_from_its_first_call() {
    let mut matcher = recording_matcher();
    let mut found = Vec::new();
    for group in 0..4_u64 {
        let at = 1000 * group;
        for call_of_group in 0..3 {
            call(&mut matcher, at + 100 * call_of_group, 0xa, 8);
        }
        // NCCL enqueues all of them when the group ends.
        for of_group in 0..3 {
            let row = row(7, 60 + 3 * group + of_group, at + 500 + of_group, 8);
            found.extend(matcher.observe_row(&row));
        }
    }
    // The second group begins with number 63, and the third one agrees: nine calls were issued by
    // then.
    let expected = Match {
        pointer: 0xa,
        next: 69,
    };
    assert_eq!(found, [expected]);
}

#[test]
fn inconsistent_rows_are_not_matched() {
    let mut matcher = recording_matcher();
    for at in 0..6 {
        call(&mut matcher, 100 * at, 0xa, 8);
    }
    for (seq, host_ns) in [(10, 105), (20, 205), (40, 305), (80, 405)] {
        assert_eq!(matcher.observe_row(&row(7, seq, host_ns, 8)), None);
    }
}

#[test]
fn an_unseen_call_shifts_the_number() {
    let mut matcher = recording_matcher();
    for at in 0..4 {
        call(&mut matcher, 100 * at, 0xa, 8);
    }
    matcher.observe_row(&row(7, 10, 5, 8));
    matcher.observe_row(&row(7, 11, 105, 8)).unwrap();
    // A call between the second and the third one was not seen.
    assert_eq!(matcher.observe_row(&row(7, 13, 205, 8)), None);
    let moved = matcher.observe_row(&row(7, 14, 305, 8));
    assert_eq!(moved.map(|found| found.next), Some(15));
}

#[test]
fn after_a_loss_rows_have_to_agree_again() {
    let mut matcher = recording_matcher();
    for at in 0..3 {
        call(&mut matcher, 100 * at, 0xa, 8);
    }
    matcher.observe_row(&row(7, 10, 5, 8));
    matcher.observe_row(&row(7, 11, 105, 8)).unwrap();
    assert_eq!(matcher.invalidate(), [0xa]);
    assert_eq!(matcher.number(&operation(0xa, 8)), None);
    for at in 5..7 {
        call(&mut matcher, 100 * at, 0xa, 8);
    }
    // The rows of calls before the loss arrive after it.
    assert_eq!(matcher.observe_row(&row(7, 12, 205, 8)), None);
    assert_eq!(matcher.observe_row(&row(7, 20, 505, 8)), None);
    let found = matcher.observe_row(&row(7, 21, 605, 8));
    assert_eq!(found.map(|found| found.next), Some(22));
}

#[test]
fn recorded_state_is_bounded() {
    let mut matcher = recording_matcher();
    for at in 0..2 * MAX_CALLS as u64 {
        call(&mut matcher, 100 * at, at, 8);
        matcher.observe_row(&row(at, 1, 100 * at + 1, 8));
    }
    assert!(matcher.calls.len() <= MAX_CALLS);
    assert!(matcher.issued.len() <= MAX_MEMBERS);
    assert!(matcher.rows.len() <= MAX_MEMBERS && matcher.candidates.len() <= MAX_MEMBERS);
}

/// State in memory of the communicator at 0xa, read at `at_ns`.
fn state(at_ns: u64, collectives: u64) -> CommState {
    CommState {
        from_ns: at_ns,
        ts_ns: at_ns + 2,
        pid: 1,
        pointer: 0xa,
        comm_id: 7,
        rank: MEMBER_RANK,
        nranks: 4,
        collectives,
    }
}

#[test]
fn counts_in_memory_that_advance_with_the_calls_are_accepted() {
    let mut matcher = CommMatcher::default();
    assert_eq!(
        matcher.observe_state(&state(10, 900)),
        None,
        "earlier calls were not seen"
    );
    call(&mut matcher, 100, 0xa, 8);
    assert_eq!(matcher.observe_state(&state(150, 901)), None);
    assert_eq!(
        matcher.observe_state(&state(160, 901)),
        None,
        "nothing was issued"
    );
    call(&mut matcher, 200, 0xa, 8);
    assert_eq!(matcher.observe_state(&state(250, 902)), None);
    call(&mut matcher, 300, 0xa, 8);
    // While the call at 300 ns is in flight, it may or may not be counted.
    assert_eq!(matcher.observe_state(&state(305, 903)), None);
    let found = matcher.observe_state(&state(350, 903));
    assert_eq!(found.map(|found| found.next), Some(903));
    call(&mut matcher, 400, 0xa, 8);
    assert_eq!(matcher.number(&operation(0xa, 8)), Some(903));
}

#[test]
fn counts_in_memory_that_do_not_advance_with_the_calls_are_refused() {
    let mut matcher = CommMatcher::default();
    for at in 1..20 {
        call(&mut matcher, 100 * at, 0xa, 8);
        assert_eq!(
            matcher.observe_state(&state(100 * at + 50, 900 + 2 * at)),
            None
        );
    }
}

#[test]
fn operations_that_nccl_builds_from_transfers_have_no_number() {
    let mut matcher = recording_matcher();
    for at in 0..3 {
        call(&mut matcher, 100 * at, 0xa, 8);
        matcher.observe_row(&row(7, 500 + at, 100 * at + 5, 8));
    }
    let all_to_all = Operation {
        op: Op::AllToAll,
        ..operation(0xa, 8)
    };
    matcher.record_call(1, 400, Some(410), &all_to_all);
    assert_eq!(matcher.number(&all_to_all), None);
    call(&mut matcher, 500, 0xa, 8);
    assert_eq!(matcher.number(&operation(0xa, 8)), Some(503));
}
