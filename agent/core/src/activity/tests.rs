use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn call(at_ms: u64, dur_ms: u64, kind: CallKind) -> Call {
    Call {
        ts_ns: at_ms * MS,
        dur_ns: dur_ms * MS,
        pid: 1,
        tid: 1,
        kind,
    }
}

fn switch(at_ms: u64, prev_tid: u32, prev: Left, next_tid: u32) -> ContextSwitch {
    ContextSwitch {
        ts_ns: at_ms * MS,
        prev_tid,
        prev,
        next_tid,
    }
}

/// A tracker that knows thread 1, which called at time 0.
fn tracker() -> ActivityTracker {
    let mut tracker = ActivityTracker::default();
    tracker.call(&call(0, 0, CallKind::Other));
    tracker
}

fn absence(off_cpu_ms: u64, preempted_ms: u64, preemptions: u64) -> Absence {
    Absence {
        off_cpu_ns: off_cpu_ms * MS,
        preempted_ns: preempted_ms * MS,
        preemptions,
        run_queue_ns: None,
    }
}

#[test]
fn a_preempted_thread_could_have_run_and_a_blocked_one_could_not() {
    let mut tracker = tracker();
    tracker.switched(&switch(1, 1, Left::Preempted, 9));
    tracker.switched(&switch(5, 9, Left::Blocked, 1));
    tracker.switched(&switch(6, 1, Left::Blocked, 9));
    tracker.switched(&switch(8, 9, Left::Preempted, 1));
    assert_eq!(tracker.take().threads, Some(absence(2, 4, 1)));
    assert_eq!(tracker.take().threads, Some(absence(0, 0, 0)));
}

#[test]
fn a_call_shows_that_a_thread_runs_where_the_switch_was_not_seen() {
    let mut tracker = tracker();
    tracker.switched(&switch(1, 1, Left::Blocked, 0));
    tracker.call(&call(9, 0, CallKind::Other));
    assert_eq!(tracker.take().threads, Some(absence(8, 0, 0)));
}

#[test]
fn the_return_of_a_call_shows_it_too() {
    let mut tracker = tracker();
    tracker.call(&call(1, 5, CallKind::Other));
    tracker.switched(&switch(2, 1, Left::Blocked, 0));
    tracker.call(&call(20, 0, CallKind::Other));
    assert_eq!(tracker.take().threads, Some(absence(4, 0, 0)));
}

#[test]
fn an_absence_without_a_known_end_is_left_out() {
    let mut tracker = tracker();
    tracker.switched(&switch(1, 1, Left::Blocked, 0));
    tracker.switched(&switch(10, 1, Left::Blocked, 0));
    tracker.switched(&switch(12, 0, Left::Blocked, 1));
    assert_eq!(tracker.take().threads, Some(absence(2, 0, 0)));
}

#[test]
fn blocked_in_a_synchronisation_is_a_wait_and_preempted_in_one_is_not() {
    let mut tracker = tracker();
    tracker.call(&call(1, 20, CallKind::Synchronize));
    tracker.switched(&switch(2, 1, Left::Blocked, 9));
    tracker.switched(&switch(7, 9, Left::Blocked, 1));
    tracker.switched(&switch(8, 1, Left::Preempted, 9));
    tracker.switched(&switch(11, 9, Left::Blocked, 1));
    assert_eq!(tracker.take().threads, Some(absence(0, 3, 1)));
}

#[test]
fn threads_that_never_called_do_not_count() {
    let mut tracker = tracker();
    tracker.switched(&switch(1, 5, Left::Preempted, 6));
    tracker.switched(&switch(9, 6, Left::Preempted, 5));
    assert_eq!(tracker.take().threads, Some(absence(0, 0, 0)));
}

#[test]
fn a_thread_that_ended_leaves_nothing_behind() {
    let mut tracker = tracker();
    tracker.switched(&switch(1, 1, Left::Gone, 9));
    tracker.switched(&switch(9, 9, Left::Blocked, 1));
    assert_eq!(tracker.take().threads, Some(absence(0, 0, 0)));
    assert!(tracker.threads.is_empty());
}

#[test]
fn what_a_source_never_shows_is_unknown_and_what_it_showed_once_is_zero() {
    let mut tracker = tracker();
    assert_eq!(tracker.take(), Activity::default());
    tracker.launched(3);
    assert_eq!(tracker.take().launches, Some(3));
    assert_eq!(tracker.take().launches, Some(0));
}

#[test]
fn copies_within_the_device_are_not_between_host_and_device() {
    let mut tracker = tracker();
    let copies = [
        (100, Direction::ToDevice),
        (7000, Direction::Within),
        (20, Direction::ToHost),
        (3, Direction::Unnamed),
    ];
    for (bytes, direction) in copies {
        let copy = MemoryCopy { bytes, direction };
        tracker.call(&call(1, 0, CallKind::MemoryCopy(copy)));
    }
    let copied = tracker.take().memcpy_bytes.unwrap();
    assert_eq!(
        (copied.to_device, copied.to_host, copied.total()),
        (100, 20, 123)
    );
}

proptest! {
    #[test]
    fn no_thread_is_away_longer_than_time_passed(
        steps in prop::collection::vec((0_u64..1000, 0_u64..50, 0_u32..3, 0_u32..3, 0_u8..4), 0..200),
    ) {
        let mut tracker = ActivityTracker::default();
        let mut steps = steps;
        steps.sort_by_key(|step| step.0);
        for (at_ms, dur_ms, prev_tid, next_tid, kind) in steps {
            match kind {
                0 => tracker.call(&Call { tid: prev_tid, ..call(at_ms, dur_ms, CallKind::Synchronize) }),
                1 => tracker.switched(&switch(at_ms, prev_tid, Left::Gone, next_tid)),
                2 => tracker.switched(&switch(at_ms, prev_tid, Left::Blocked, next_tid)),
                _ => tracker.switched(&switch(at_ms, prev_tid, Left::Preempted, next_tid)),
            }
        }
        let sum = tracker.take().threads.unwrap_or_default();
        prop_assert!(sum.off_cpu_ns + sum.preempted_ns <= 3 * 1050 * MS);
    }
}
