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

fn switch(at_ms: u64, prev_tid: u32, reason: SwitchReason, next_tid: u32) -> ContextSwitch {
    ContextSwitch {
        ts_ns: at_ms * MS,
        prev_tid,
        reason,
        next_tid,
    }
}

/// A tracker that knows thread 1, which called at time 0.
fn tracker() -> ActivityTracker {
    let mut tracker = ActivityTracker::default();
    tracker.record_call(&call(0, 0, CallKind::Other));
    tracker
}

fn off_cpu(off_cpu_ms: u64, preempted_ms: u64, preemptions: u64) -> OffCpuTime {
    OffCpuTime {
        off_cpu_ns: off_cpu_ms * MS,
        preempted_ns: preempted_ms * MS,
        preemptions,
        run_queue_ns: None,
    }
}

#[test]
fn a_preempted_thread_could_have_run_and_a_blocked_one_could_not() {
    let mut tracker = tracker();
    tracker.record_switch(&switch(1, 1, SwitchReason::Preempted, 9));
    tracker.record_switch(&switch(5, 9, SwitchReason::Blocked, 1));
    tracker.record_switch(&switch(6, 1, SwitchReason::Blocked, 9));
    tracker.record_switch(&switch(8, 9, SwitchReason::Preempted, 1));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(2, 4, 1)));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(0, 0, 0)));
}

#[test]
fn a_call_shows_that_a_thread_runs_where_the_switch_was_not_seen() {
    let mut tracker = tracker();
    tracker.record_switch(&switch(1, 1, SwitchReason::Blocked, 0));
    tracker.record_call(&call(9, 0, CallKind::Other));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(8, 0, 0)));
}

#[test]
fn the_return_of_a_call_shows_that_a_thread_runs() {
    let mut tracker = tracker();
    tracker.record_call(&call(1, 5, CallKind::Other));
    tracker.record_switch(&switch(2, 1, SwitchReason::Blocked, 0));
    tracker.record_call(&call(20, 0, CallKind::Other));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(4, 0, 0)));
}

#[test]
fn a_span_off_cpu_without_a_known_end_is_ignored() {
    let mut tracker = tracker();
    tracker.record_switch(&switch(1, 1, SwitchReason::Blocked, 0));
    tracker.record_switch(&switch(10, 1, SwitchReason::Blocked, 0));
    tracker.record_switch(&switch(12, 0, SwitchReason::Blocked, 1));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(2, 0, 0)));
}

#[test]
fn blocking_in_a_synchronization_is_a_wait_and_preemption_is_not() {
    let mut tracker = tracker();
    tracker.record_call(&call(1, 20, CallKind::Synchronize));
    tracker.record_switch(&switch(2, 1, SwitchReason::Blocked, 9));
    tracker.record_switch(&switch(7, 9, SwitchReason::Blocked, 1));
    tracker.record_switch(&switch(8, 1, SwitchReason::Preempted, 9));
    tracker.record_switch(&switch(11, 9, SwitchReason::Blocked, 1));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(0, 3, 1)));
}

#[test]
fn threads_that_never_called_do_not_count() {
    let mut tracker = tracker();
    tracker.record_switch(&switch(1, 5, SwitchReason::Preempted, 6));
    tracker.record_switch(&switch(9, 6, SwitchReason::Preempted, 5));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(0, 0, 0)));
}

#[test]
fn an_exited_thread_is_removed() {
    let mut tracker = tracker();
    tracker.record_switch(&switch(1, 1, SwitchReason::Exited, 9));
    tracker.record_switch(&switch(9, 9, SwitchReason::Blocked, 1));
    assert_eq!(tracker.take_activity().threads, Some(off_cpu(0, 0, 0)));
    assert!(tracker.threads.is_empty());
}

#[test]
fn counters_are_unknown_until_first_seen_and_zero_afterwards() {
    let mut tracker = tracker();
    assert_eq!(tracker.take_activity(), Activity::default());
    tracker.record_launches(3);
    assert_eq!(tracker.take_activity().launches, Some(3));
    assert_eq!(tracker.take_activity().launches, Some(0));
}

#[test]
fn copies_within_the_device_are_not_between_host_and_device() {
    let mut tracker = tracker();
    let copies = [
        (100, Direction::ToDevice),
        (7000, Direction::WithinDevice),
        (20, Direction::ToHost),
        (3, Direction::Unspecified),
    ];
    for (bytes, direction) in copies {
        let copy = MemoryCopy { bytes, direction };
        tracker.record_call(&call(1, 0, CallKind::MemoryCopy(copy)));
    }
    let copied = tracker.take_activity().memcpy_bytes.unwrap();
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
                0 => tracker.record_call(&Call { tid: prev_tid, ..call(at_ms, dur_ms, CallKind::Synchronize) }),
                1 => tracker.record_switch(&switch(at_ms, prev_tid, SwitchReason::Exited, next_tid)),
                2 => tracker.record_switch(&switch(at_ms, prev_tid, SwitchReason::Blocked, next_tid)),
                _ => tracker.record_switch(&switch(at_ms, prev_tid, SwitchReason::Preempted, next_tid)),
            }
        }
        let sum = tracker.take_activity().threads.unwrap_or_default();
        prop_assert!(sum.off_cpu_ns + sum.preempted_ns <= 3 * 1050 * MS);
    }
}
