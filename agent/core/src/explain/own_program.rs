//! Time in which a process runs its own program, compared with its past: what is left of a period without
//! calls, waits and other tasks.

use crate::explain::cause::Cause;
use crate::explain::lost_time::lost_ns;
use crate::explain::observation::Observation;
use crate::explain::past::Past;
use crate::statistics::ratio;

/// Smallest share of the time beyond the past: every program has phases.
const FLOOR: f64 = 0.2;

/// Time of a process in its own program, in a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OwnTime {
    /// Share of the period.
    share: f64,
    /// Time between two calls of GPU libraries, nanoseconds.
    per_call_ns: f64,
}

impl OwnTime {
    /// Returns the time in which a process was neither in a measured call nor blocked nor without a CPU;
    /// `None` if it called nothing. It is too short if several of its threads call the GPU at once.
    pub(super) fn from_observation(seen: &Observation, period_ns: u64) -> Option<Self> {
        let blocked = seen.blocked.as_ref()?;
        let in_calls = seen.calls.values().map(|calls| calls.total_ns);
        let elsewhere = in_calls
            .chain(blocked.values().copied())
            .chain(lost_ns(Cause::CpuContention, seen));
        let elsewhere_ns = elsewhere.fold(0, u64::saturating_add);
        let own_ns = period_ns.saturating_sub(elsewhere_ns);
        let calls: u64 = seen.calls.values().map(|calls| calls.calls()).sum();
        (calls > 0).then(|| Self {
            share: ratio(own_ns, period_ns),
            per_call_ns: ratio(own_ns, calls),
        })
    }

    /// Returns the share of the period by which it exceeds the past, and the time per call in that past, if
    /// that is much; else adds it to the past.
    pub(super) fn beyond(self, past: &mut Past) -> Option<(f64, f64)> {
        if let Some(usual_ns) = past.usual(Cause::OwnProgram) {
            let share = self.share * (1.0 - usual_ns / self.per_call_ns);
            if share >= FLOOR {
                return Some((share, usual_ns));
            }
        }
        past.add(Cause::OwnProgram, self.per_call_ns);
        None
    }

    /// Returns what the time is compared with.
    pub(super) fn link(self, usual_ns: f64) -> String {
        let [now, before] = [self.per_call_ns, usual_ns].map(|ns| ns / 1e6);
        format!("it ran {now:.3} ms between two calls of GPU libraries, before {before:.3} ms")
    }
}
