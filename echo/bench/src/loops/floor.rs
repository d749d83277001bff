//! The floor rule: ten lines on two series, the minimum that a detector has to beat.
//!
//! In each operation, the wait that a rank causes is the median wait of the ranks (of two, the
//! longer one) minus its own wait. The rule adds this up per rank in windows of 2 s, and counts
//! the operations. It names a rank when, in three consecutive windows, the pace is 8 % below the
//! last healthy minute, and the rank causes more wait than in its own past and 2.5 times as much
//! as any other rank. Five windows with a pace 10 % down mean that the whole job is slow. The rule
//! knows no period, no clock and no model.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::model::detector_output::ConditionKind;
use echo_core::stats::{mad, median};
use fleet_agent_core::event::{Event, GpuOperation};

use super::verdict::seconds;
use crate::alert::{Alert, Subject};

/// The name in tables.
pub const FLOOR: &str = "floor rule";

/// Length of a window, nanoseconds.
const WINDOW_NS: u64 = 2_000_000_000;

/// Healthy windows kept, and the fewest that allow a verdict.
const PAST: (usize, usize) = (30, 8);

/// Duration and time of enqueueing of one operation by rank, nanoseconds.
type Operation = BTreeMap<u32, (u64, u64)>;

/// The rows of a recording.
#[derive(Debug, Default)]
pub struct Rows {
    began_ns: Option<u64>,
    /// Operations by communicator and sequence number.
    ops: BTreeMap<(u64, u64), Operation>,
}

/// One window: number of operations, and wait caused by each rank, seconds per second.
#[derive(Debug, Clone, Default)]
struct Window {
    n_ops: f64,
    caused: BTreeMap<u32, f64>,
}

/// State of the rule between windows.
#[derive(Debug, Default)]
struct RuleState {
    past: Vec<Window>,
    streak: BTreeMap<u32, u32>,
    named: BTreeSet<u32>,
    n_slow: u32,
    is_slow: bool,
}

impl Rows {
    /// Adds an event of a recording.
    pub fn add(&mut self, event: &Event) {
        self.began_ns.get_or_insert_with(|| event.ts_ns());
        if let Event::GpuOperation(GpuOperation {
            comm_id,
            seq,
            rank,
            host_ns,
            timer: Some(timer),
            ..
        }) = event
        {
            let op = self.ops.entry((*comm_id, *seq)).or_default();
            op.insert(
                *rank,
                (timer.stop_ns.saturating_sub(timer.start_ns), *host_ns),
            );
        }
    }

    /// Alerts of the rule, in milliseconds since the start of the recording.
    pub fn alerts(self) -> Vec<Alert> {
        let began_ns = self.began_ns.unwrap_or(0);
        let (windows, first_ns) = self.windows();
        let mut rule = RuleState::default();
        let mut alerts = Vec::new();
        let mut end_ns = first_ns;
        for window in windows {
            end_ns += WINDOW_NS;
            let raised = end_ns.saturating_sub(began_ns) / 1_000_000;
            let raised = u32::try_from(raised).unwrap_or(u32::MAX);
            let subjects = rule.judge(window);
            alerts.extend(subjects.into_iter().map(|subject| Alert {
                subject,
                raised,
                cleared: None,
                class: None,
                weight: 0.0,
            }));
        }
        alerts
    }

    fn windows(self) -> (Vec<Window>, u64) {
        let n_ranks = self.ops.values().map(BTreeMap::len).max().unwrap_or(0);
        let complete = self
            .ops
            .into_values()
            .filter(|op| op.len() == n_ranks && n_ranks > 1);
        let began = |op: &Operation| op.values().map(|(_, host)| *host).min();
        let mut ops: Vec<(u64, Operation)> =
            complete.filter_map(|op| Some((began(&op)?, op))).collect();
        ops.sort_by_key(|(began, _)| *began);
        let first_ns = ops.first().map_or(0, |(began, _)| *began);
        let mut windows: Vec<Window> = Vec::new();
        for (began, op) in ops {
            let index = usize::try_from((began - first_ns) / WINDOW_NS).unwrap_or(0);
            while windows.len() <= index {
                windows.push(Window::default());
            }
            if let Some(window) = windows.get_mut(index) {
                window.add(&op);
            }
        }
        // The last window is incomplete.
        windows.pop();
        (windows, first_ns)
    }
}

impl Window {
    fn add(&mut self, op: &Operation) {
        self.n_ops += 1.0;
        let waits: Vec<f64> = op.values().map(|(wait, _)| seconds(*wait)).collect();
        let usual = if waits.len() > 2 {
            median(&waits)
        } else {
            waits.iter().copied().reduce(f64::max)
        };
        let usual = usual.unwrap_or(0.0);
        for (rank, wait) in op.keys().zip(waits) {
            *self.caused.entry(*rank).or_default() += (usual - wait) / seconds(WINDOW_NS);
        }
    }
}

impl RuleState {
    fn judge(&mut self, window: Window) -> Vec<Subject> {
        let mut subjects = Vec::new();
        let recent = self.past.len().saturating_sub(PAST.0);
        let past = self.past.get(recent..).unwrap_or_default();
        let paces: Vec<f64> = past.iter().map(|past| past.n_ops).collect();
        if let Some(pace) = median(&paces).filter(|_| paces.len() >= PAST.1) {
            let drop = 1.0 - window.n_ops / pace;
            let hit = window.culprit(past, drop);
            self.streak.retain(|rank, _| Some(*rank) == hit);
            if let Some(rank) = hit {
                let streak = self.streak.entry(rank).or_default();
                *streak += 1;
                if *streak >= 3 && self.named.insert(rank) {
                    subjects.push(Subject::Rank(rank));
                }
            }
            self.n_slow = if drop > 0.1 { self.n_slow + 1 } else { 0 };
            if self.n_slow == 5 && !std::mem::replace(&mut self.is_slow, true) {
                subjects.push(Subject::Condition(ConditionKind::UniformSlowdown));
            }
            if drop > 0.08 {
                return subjects;
            }
        }
        self.past.push(window);
        subjects
    }
}

impl Window {
    /// Rank that causes the drop of the pace, if one rank does.
    fn culprit(&self, past: &[Self], drop: f64) -> Option<u32> {
        let (top, rate) = self.caused.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let own: Vec<f64> = past
            .iter()
            .map(|past| past.caused.get(top).copied().unwrap_or(0.0))
            .collect();
        let usual = median(&own)?;
        let scatter = 1.4826 * mad(&own).unwrap_or(0.0);
        let others = self
            .caused
            .iter()
            .filter(|(rank, _)| *rank != top)
            .map(|(_, rate)| *rate);
        let others = others.fold(0.01, f64::max);
        let is_hit = drop > 0.08
            && *rate > usual + (2.0 * scatter).max(0.05)
            && *rate > 2.5 * others
            && *rate > 0.5 * drop;
        is_hit.then_some(*top)
    }
}
