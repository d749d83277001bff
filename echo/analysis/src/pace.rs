//! The pace of a cohort and the waits of its ranks: two series over time that need no iterations.
//!
//! The healthy duration of a span of operations is predicted from their kinds (`work`). A job is
//! slow when its operations take longer than predicted for several seconds, by more than the usual
//! scatter. The rank that holds back a job waits less than before while the others wait more
//! (`shift`). Equally fast ranks alternate in waiting for each other, over seconds, so a change is
//! compared with the usual size of such alternations, and counts more the longer it has lasted.

use std::collections::VecDeque;

use crate::assembly::{CohortBlock, Member};
use crate::mix::Mix;

pub mod shift;
mod tick;
mod work;

use shift::{Shift, shifts};
use tick::{Tick, root_mean_square, small_sample_factor, windows};
use work::Work;

/// Shortest span that is evaluated, milliseconds.
const TICK_MS: f64 = 1_400.0;

/// Window over which slowness is evaluated, milliseconds, and the smallest slowdown that counts.
const WINDOW_MS: f64 = 6_000.0;
const GATE: f64 = 0.06;

/// The same for large slowdowns, which are significant after a shorter time.
const SHORT_MS: f64 = 2_800.0;
const SHORT_GATE: f64 = 0.2;

/// Share of a slowdown below which it has ended; the rest of it is a new slowdown.
const SAME_PACE: f64 = 0.3;

/// Learning time before small slowdowns are reported, milliseconds.
const LONG_PAST_MS: f64 = 18_000.0;

/// Standard deviations of the usual scatter by which the pace must be worse.
const Z_SLOW: f64 = 3.0;

/// Smallest plausible scatter of the pace.
const LEAST_SCATTER: f64 = 0.005;

/// Time that a span must have been healthy before it is learned, milliseconds.
const DELAY_MS: f64 = 2_800.0;

/// Learning time before any evaluation.
const MIN_PAST_TICKS: usize = 2;
const MIN_PAST_MS: f64 = 8_000.0;

/// Ratio to the prediction above which a span is excluded from learning.
const UNUSUAL: f64 = 2.0;

/// Share of the whole loss from which a loss in one span is a pause of the job.
const PAUSE: f64 = 0.8;

/// Maximum number of spans that are unlearned because they turn out not to have been healthy.
const MAX_TAKEN_BACK: usize = 6;

/// Maximum number of healthy spans kept.
const MAX_PAST: usize = 90;

/// Maximum number of spans kept since the job became slow.
const MAX_SLOW: usize = 64;

/// The pace of one cohort over time.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    open: Option<Tick>,
    /// Spans that are not learned yet, oldest first.
    recent: VecDeque<Tick>,
    past: VecDeque<Tick>,
    /// Spans of an unknown mix. They are not evaluated.
    unfamiliar: Vec<Tick>,
    /// Duration of the latest consecutive spans of an unknown mix, milliseconds.
    unfamiliar_ms: f64,
    work: Option<Work>,
    slow: Option<Slow>,
}

/// Slow span in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    /// Iterations of the cohort before it began.
    pub since: f64,
    /// Duration so far, milliseconds.
    pub lasted_ms: f64,
    /// Ratio of its operations' duration to the healthy one; above 1.
    pub ratio: f64,
    /// Scatter of that ratio over an equally long span of a healthy job.
    pub error: f64,
    /// True if nearly all of the loss was one pause, which does not show which rank is usually
    /// late.
    pub is_pause: bool,
    /// Change of each rank's waits.
    pub shifts: Vec<Shift>,
}

impl Slow {
    /// Share of the time that was lost, 0 to 1.
    pub fn lost_share(&self) -> f64 {
        1.0 - 1.0 / self.ratio
    }
}

impl Pace {
    /// Records the next block; returns true when there is something new to evaluate.
    pub fn push(&mut self, block: &CohortBlock) -> bool {
        let Some((elapsed_ms, mix)) = typical(&block.members) else {
            return false;
        };
        let tick = self.open.get_or_insert_with(|| Tick {
            begin: block.first_iteration(),
            ..Tick::default()
        });
        tick.elapsed_ms += elapsed_ms;
        tick.mix.add_times(&mix, 1.0);
        for member in &block.members {
            tick.waits.entry(member.rank).or_default().add(member);
        }
        if tick.elapsed_ms < TICK_MS {
            return false;
        }
        let Some(tick) = self.open.take() else {
            return false;
        };
        let is_familiar = |work: &Work| work.is_familiar(&tick.mix);
        if !self.work.as_ref().is_none_or(is_familiar) {
            self.unfamiliar_ms += tick.elapsed_ms;
            self.unfamiliar.push(tick);
            // It is unknown if a job that works differently by now is slow.
            let is_another = self.unfamiliar_ms >= WINDOW_MS && self.slow.take().is_some();
            if is_another {
                self.recent.clear();
            }
            return is_another;
        }
        self.unfamiliar_ms = 0.0;
        self.recent.push_back(tick);
        if self.recent.len() > MAX_SLOW {
            self.recent.pop_front();
        }
        self.decide();
        true
    }

    /// Slow span in progress, if any.
    pub const fn slow(&self) -> Option<&Slow> {
        self.slow.as_ref()
    }

    /// Returns true if the ranks report the duration of their operations.
    pub fn is_measured(&self) -> bool {
        self.open.is_some() || !self.recent.is_empty()
    }

    /// Returns true if enough is known to distinguish a healthy pace from a slow one.
    pub const fn is_known(&self) -> bool {
        self.work.is_some()
    }

    /// Actual and healthy duration of the operations of a block, milliseconds; `None` while the
    /// healthy duration is unknown.
    pub fn took_and_healthy_ms(&self, block: &CohortBlock) -> Option<(f64, f64)> {
        let (elapsed_ms, mix) = typical(&block.members)?;
        let work = self.work.as_ref().filter(|work| work.knows(&mix))?;
        Some((elapsed_ms, work.predict(&mix)))
    }

    /// Learns spans that have been healthy for some time, unless the job has a fault that may not
    /// show in its pace.
    pub fn learn(&mut self, is_disturbed: bool) {
        if self.slow.is_some() || is_disturbed {
            self.unfamiliar.clear();
            return;
        }
        let mut is_new = !self.unfamiliar.is_empty();
        self.past.extend(self.unfamiliar.drain(..));
        loop {
            let later = self.recent.iter().skip(1).map(|tick| tick.elapsed_ms);
            if later.sum::<f64>() < DELAY_MS {
                break;
            }
            self.past.extend(self.recent.pop_front());
            is_new = true;
        }
        if is_new {
            // Spans that were unfamiliar may precede those that are learned only now.
            let past = self.past.make_contiguous();
            past.sort_by(|a, b| a.begin.total_cmp(&b.begin));
        }
        while self.past.len() > MAX_PAST {
            self.past.pop_front();
        }
        let known_ms: f64 = self.past.iter().map(|tick| tick.elapsed_ms).sum();
        if is_new && self.past.len() >= MIN_PAST_TICKS && known_ms >= MIN_PAST_MS {
            let past = self.past.iter().map(|tick| (&tick.mix, tick.elapsed_ms));
            self.work = Work::learn(&past.collect::<Vec<_>>());
        }
        // A span that took much longer than all others was not usual work: compilation, a pause.
        if let Some(work) = &self.work {
            self.past.retain(|tick| tick.ratio(work) <= UNUSUAL);
        }
    }

    fn decide(&mut self) {
        let Some(work) = &self.work else {
            return;
        };
        let known_ms: f64 = self.past.iter().map(|tick| work.predict(&tick.mix)).sum();
        let is_slow = self.is_slower(work, SHORT_MS, SHORT_GATE)
            || known_ms >= LONG_PAST_MS && self.is_slower(work, WINDOW_MS, GATE);
        let is_over = |slow: &Slow| {
            let drop = slow.ratio - self.ratio(work, SHORT_MS);
            let is_sudden = drop >= (1.0 - SAME_PACE) * (slow.ratio - 1.0)
                && drop >= Z_SLOW * self.scatter(work, SHORT_MS);
            is_sudden || self.ratio(work, WINDOW_MS) < 1.0 + GATE / 2.0
        };
        let since = match &self.slow {
            Some(slow) if is_over(slow) => {
                self.slow = None;
                // Slow spans are not learned.
                let healthy = self.recent.pop_back();
                self.recent = healthy.into_iter().collect();
                return;
            }
            Some(_) => self.onset(work),
            None if is_slow => self.first_onset(),
            None => return,
        };
        self.slow = self.slow_since(since);
    }

    /// Returns the slow span that begins at this index.
    fn slow_since(&self, since: f64) -> Option<Slow> {
        let work = self.work.as_ref()?;
        let ticks = self.recent.iter().filter(|tick| tick.begin >= since);
        let ticks: Vec<&Tick> = ticks.collect();
        let lasted_ms: f64 = ticks.iter().map(|tick| tick.elapsed_ms).sum();
        let healthy_ms: f64 = ticks.iter().map(|tick| work.predict(&tick.mix)).sum();
        let lost = |tick: &&Tick| tick.elapsed_ms - work.predict(&tick.mix);
        let most_ms = ticks.iter().map(lost).fold(0.0, f64::max);
        Some(Slow {
            since,
            lasted_ms,
            is_pause: most_ms > PAUSE * (lasted_ms - healthy_ms),
            ratio: lasted_ms / healthy_ms.max(f64::MIN_POSITIVE),
            error: self.scatter(work, WINDOW_MS) * (WINDOW_MS / lasted_ms).sqrt().min(1.0),
            shifts: shifts(&self.past, &ticks, WINDOW_MS),
        })
    }

    /// Start of a new slow span. Spans after it that were learned as healthy are unlearned.
    fn first_onset(&mut self) -> f64 {
        for _ in 0..MAX_TAKEN_BACK.min(self.past.len().saturating_sub(MIN_PAST_TICKS)) {
            if let Some(tick) = self.past.pop_back() {
                self.recent.push_front(tick);
            }
        }
        let since = self.work.as_ref().map_or(0.0, |work| self.onset(work));
        while let Some(tick) = self.recent.pop_front_if(|tick| tick.begin < since) {
            self.past.push_back(tick);
        }
        since
    }

    /// Start of the slow span, by the greatest sum of excess durations beyond half of the slowdown
    /// (CUSUM, Page 1954).
    fn onset(&self, work: &Work) -> f64 {
        let excess = self.ratio(work, SHORT_MS).max(self.ratio(work, WINDOW_MS)) - 1.0;
        let (mut sum, mut most, mut begin) = (0.0, f64::MIN, 0.0);
        for tick in self.recent.iter().rev() {
            sum += work
                .predict(&tick.mix)
                .mul_add(-(1.0 + excess / 2.0), tick.elapsed_ms);
            if sum > most {
                (most, begin) = (sum, tick.begin);
            }
        }
        begin
    }

    fn is_slower(&self, work: &Work, window_ms: f64, gate: f64) -> bool {
        let excess = self.ratio(work, window_ms) - 1.0;
        excess >= gate && excess >= Z_SLOW * self.scatter(work, window_ms)
    }

    /// Ratio of the last operations' duration to the healthy one.
    fn ratio(&self, work: &Work, window_ms: f64) -> f64 {
        let (mut took_ms, mut healthy_ms) = (0.0, 0.0);
        for tick in self.recent.iter().rev().chain(self.past.iter().rev()) {
            took_ms += tick.elapsed_ms;
            healthy_ms += work.predict(&tick.mix);
            if took_ms >= window_ms {
                break;
            }
        }
        // A window that is not full yet shows nothing.
        if took_ms < window_ms || healthy_ms <= 0.0 {
            return 1.0;
        }
        took_ms / healthy_ms
    }

    /// Usual scatter of that ratio over windows of this length.
    fn scatter(&self, work: &Work, window_ms: f64) -> f64 {
        let windows = windows(&self.past, window_ms);
        let ratios = windows.iter().map(|window| {
            let took_ms: f64 = window.iter().map(|tick| tick.elapsed_ms).sum();
            let healthy_ms: f64 = window.iter().map(|tick| work.predict(&tick.mix)).sum();
            took_ms / healthy_ms.max(f64::MIN_POSITIVE) - 1.0
        });
        root_mean_square(ratios).max(LEAST_SCATTER) * small_sample_factor(&self.past, window_ms)
    }
}

/// Duration of a block's operations, milliseconds, and their mix: those of the median rank by
/// duration per operation, or the mean of the two middle ranks. With two ranks each counts by half,
/// and one alone while its peer has not reported yet. Otherwise operations that one rank counts in
/// this block and the other in the next would hide part of the duration of a slow span.
fn typical(members: &[Member]) -> Option<(f64, Mix)> {
    let mut readings: Vec<(f64, f64, &Mix)> = members
        .iter()
        .filter_map(|member| {
            let pace = member.pace.as_ref()?;
            let per_operation = pace.elapsed_ms / pace.mix.operations();
            Some((per_operation, pace.elapsed_ms, &pace.mix))
        })
        .collect();
    readings.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = readings.len();
    let last = n.checked_sub(1)?;
    let (middle, weight) = match members.len() {
        2 => (0..=last, 0.5),
        _ if n.is_multiple_of(2) => (last / 2..=n / 2, 0.5),
        _ => (last / 2..=last / 2, 1.0),
    };
    let mut typical = (0.0, Mix::default());
    for (_, elapsed_ms, mix) in readings.get(middle)? {
        typical.0 += weight * elapsed_ms;
        typical.1.add_times(mix, weight);
    }
    Some(typical)
}
