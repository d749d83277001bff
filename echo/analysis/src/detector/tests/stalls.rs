//! Cost of stalls.

use echo_core::model::event::{Reading, StoredEvent};
use fleet_proto::metric;

use super::hangs::{N_RANKS, blocked, detector, reports};
use crate::simulated::{Job, Measured, OPS_PER_BLOCK, instant};

/// Blocks of all ranks with these lengths in milliseconds. A block is sent when it ends.
/// Returns the end of the last one as well.
pub(super) fn paced(first: u64, begin_ms: f64, lengths_ms: &[f64]) -> (Vec<StoredEvent>, f64) {
    let job = Job::with_ranks(N_RANKS);
    let n_blocks = first + lengths_ms.len() as u64;
    let mut ends = Vec::new();
    let mut now_ms = begin_ms;
    for length_ms in lengths_ms {
        now_ms += length_ms;
        ends.push((now_ms, *length_ms));
    }
    let mut events = Vec::new();
    for mut stored in job.events(n_blocks, |_, _| Measured::HEALTHY) {
        let seqs = stored.event.block.as_ref().and_then(|block| block.seqs);
        let index = seqs.unwrap().first() / OPS_PER_BLOCK;
        let Some((end_ms, length_ms)) = index
            .checked_sub(first)
            .and_then(|index| ends.get(usize::try_from(index).unwrap()))
        else {
            continue;
        };
        stored.received = instant(*end_ms);
        stored.event.start = Some(instant(end_ms - length_ms));
        stored.event.timestamp = instant(*end_ms);
        if stored.event.metric.as_str() == metric::PERIOD {
            stored.event.metric = metric::ELAPSED.parse().unwrap();
            stored.event.reading = Reading::Double(*length_ms);
        }
        events.push(stored);
    }
    (events, now_ms)
}

#[test]
fn the_time_of_a_stall_after_its_last_report_is_attributed_when_its_block_ends() {
    let mut detector = detector();
    let (healthy, stopped_ms) = paced(0, 0.0, &[200.0; 200]);
    detector.observe(&healthy);
    let begin_s = 40;
    assert!((stopped_ms - f64::from(begin_s) * 1e3).abs() < 1e-6);
    detector.observe(&reports(begin_s, begin_s + 1, |_| 8_001));
    // According to the last report it has lasted for 9 s. It ends 4 s later.
    let mut lost = detector
        .observe(&blocked(
            begin_s,
            reports(begin_s + 1, begin_s + 10, |_| 8_001),
        ))
        .lost;
    let (after, _) = paced(200, stopped_ms, &[13_200.0, 200.0, 200.0]);
    lost.extend(detector.observe(&after).lost);
    let gpu_s = lost.iter().map(|row| row.lost_gpu_ms).sum::<f64>() / 1e3;
    let expected = 13.0 * f64::from(N_RANKS);
    assert!((gpu_s / expected - 1.0).abs() < 0.02, "{gpu_s} {expected}");
    let intervals = lost
        .windows(2)
        .map(|pair| (pair[0].interval, pair[1].interval));
    assert!(
        intervals
            .into_iter()
            .all(|(one, next)| one.to() <= next.from() || one == next)
    );
}
