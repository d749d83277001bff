use super::*;
use crate::discover::{CommIndex, CommTable};
use crate::event::CommInit;
use crate::event::Operation;
use crate::signal::{CommId, OpClass, Value};

const MS: u64 = 1_000_000;

fn index() -> CommIndex {
    let mut table = CommTable::default();
    let init = CommInit {
        nranks: 4,
        rank: 1,
        unique_id: 7,
        comm: None,
    };
    table.record_init(1, init);
    table.find(1, 1).unwrap()
}

fn comm() -> Comm {
    Comm {
        id: CommId::new(7),
        rank: 1,
        nranks: 4,
        parent: None,
    }
}

fn issue(waits: &mut HostWaits, seq: u64, at_ms: u64) {
    let operation = Operation {
        op: Op::AllReduce,
        count: 8,
        datatype: 7,
        comm: 0,
        seq: None,
        peer: None,
    };
    let issued = Issued {
        at: OpRef {
            comm: index(),
            seq,
            op: Op::AllReduce,
        },
        signature: 0,
        class: OpClass::from_operation(operation),
        entry_ns: at_ms * MS,
        host_gap_ns: None,
        missed: 0,
        is_filled: false,
    };
    waits.record_issued(&issued, &comm());
}

fn wait(waits: &mut HostWaits, seq: u64, (from_ms, to_ms): (u64, u64)) {
    waits.begin_wait(1);
    let waited = Waited {
        tid: 1,
        entry_ns: from_ms * MS,
        return_ns: to_ms * MS,
        blocked_ns: (to_ms - from_ms) * MS,
        covers: Some(OpRef {
            comm: index(),
            seq,
            op: Op::AllReduce,
        }),
    };
    waits.record_wait(&waited, Some(&comm()));
}

/// Steps of 100 ms with four operations, which the host enqueues in the first 20 ms of a step, or
/// `late_ms` later, and then waits for.
fn steps(n: u64, late_ms: u64) -> HostWaits {
    let mut waits = HostWaits::default();
    for step in 0..n {
        let begin = 1_000 + 100 * step;
        for nth in 0..4 {
            issue(&mut waits, 4 * step + nth, begin + late_ms + 5 * nth);
        }
        let from = begin + late_ms + 20;
        wait(&mut waits, 4 * step + 3, (from, begin + 100));
    }
    waits
}

/// First and last operation of each block, the number of its operations, the sum of their waits in
/// milliseconds, and its end in milliseconds.
fn blocks(waits: &mut HostWaits) -> Vec<(u64, u64, u64, f64, u64)> {
    let points = waits.take_points();
    let of_point = |point: &Point| {
        let Value::Durations {
            summary,
            lead: Some(_),
        } = &point.value
        else {
            panic!("{point:?}");
        };
        assert_eq!(point.block.source, Source::Host);
        let block = &point.block;
        let (first, last) = (block.seq_first, block.seq_last);
        let end_ms = point.time_ns / MS;
        (first, last, summary.count, summary.sum_ms, end_ms)
    };
    points.iter().map(of_point).collect()
}

#[test]
fn waits_are_summed_over_blocks_of_all_operations() {
    let blocks = blocks(&mut steps(200, 0));
    let mut next = 0;
    for (first, last, count, ..) in &blocks {
        assert_eq!((*first, *count), (next, last - first + 1));
        next = last + 1;
    }
    let waited: f64 = blocks.iter().map(|(.., sum_ms, _)| sum_ms).sum();
    assert!((waited / f64::from(u32::try_from(next / 4).unwrap()) - 80.0).abs() < 1.0);
}

/// First operation of each block, and the mean instant at which its operations were enqueued,
/// milliseconds.
fn enqueued(waits: &mut HostWaits) -> Vec<(u64, f64)> {
    let points = waits.take_points();
    let of_point = |point: &Point| {
        let Value::Durations {
            summary,
            lead: Some(lead),
        } = &point.value
        else {
            panic!("{point:?}");
        };
        let mean_ms = lead.sum_ms / f64::from(u32::try_from(summary.count).unwrap());
        let end_ms = f64::from(u32::try_from(point.time_ns / MS).unwrap());
        (point.block.seq_first, end_ms - mean_ms)
    };
    points.iter().map(of_point).collect()
}

#[test]
fn a_host_that_enqueues_late_shows_by_the_leads_of_its_blocks() {
    let (on_time, late) = (enqueued(&mut steps(200, 0)), enqueued(&mut steps(200, 50)));
    assert!(on_time.len() > 10);
    for (on_time, late) in on_time.iter().zip(&late).skip(2) {
        assert_eq!(on_time.0, late.0);
        assert!(
            (late.1 - on_time.1 - 50.0).abs() < 1.0,
            "{on_time:?} {late:?}"
        );
    }
}

#[test]
fn operations_that_are_never_waited_for_have_the_times_between_them_as_leads() {
    let mut waits = HostWaits::default();
    for seq in 0..4_000 {
        issue(&mut waits, seq, 1_000 + 10 * seq);
        waits.tick((1_000 + 10 * seq) * MS);
    }
    let blocks = enqueued(&mut waits);
    let (first, mean_ms) = blocks[blocks.len() - 2];
    let (next, _) = blocks[blocks.len() - 1];
    let middle = f64::from(u32::try_from(first + next - 1).unwrap()) / 2.0;
    assert!(
        10.0_f64.mul_add(-middle, mean_ms - 1_000.0).abs() < 1.0,
        "{mean_ms} {middle}"
    );
}

#[test]
fn the_last_to_enqueue_waits_for_the_shortest_time() {
    let sum = |late_ms| -> f64 {
        let blocks = blocks(&mut steps(200, late_ms));
        blocks.iter().map(|(.., sum_ms, _)| sum_ms).sum()
    };
    let (on_time, late) = (sum(0), sum(50));
    assert!(
        (late / on_time - 30.0 / 80.0).abs() < 0.01,
        "{late} {on_time}"
    );
}

#[test]
fn operations_end_evenly_between_two_synchronisations() {
    let blocks = blocks(&mut steps(200, 0));
    // A quarter of a step of 100 ms each, although all are enqueued at its beginning.
    let expected = |last: u64| 1_000 + 25 * (last + 1);
    for (_, last, _, _, end_ms) in blocks.iter().skip(1) {
        assert!(end_ms.abs_diff(expected(*last)) <= 10, "{last}: {end_ms}");
    }
}

#[test]
fn operations_without_a_synchronisation_end_when_they_are_enqueued() {
    let mut waits = HostWaits::default();
    for seq in 0..200 {
        issue(&mut waits, seq, 1_000 + 20 * seq);
    }
    let blocks = blocks(&mut waits);
    assert!(blocks.len() > 4);
    for (_, last, _, sum_ms, end_ms) in blocks {
        assert_eq!((sum_ms, end_ms), (0.0, 1_000 + 20 * last));
    }
}

#[test]
fn nothing_is_reported_while_the_host_waits() {
    let mut waits = HostWaits::default();
    issue(&mut waits, 0, 2_010);
    waits.begin_wait(1);
    waits.tick(9_000 * MS);
    assert_eq!(blocks(&mut waits), []);
    wait(&mut waits, 0, (2_020, 9_010));
    waits.tick(10_500 * MS);
    let waited: f64 = blocks(&mut waits).iter().map(|block| block.3).sum();
    assert!((waited - 6_990.0).abs() < 1.0, "{waited}");
}

#[test]
fn a_process_whose_gpu_is_timed_reports_no_waits() {
    let mut waits = steps(10, 0);
    blocks(&mut waits);
    waits.disable();
    issue(&mut waits, 40, 2_010);
    wait(&mut waits, 40, (2_020, 2_090));
    waits.finish();
    assert_eq!(blocks(&mut waits), []);
}
