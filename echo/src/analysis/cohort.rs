//! One cohort over time: its window, its history, and the incidents that are open.

use std::collections::{BTreeMap, VecDeque};

use crate::analysis::assembly::{CohortBlock, CohortKey, PeriodReading};
use crate::analysis::baseline::History;
use crate::analysis::incident::{Charge, OpenIncident, Subject, is_recurrence, lost_time};
use crate::analysis::lag::{Lags, lags, suited_signal};
use crate::analysis::settings::Settings;
use crate::analysis::verdict::{Evidence, Verdict, judge, sigma_ms};
use crate::analysis::window::{Affected, Stretch};
use crate::ids::Rank;
use crate::model::conclusion::{Baseline, Conclusions, Incident, Signal};
use crate::units::Nanos;

/// Blocks kept to find out when an incident began.
const MAX_BLOCKS: usize = 64;

/// Unaffected blocks in a row that end the search for the beginning: intermittent faults pause.
const ONSET_PAUSE: usize = 3;

/// One cohort over time.
#[derive(Debug, Clone)]
pub struct Cohort {
    key: CohortKey,
    blocks: VecDeque<CohortBlock>,
    history: History,
    started: bool,
    last_periods: Option<LastPeriods>,
    streaks: BTreeMap<Subject, u32>,
    open: BTreeMap<Subject, OpenIncident>,
    cleared: BTreeMap<Subject, Incident>,
    iterations_since_lags: f64,
    outlook: Option<Outlook>,
}

/// What the agents need to know of a cohort to classify themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// End of the block that it was computed at, event time.
    pub computed_at: Nanos,
    /// Signal that centre and scale are about.
    pub signal: Signal,
    /// Median of the members' signal, milliseconds per iteration.
    pub center_ms: f64,
    /// Scale that lags are measured against, milliseconds.
    pub sigma_ms: f64,
    /// Healthy period, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Whether enough ranks report for a verdict.
    pub quorum_met: bool,
    /// Number of ranks compared.
    pub n_ranks: usize,
    /// Ranks named now.
    pub outliers: Vec<Rank>,
    /// Block size that all ranks should use, operations; nothing while they agree without being told.
    pub block_ops: Option<u64>,
}

/// The last two readings of the period; both the same when there was only one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LastPeriods {
    before: PeriodReading,
    latest: PeriodReading,
}

impl Cohort {
    /// A cohort that nothing is known of yet.
    pub fn new(key: CohortKey) -> Self {
        Self {
            key,
            blocks: VecDeque::new(),
            history: History::default(),
            started: false,
            last_periods: None,
            streaks: BTreeMap::new(),
            open: BTreeMap::new(),
            cleared: BTreeMap::new(),
            iterations_since_lags: 0.0,
            outlook: None,
        }
    }

    /// What the agents should know, once there is something.
    pub const fn outlook(&self) -> Option<&Outlook> {
        self.outlook.as_ref()
    }

    /// Takes the next block and says what follows from it.
    pub fn observe(&mut self, block: CohortBlock, settings: &Settings) -> Conclusions {
        // Blocks before the first measured iteration are start-up: compilation, allocation, first connections.
        self.started |= block.period.is_some();
        if !self.started {
            return Conclusions::default();
        }
        self.keep(block);
        let window = Stretch::latest(&self.blocks, settings.window_iterations, 2);
        if window.iterations < settings.window_iterations {
            return Conclusions::default();
        }
        let signal = suited_signal(&window.blocks);
        let lags = lags(signal, &window.blocks);
        let (verdict, outlook) = self.judge_window(&window, lags.as_ref(), settings);
        let n_window = window.blocks.len();
        let charges = Charge::of(verdict);
        let (mut conclusions, ended) = self.follow(signal, &charges, settings);
        if ended && self.open.is_empty() {
            self.start_afresh(settings);
        } else {
            conclusions.append(self.raise(signal, &charges, settings));
            self.remember(n_window, lags.as_ref(), settings);
        }
        self.outlook = outlook.map(|outlook| Outlook {
            outliers: self.outliers(),
            ..outlook
        });
        conclusions
    }

    fn keep(&mut self, block: CohortBlock) {
        self.last_periods = block.period.map_or(self.last_periods, |latest| {
            let before = self.last_periods.map_or(latest, |last| last.latest);
            Some(LastPeriods { before, latest })
        });
        self.iterations_since_lags += block.iterations;
        self.blocks.push_back(block);
        if self.blocks.len() > MAX_BLOCKS {
            self.blocks.pop_front();
        }
    }

    fn judge_window(
        &self,
        window: &Stretch<'_>,
        lags: Option<&Lags>,
        settings: &Settings,
    ) -> (Verdict, Option<Outlook>) {
        let Some(last) = self.last_periods else {
            return (Verdict::Healthy, None);
        };
        let period_ms = window.period_ms().unwrap_or(last.latest.ms);
        let evidence = Evidence {
            lags,
            period_ms,
            steady_period_ms: window
                .typical_period_ms()
                .unwrap_or_else(|| last.before.ms.min(last.latest.ms)),
            healthy_ms: self.history.period_ms(),
            usual_sigma_ms: self.history.sigma_ms(),
            coverage: window.coverage(),
        };
        let outlook = lags.zip(window.blocks.first()).map(|(lags, last)| Outlook {
            computed_at: last.time.to(),
            signal: lags.signal,
            center_ms: lags.center_ms,
            sigma_ms: sigma_ms(lags, period_ms, evidence.usual_sigma_ms),
            healthy_ms: evidence.healthy_ms,
            quorum_met: evidence.coverage >= settings.min_coverage && lags.ranks.len() >= 2,
            n_ranks: lags.ranks.len(),
            outliers: Vec::new(),
            block_ops: window.contested_block_ops(),
        });
        (judge(&evidence, settings), outlook)
    }

    /// Carries open incidents on with the latest block, and clears those that ended; true when one did.
    fn follow(
        &mut self,
        signal: Signal,
        charges: &[Charge],
        settings: &Settings,
    ) -> (Conclusions, bool) {
        let mut conclusions = Conclusions::default();
        let Some(block) = self.blocks.back() else {
            return (conclusions, false);
        };
        let recent = Stretch::latest(&self.blocks, settings.window_iterations / 2.0, 1);
        let grave = gravest(&self.open);
        let mut ended = Vec::new();
        for (subject, open) in &mut self.open {
            let healthy = open.incident.baseline.period_ms();
            let test = Affected {
                signal,
                subject: *subject,
                healthy_ms: healthy,
                settings,
            };
            if let Some(charge) = charges.iter().find(|charge| charge.subject == *subject)
                && let Some(suspect) = &charge.suspect
            {
                open.strengthen(suspect);
            }
            if test.holds(&[block]) == Some(true) {
                open.affect(block, test.lag_ms(&[block]));
            }
            open.calm = match test.holds(&recent.blocks) {
                Some(true) => 0,
                Some(false) => open.calm + 1,
                // A rank that has fallen silent has not recovered.
                None => open.calm,
            };
            if grave == Some(*subject)
                && let Some(reading) = block.period
            {
                conclusions
                    .lost
                    .extend(lost_time(&open.incident, block, &reading));
            }
            if open.calm >= settings.clear_after {
                ended.push(*subject);
            } else {
                conclusions.incidents.push(open.incident.clone());
            }
        }
        for subject in &ended {
            conclusions.incidents.extend(self.clear(*subject));
        }
        (conclusions, !ended.is_empty())
    }

    fn clear(&mut self, subject: Subject) -> Option<Incident> {
        let cleared = self.open.remove(&subject)?.clear(self.blocks.back()?);
        self.cleared.insert(subject, cleared.clone());
        Some(cleared)
    }

    /// Clears what is open, because the job does not report any more.
    pub fn end(&mut self) -> Conclusions {
        let mut conclusions = Conclusions::default();
        while let Some(subject) = self.open.keys().next().copied() {
            conclusions.incidents.extend(self.clear(subject));
        }
        conclusions
    }

    /// Forgets the blocks of incidents that have ended, so that they neither count for another one nor are booked
    /// twice.
    fn start_afresh(&mut self, settings: &Settings) {
        let calm = Stretch::latest(&self.blocks, settings.window_iterations / 2.0, 1);
        let n_gone = self.blocks.len().saturating_sub(calm.blocks.len());
        self.blocks.drain(..n_gone);
        self.streaks.clear();
        let latest = self.blocks.iter().rev().find_map(|block| block.period);
        self.last_periods = latest.map(|latest| LastPeriods {
            before: latest,
            latest,
        });
    }

    /// Counts charges, and raises those that persist.
    fn raise(&mut self, signal: Signal, charges: &[Charge], settings: &Settings) -> Conclusions {
        self.streaks
            .retain(|subject, _| charges.iter().any(|charge| charge.subject == *subject));
        let mut conclusions = Conclusions::default();
        for charge in charges {
            let streak = self.streaks.entry(charge.subject).or_default();
            *streak += 1;
            if *streak < settings.raise_after || self.open.contains_key(&charge.subject) {
                continue;
            }
            let names_a_rank = matches!(charge.subject, Subject::Rank(_));
            if !names_a_rank && !self.open.is_empty() {
                continue;
            }
            let first = self.open.is_empty();
            // A slowdown that had no culprit until now has one.
            let is_explained = |subject: &Subject| !matches!(subject, Subject::Rank(_));
            while let Some(explained) = self.open.keys().copied().find(is_explained) {
                conclusions.incidents.extend(self.clear(explained));
            }
            conclusions.append(self.open_incident(signal, charge, first, settings));
        }
        conclusions
    }

    fn open_incident(
        &mut self,
        signal: Signal,
        charge: &Charge,
        counts_loss: bool,
        settings: &Settings,
    ) -> Conclusions {
        let mut conclusions = Conclusions::default();
        let baseline = match (&charge.suspect, self.history.period_ms()) {
            (Some(suspect), _) => suspect.baseline,
            (None, Some(period_ms)) => Baseline::History { period_ms },
            (None, None) => return conclusions,
        };
        let Some(now) = self.blocks.back() else {
            return conclusions;
        };
        let test = Affected {
            signal,
            subject: charge.subject,
            healthy_ms: baseline.period_ms(),
            settings,
        };
        let onset = self.onset(&test);
        let Some(first) = self.blocks.get(onset) else {
            return conclusions;
        };
        let earlier = self.cleared.remove(&charge.subject);
        let mut open = match earlier {
            Some(cleared)
                if is_recurrence(&cleared, first.time.from(), settings.reopen_within_ms) =>
            {
                OpenIncident::reopen(cleared, now)
            }
            _ => OpenIncident::raise(&self.key, charge, baseline, (first, now)),
        };
        for block in self.blocks.iter().skip(onset) {
            if test.holds(&[block]) == Some(true) {
                open.affect(block, test.lag_ms(&[block]));
            }
            if counts_loss && let Some(reading) = block.period {
                conclusions
                    .lost
                    .extend(lost_time(&open.incident, block, &reading));
            }
        }
        conclusions.incidents.push(open.incident.clone());
        self.open.insert(charge.subject, open);
        conclusions
    }

    /// Index of the first block of the latest run of affected blocks, pauses included.
    fn onset(&self, test: &Affected<'_>) -> usize {
        let mut onset = self.blocks.len().saturating_sub(1);
        let mut pause = 0;
        for (index, block) in self.blocks.iter().enumerate().rev() {
            if test.holds(&[block]) == Some(true) {
                (onset, pause) = (index, 0);
            } else {
                pause += 1;
            }
            if pause >= ONSET_PAUSE {
                break;
            }
        }
        onset
    }

    /// Lets what is healthy by all signs become history. A block counts only once it has left the window, so that
    /// a fault that is not yet raised does not pass for healthy.
    fn remember(&mut self, n_window: usize, lags: Option<&Lags>, settings: &Settings) {
        if !self.open.is_empty() || !self.streaks.is_empty() {
            self.iterations_since_lags = 0.0;
            return;
        }
        let left = self.blocks.len().checked_sub(n_window + 1);
        let reading = left
            .and_then(|index| self.blocks.get(index))
            .and_then(|block| block.period);
        if let Some(reading) = reading {
            self.history.remember_period(&reading);
        }
        if let Some(lags) = lags
            && self.iterations_since_lags >= settings.window_iterations
        {
            self.iterations_since_lags = 0.0;
            self.history
                .remember_lags(lags.ranks.iter().map(|lag| lag.mean_ms).collect());
        }
    }

    fn outliers(&self) -> Vec<Rank> {
        let ranks = self.open.keys().filter_map(|subject| match subject {
            Subject::Rank(rank) => Some(*rank),
            Subject::Uniform | Subject::Unclear(_) => None,
        });
        ranks.collect()
    }
}

/// The open incident that the cohort's loss is booked on: the latest rank, else whatever is open.
fn gravest(open: &BTreeMap<Subject, OpenIncident>) -> Option<Subject> {
    let weight = |open: &OpenIncident| open.incident.culprit_lag_ms().unwrap_or(0.0);
    let latest = open
        .iter()
        .max_by(|a, b| weight(a.1).total_cmp(&weight(b.1)));
    latest.map(|(subject, _)| *subject)
}

#[cfg(test)]
mod tests;
