//! Cost of incidents in GPU time. Prices are applied elsewhere.
//!
//! Sums are in whole microseconds, so that the parts of a total add up to it in any grouping.

use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::{ClusterId, IncidentId, NodeId};
use echo_core::model::detector_output::LostTime;
use echo_core::units::{GpuTime, Hour, Nanos, Window};

/// GPU time that the GPUs of one model on one node lost to one incident in one hour, between two
/// changes of price.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Incident that caused the loss.
    pub incident: IncidentId,
    /// Hour in which the intervals begin.
    pub hour: Hour,
    /// Cluster of the node.
    pub cluster: ClusterId,
    /// Node.
    pub node: NodeId,
    /// Model of the GPUs, when known.
    pub gpu_model: Option<Arc<str>>,
    /// An instant whose prices hold for the whole loss.
    pub priced_at: Nanos,
    /// The time lost, never negative.
    pub time: GpuTime,
}

/// Adds up lost time. `prices_from` are the instants from which prices hold, in order, the first at
/// or before all rows; an interval has the prices that held when it began.
///
/// Noise makes single intervals negative, so an incident is clipped at zero in each hour as a
/// whole. A node that gained time in an incident with a loss reduces the losses of the other nodes
/// in proportion. An interval belongs to the hour in which it begins, and hours are independent, so
/// consecutive windows that are split between hours add up exactly.
pub fn losses(rows: &[LostTime], prices_from: &[Nanos]) -> Vec<Loss> {
    let mut parts: BTreeMap<Loss, GpuTime> = BTreeMap::new();
    for row in rows {
        let key = Loss {
            incident: row.incident,
            hour: Hour::containing(row.interval.from()),
            cluster: row.cluster.clone(),
            node: row.node.clone(),
            gpu_model: row.gpu_model.clone(),
            priced_at: latest_at(prices_from, row.interval.from()),
            time: GpuTime::ZERO,
        };
        let sum = parts.entry(key).or_default();
        *sum = *sum + GpuTime::from_millis(row.lost_gpu_ms);
    }
    let mut incidents: BTreeMap<(IncidentId, Hour), Vec<Loss>> = BTreeMap::new();
    for (key, time) in parts {
        let loss = Loss { time, ..key };
        let hours = incidents.entry((loss.incident, loss.hour)).or_default();
        hours.push(loss);
    }
    incidents.into_values().flat_map(clipped).collect()
}

fn latest_at(instants: &[Nanos], at: Nanos) -> Nanos {
    let n_before = instants.partition_point(|instant| *instant <= at);
    let latest = instants.get(n_before.saturating_sub(1));
    latest.copied().unwrap_or(at)
}

/// Returns the losses of one incident in one hour without negative parts, with the same total;
/// empty if the total is not positive.
fn clipped(losses: Vec<Loss>) -> Vec<Loss> {
    let micros = |loss: &Loss| i128::from(loss.time.micros());
    let total: i128 = losses.iter().map(micros).sum();
    let won = |loss: &Loss| loss.time <= GpuTime::ZERO;
    let positive: i128 = losses.iter().filter(|loss| !won(loss)).map(micros).sum();
    if total <= 0 {
        return Vec::new();
    }
    // Differences of rounded running sums add up to the total exactly, which rounded parts would
    // not.
    let (mut reached, mut given) = (0, 0);
    let kept = losses.into_iter().filter(|loss| !won(loss));
    kept.map(|loss| {
        reached += micros(&loss);
        let part = reached * total / positive - given;
        given += part;
        Loss {
            time: GpuTime::new(i64::try_from(part).unwrap_or(i64::MAX)),
            ..loss
        }
    })
    .collect()
}

/// Returns the same intervals with peer wait in place of lost time; `None` unless all of them have
/// it.
pub fn peer_waits(rows: &[LostTime]) -> Option<Vec<LostTime>> {
    let waited = |row: &LostTime| {
        Some(LostTime {
            lost_gpu_ms: row.peer_wait_gpu_ms?,
            ..row.clone()
        })
    };
    rows.iter().map(waited).collect()
}

/// Returns the same intervals with the savings from fixing each culprit alone in place of lost
/// time.
pub fn savings(rows: &[LostTime]) -> Vec<LostTime> {
    let saved = |row: &LostTime| LostTime {
        lost_gpu_ms: row.saved_gpu_ms,
        ..row.clone()
    };
    rows.iter().map(saved).collect()
}

/// Length of the intervals in which the loss of slow ranks is stored, nanoseconds. They begin at its multiples, so
/// that a later state of an incident replaces the rows of an earlier one.
pub const INTERVAL_NS: i64 = 10_000_000_000;

/// The part of the lost time that lies in `window`. Intervals across its borders count in
/// proportion, of the time in which their incident lasted where `spans` has it: the first and the
/// last interval of an incident are longer than what they describe.
pub fn within(
    rows: &[LostTime],
    window: Window,
    spans: &BTreeMap<IncidentId, Window>,
) -> Vec<LostTime> {
    let clip = |row: &LostTime| {
        let span = spans.get(&row.incident);
        let lasted = span.and_then(|span| overlap(row.interval, *span));
        let lasted = lasted.unwrap_or(row.interval);
        let interval = overlap(lasted, window)?;
        let share = interval.millis() / lasted.millis();
        Some(LostTime {
            interval,
            iterations: row.iterations * share,
            lost_gpu_ms: row.lost_gpu_ms * share,
            peer_wait_gpu_ms: row.peer_wait_gpu_ms.map(|waited| waited * share),
            saved_gpu_ms: row.saved_gpu_ms * share,
            ..row.clone()
        })
    };
    rows.iter().filter_map(clip).collect()
}

fn overlap(one: Window, other: Window) -> Option<Window> {
    Window::new(one.from().max(other.from()), one.to().min(other.to()))
}

#[cfg(test)]
mod tests;
