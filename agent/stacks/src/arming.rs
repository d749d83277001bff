//! Armed processes: sampled within limits of time and of CPU.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_agent_core::event::{CallProbes, StackSample};

use crate::budget::{Budget, WINDOW_NS};
use crate::clock::cpu_ns;
use crate::sampler::{Counts, Sampler};
use crate::short_calls::read_short_calls;

/// Interval at which armed processes are to be sampled.
pub const INTERVAL: Duration = Duration::from_millis(40);
/// A process is sampled less often if that takes long: the pause after a sample is this many times
/// its CPU time, which leaves 2.5 % of a core per process while it is armed. Of the last two samples the
/// cheaper one counts, since the first read of a library's names takes long and is not repeated.
const PAUSE: u64 = 40;
/// Default time for which an armed process is sampled.
const ARMED_FOR: Duration = Duration::from_secs(10);
/// Interval between two reports about an armed process, nanoseconds.
const REPORT_NS: u64 = 2_000_000_000;

/// Process to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Process id.
    pub pid: u32,
    /// Threads.
    pub tids: Vec<u32>,
    /// Whether it makes GPU graphs, in calls that samples do not meet.
    pub makes_graphs: bool,
}

/// News about armed processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Sampling of a process began; a part of the stacks may be missing.
    Armed {
        /// Process id.
        pid: u32,
        /// Reasons why a part is missing.
        limits: Vec<String>,
    },
    /// Stacks of a process since the last report, most frequent first.
    Samples {
        /// The stacks.
        samples: Vec<StackSample>,
        /// Counts since the process was armed.
        counts: Counts,
    },
    /// Sampling of a process ended.
    Disarmed {
        /// Process id.
        pid: u32,
        /// Reason.
        reason: Reason,
        /// Counts since the process was armed.
        counts: Counts,
    },
}

/// Reason why sampling ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The time of sampling is over.
    Done,
    /// The CPU time for this minute is spent.
    Budget,
    /// The process cannot be sampled.
    Failed(String),
}

/// Sampling of armed processes.
#[derive(Debug)]
pub struct Arming {
    budget: Budget,
    armed_for: Duration,
    armed: BTreeMap<u32, Armed>,
    begun_ns: BTreeMap<u32, u64>,
    /// Requests that came less than a minute after the process was armed, or when the budget was spent.
    postponed: BTreeMap<u32, Postponed>,
}

#[derive(Debug)]
struct Postponed {
    target: Target,
    due_ns: u64,
}

#[derive(Debug)]
struct Armed {
    sampler: Sampler,
    makes_graphs: bool,
    /// CPU time of the last sample, nanoseconds.
    spent_ns: u64,
    due_ns: u64,
    until_ns: u64,
    report_ns: u64,
}

impl Arming {
    /// Starts without an armed process; sampling may use a fraction of one core, 0.01 for 1 %.
    pub fn new(budget: f64) -> Self {
        Self {
            budget: Budget::new(budget),
            armed_for: ARMED_FOR,
            armed: BTreeMap::new(),
            begun_ns: BTreeMap::new(),
            postponed: BTreeMap::new(),
        }
    }

    /// Sets the time for which an armed process is sampled.
    #[must_use]
    pub fn with_duration(mut self, armed_for: Duration) -> Self {
        self.armed_for = armed_for;
        self
    }

    /// Returns the time until [`Self::sample`] has something to do; `None` without a request.
    pub fn pause(&self, now_ns: u64) -> Option<Duration> {
        if !self.armed.is_empty() {
            return Some(INTERVAL);
        }
        let due_ns = self.postponed.values().map(|postponed| postponed.due_ns);
        let next_ns = due_ns.min()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(now_ns)))
    }

    /// Arms a process at `now_ns`. If it was armed less than a minute ago, or the CPU time of this minute is
    /// spent, it is armed when that minute is over: the next request may be an hour away.
    pub fn arm(&mut self, target: Target, now_ns: u64) -> Option<Report> {
        let pid = target.pid;
        self.begun_ns
            .retain(|_, begun_ns| now_ns.saturating_sub(*begun_ns) < WINDOW_NS);
        if let Some(begun_ns) = self.begun_ns.get(&pid) {
            let due_ns = begun_ns.saturating_add(WINDOW_NS);
            self.postponed.insert(pid, Postponed { target, due_ns });
            return None;
        }
        let earlier = self.postponed.remove(&pid);
        if !self.budget.is_left(now_ns) {
            if let Some(due_ns) = self.budget.left_from_ns() {
                self.postponed.insert(pid, Postponed { target, due_ns });
            }
            // It is reported once per request that is kept.
            return earlier.is_none().then_some(Report::Disarmed {
                pid,
                reason: Reason::Budget,
                counts: Counts::default(),
            });
        }
        self.begun_ns.insert(pid, now_ns);
        let armed_ns = u64::try_from(self.armed_for.as_nanos()).unwrap_or(u64::MAX);
        let before_ns = cpu_ns();
        let opened = Sampler::open(pid, &target.tids);
        self.budget.charge(cpu_ns().saturating_sub(before_ns));
        Some(match opened {
            Ok(sampler) => {
                let limits = sampler.limits();
                let armed = Armed {
                    sampler,
                    makes_graphs: target.makes_graphs,
                    spent_ns: 0,
                    due_ns: now_ns,
                    until_ns: now_ns.saturating_add(armed_ns),
                    report_ns: now_ns.saturating_add(REPORT_NS),
                };
                self.armed.insert(pid, armed);
                Report::Armed { pid, limits }
            }
            Err(error) => Report::Disarmed {
                pid,
                reason: Reason::Failed(error.to_string()),
                counts: Counts::default(),
            },
        })
    }

    /// Samples each armed process that is due at `now_ns`, with what probes know of its calls, and
    /// returns what is to be reported.
    pub fn sample(&mut self, now_ns: u64, probes: &impl CallProbes) -> Vec<Report> {
        let mut reports = self.arm_postponed(now_ns);
        let budget = &mut self.budget;
        let before_ns = cpu_ns();
        let armed = self.armed.values_mut();
        let make_graphs = armed.filter(|armed| armed.makes_graphs);
        let mut samplers: Vec<_> = make_graphs.map(|armed| &mut armed.sampler).collect();
        read_short_calls(&mut samplers, probes);
        budget.charge(cpu_ns().saturating_sub(before_ns));
        self.armed.retain(|pid, armed| {
            if now_ns < armed.due_ns.min(armed.until_ns) {
                return true;
            }
            let before_ns = cpu_ns();
            let failed = armed.sampler.sample(now_ns, probes).err();
            let spent_ns = cpu_ns().saturating_sub(before_ns);
            budget.charge(spent_ns);
            let usual_ns = armed.spent_ns.min(spent_ns);
            armed.spent_ns = spent_ns;
            armed.due_ns = now_ns.saturating_add(usual_ns.saturating_mul(PAUSE));
            let end = match failed {
                Some(error) => Some(Reason::Failed(error.to_string())),
                None if now_ns >= armed.until_ns => Some(Reason::Done),
                None => (!budget.is_left(now_ns)).then_some(Reason::Budget),
            };
            let counts = armed.sampler.counts();
            if end.is_some() || now_ns >= armed.report_ns {
                armed.report_ns = now_ns.saturating_add(REPORT_NS);
                let samples = armed.sampler.take();
                reports.push(Report::Samples { samples, counts });
            }
            let is_armed = end.is_none();
            reports.extend(end.map(|reason| Report::Disarmed {
                pid: *pid,
                reason,
                counts,
            }));
            is_armed
        });
        reports
    }

    /// Arms the processes whose minute is over.
    fn arm_postponed(&mut self, now_ns: u64) -> Vec<Report> {
        let is_due = |_: &u32, postponed: &mut Postponed| now_ns >= postponed.due_ns;
        let due: Vec<_> = self.postponed.extract_if(.., is_due).collect();
        due.into_iter()
            .filter_map(|(_, Postponed { target, .. })| self.arm(target, now_ns))
            .collect()
    }
}
