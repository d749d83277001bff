//! Time in which a process runs its own program, compared with its past: what is left of a period without
//! calls, waits and other tasks.

use crate::event::FunctionDurations;
use crate::explain::cause::Cause;
use crate::explain::lost_time::lost_ns;
use crate::explain::observation::Observation;
use crate::explain::past::Series;
use crate::statistics::ratio;

/// Smallest share of the time beyond the past: every program has phases.
const FLOOR: f64 = 0.2;
/// Periods after which what stands out is how the process works now.
const MOST_PERIODS: u32 = 30;

/// Time of a process per call of a GPU library in a period, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PerCall {
    /// In its own program.
    own_ns: f64,
    /// In measured calls.
    in_calls_ns: f64,
    /// All of it.
    total_ns: f64,
}

/// Time that a process runs its own program beyond its past.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Excess {
    /// Share of the period.
    pub(super) share: f64,
    own_ns: f64,
    usual_ns: f64,
}

impl Excess {
    /// Returns the times that make the excess.
    pub(super) fn link(self, cause: Cause) -> String {
        let [now, before] = [self.own_ns, self.usual_ns].map(|ns| ns / 1e6);
        let calls = match cause {
            Cause::Copies => "measured calls, which copies are not",
            _ => "calls of GPU libraries",
        };
        format!("it ran {now:.3} ms between two {calls}, before {before:.3} ms")
    }
}

impl PerCall {
    /// Returns the times of a period; `None` if the process called nothing. The time in its own program is
    /// too short if several of its threads call the GPU at once.
    pub(super) fn from_observation(seen: &Observation, period_ns: u64) -> Option<Self> {
        let blocked = seen.blocked.as_ref()?;
        let in_calls = seen.calls.values().map(|calls| calls.total_ns);
        let in_calls_ns = in_calls.fold(0, u64::saturating_add);
        let delays = [
            Cause::CpuContention,
            Cause::CgroupThrottling,
            Cause::Interrupts,
        ];
        let blocked = blocked.values().copied();
        let elsewhere = blocked.chain(delays.iter().filter_map(|cause| lost_ns(*cause, seen)));
        let elsewhere_ns = elsewhere.fold(in_calls_ns, u64::saturating_add);
        let own_ns = period_ns.saturating_sub(elsewhere_ns);
        let calls: u64 = seen.calls.values().map(FunctionDurations::calls).sum();
        (calls > 0).then(|| Self {
            own_ns: ratio(own_ns, calls),
            in_calls_ns: ratio(in_calls_ns, calls),
            total_ns: ratio(period_ns, calls),
        })
    }
}

/// Times per call in past periods.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgramPast {
    own_ns: Series,
    in_calls_ns: Series,
    /// Periods in a row in which the process exceeded it.
    exceeded: u32,
}

impl ProgramPast {
    /// Returns by how much a process exceeds the past if that is much; else adds the period to the past.
    /// Where calls became longer as well, there is more work per call, and it is no excess.
    pub(super) fn excess(&mut self, now: PerCall) -> Option<Excess> {
        let usual = self.own_ns.usual().zip(self.in_calls_ns.usual());
        if let Some((own_ns, in_calls_ns)) = usual {
            let work = (now.in_calls_ns / in_calls_ns.max(1.0)).max(1.0);
            let share = (now.own_ns - work * own_ns) / now.total_ns;
            if share >= FLOOR {
                self.exceeded = self.exceeded.saturating_add(1);
                if self.exceeded > MOST_PERIODS {
                    *self = Self::default();
                }
                return Some(Excess {
                    share,
                    own_ns: now.own_ns,
                    usual_ns: own_ns,
                });
            }
        }
        self.exceeded = 0;
        self.own_ns.add(now.own_ns);
        self.in_calls_ns.add(now.in_calls_ns);
        None
    }
}
