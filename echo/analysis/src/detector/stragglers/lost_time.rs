//! Lost time of an incident, by node and interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::{IncidentId, NodeId, RankInJob};
use echo_core::model::detector_output::LostTime;
use echo_core::units::{Nanos, Window};

use super::job_context::JobContext;
use crate::cost::INTERVAL_NS;
use crate::straggler::incident::{Incident as Found, Piece};

/// Smallest change that is published, GPU-milliseconds.
const LEAST_MS: f64 = 0.5;

/// GPU time lost to an incident, by the beginning of the interval.
pub(super) type ByInterval = BTreeMap<Nanos, Lost>;

/// GPU time lost in an interval, milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lost {
    of_all: f64,
    /// The part that all ranks would have waited if none was named.
    waited: f64,
}

/// Parts of pieces that are in none of these times.
pub(super) fn outside(pieces: &[Piece], times: &[Window]) -> Vec<Piece> {
    let mut parts = pieces.to_vec();
    for time in times {
        parts = parts
            .iter()
            .flat_map(|piece| [before(piece, time.from()), after(piece, time.to())])
            .flatten()
            .collect();
    }
    parts
}

/// Loss of all pieces, GPU-seconds.
pub(super) fn lost(pieces: &[Piece]) -> f64 {
    pieces.iter().map(|piece| piece.lost_gpu_s).sum()
}

fn before(piece: &Piece, end: Nanos) -> Option<Piece> {
    part(piece, piece.from, piece.to.min(end))
}

fn after(piece: &Piece, begin: Nanos) -> Option<Piece> {
    part(piece, piece.from.max(begin), piece.to)
}

fn part(piece: &Piece, from: Nanos, to: Nanos) -> Option<Piece> {
    let share = to.millis_since(from) / piece.to.millis_since(piece.from);
    (share > 0.0).then_some(Piece {
        from,
        to,
        lost_gpu_s: piece.lost_gpu_s * share.min(1.0),
        ..*piece
    })
}

/// Distributes the pieces of an incident over intervals.
pub(super) fn by_interval(pieces: &[Piece]) -> ByInterval {
    let mut lost = ByInterval::new();
    for piece in pieces {
        let length_ms = piece.to.millis_since(piece.from);
        let mut begin = piece.from.value().div_euclid(INTERVAL_NS) * INTERVAL_NS;
        while begin < piece.to.value() && length_ms > 0.0 {
            let interval = (Nanos::new(begin), Nanos::new(begin + INTERVAL_NS));
            let inside = interval
                .1
                .min(piece.to)
                .millis_since(interval.0.max(piece.from));
            let of_all = 1e3 * piece.lost_gpu_s * inside / length_ms;
            let sum: &mut Lost = lost.entry(interval.0).or_default();
            sum.of_all += of_all;
            sum.waited += piece.waited * of_all;
            begin += INTERVAL_NS;
        }
    }
    lost
}

/// Rows of the intervals whose loss differs from what was published before. Intervals that are not
/// part of the incident any more become zero.
pub(super) fn rows(
    context: &JobContext<'_>,
    found: &Found,
    (id, before, now): (IncidentId, &ByInterval, &ByInterval),
) -> Vec<LostTime> {
    let mut changed = ByInterval::new();
    changed.extend(before.keys().map(|begin| (*begin, Lost::default())));
    changed.extend(now.iter().map(|(begin, lost)| (*begin, *lost)));
    let is_new = |begin: &Nanos, lost: &Lost| {
        let known = before.get(begin).copied().unwrap_or_default();
        (lost.of_all - known.of_all).abs() >= LEAST_MS
    };
    let groups = groups(context, found);
    changed
        .iter()
        .filter(|(begin, lost)| is_new(begin, lost))
        .flat_map(|(begin, lost)| of_interval(context, (id, *begin, *lost), &groups))
        .collect()
}

/// Ranks by their node and the model of its GPUs.
type Groups = BTreeMap<(NodeId, Option<Arc<str>>), Group>;

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    ranks: u32,
    /// Of these, the ranks that the finding names.
    named: u32,
}

fn groups(context: &JobContext<'_>, found: &Found) -> Groups {
    let named = context.named(&found.finding);
    let mut groups = Groups::new();
    for origin in &context.members {
        let key = (origin.node.clone(), origin.gpu_model.clone());
        let group = groups.entry(key).or_default();
        let rank = origin.rank.map(RankInJob::rank);
        group.ranks += 1;
        group.named += u32::from(rank.is_some_and(|rank| named.contains(&rank)));
    }
    groups
}

fn of_interval(
    context: &JobContext<'_>,
    (incident, begin, lost): (IncidentId, Nanos, Lost),
    groups: &Groups,
) -> Vec<LostTime> {
    let end = begin.offset(INTERVAL_NS);
    let Some(interval) = Window::new(begin, end) else {
        return Vec::new();
    };
    let ranks: u32 = groups.values().map(|group| group.ranks).sum();
    let has_culprit = groups.values().any(|group| group.named > 0);
    let per_rank = |ms: f64| ms / f64::from(ranks.max(1));
    let iterations = context
        .iterations
        .map_or(0.0, |clock| clock.at(end) - clock.at(begin));
    let rows = groups.iter().map(|((node, gpu_model), group)| {
        let lost_gpu_ms = per_rank(lost.of_all) * f64::from(group.ranks);
        let of_peers = per_rank(lost.waited) * f64::from(group.ranks - group.named);
        LostTime {
            incident,
            cluster: context.key.cluster.clone(),
            node: node.clone(),
            gpu_model: gpu_model.clone(),
            interval,
            n_ranks: group.ranks,
            iterations: iterations.max(0.0),
            lost_gpu_ms,
            peer_wait_gpu_ms: Some(if has_culprit { of_peers } else { 0.0 }),
            saved_gpu_ms: if has_culprit { lost_gpu_ms } else { 0.0 },
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: i64, to: i64, lost_gpu_s: f64) -> Piece {
        Piece {
            from: Nanos::new(from),
            to: Nanos::new(to),
            lost_gpu_s,
            waited: 0.5,
        }
    }

    fn time(from: i64, to: i64) -> Window {
        Window::new(Nanos::new(from), Nanos::new(to)).unwrap()
    }

    #[test]
    fn what_is_lost_in_other_times_is_cut_out() {
        let pieces = [piece(0, 100, 10.0), piece(200, 300, 20.0)];
        let left = outside(&pieces, &[time(40, 60), time(90, 210), time(400, 500)]);
        let expected = [piece(0, 40, 4.0), piece(60, 90, 3.0), piece(210, 300, 18.0)];
        assert_eq!(left.len(), expected.len(), "{left:?}");
        for (left, expected) in left.iter().zip(&expected) {
            assert_eq!((left.from, left.to), (expected.from, expected.to));
            assert!((left.lost_gpu_s - expected.lost_gpu_s).abs() < 1e-9);
        }
        assert!((lost(&left) - 25.0).abs() < 1e-9);
        assert_eq!(outside(&pieces, &[]), pieces);
        assert_eq!(outside(&pieces, &[time(-1, 301)]), []);
    }
}
