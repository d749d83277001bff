//! Decision about one window: given its lags and damage, is there a culprit?
//!
//! A rank is named only if its lag is significant (modified z-score against the cohort's usual
//! scatter, or its rank order where ranks are too few for a scale; false discovery rate controlled
//! over all ranks), matters (a share of the period) and explains the damage (the cohort's period
//! against its own history). Lag without damage is slack; damage without a lag is a slowdown of all
//! ranks. A rank that is late but waits as long as its role peers is a victim.

use echo_core::ids::Rank;
use echo_core::model::detector_output::{Baseline, Signal};

use crate::baseline::Scatter;
use crate::lag::rank_order::FEW_RANKS;
use crate::lag::{Lag, Lags};
use crate::settings::Settings;

mod doubt;
mod significance;

pub use doubt::Doubt;
pub use significance::{Scale, sigma_ms};

/// A culprit's steady lag must be at least this share of the gate that its mean lag must pass.
const STEADY_SHARE: f64 = 0.5;

/// Same share for its lag in at least half of the blocks: two pauses in one window are not a steady
/// lag either.
const TYPICAL_SHARE: f64 = 0.75;

/// Number of blocks in which a rank must be late before rare stalls count as a steady lag.
const ENOUGH_STALLS: usize = 3;

/// Smallest lag of arrivals, as a share of the period, for which a rank is named while no healthy
/// iteration is known.
const ARRIVAL_GATE: f64 = 0.5;

/// Largest loss without a history, as a share of the period.
const LEAST_HEALTHY_SHARE: f64 = 0.1;

/// A rank less late than this share of the latest is one of its victims, or late without
/// consequence.
const ROOT_SHARE: f64 = 0.5;

/// Smallest damage for which a lag matters, as a share of the gate for lags: a rank may be late by
/// more than the damage.
const DAMAGE_SHARE: f64 = 0.5;

/// Damage must lie this many standard errors above the healthy period.
const DAMAGE_ERRORS: f64 = 3.0;

/// Kind of a window, by the faults that it is meant to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowKind {
    /// A few iterations: faults that are present most of the time.
    Short,
    /// Many iterations: stalls that are rare and add up.
    Long,
    /// All iterations since the job became slow.
    SinceSlow,
}

/// Evidence about a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence<'a> {
    /// Lags of the ranks; `None` when no signal compares them.
    pub lags: Option<&'a Lags>,
    /// Mean duration of an iteration, milliseconds.
    pub period_ms: f64,
    /// Typical duration of an iteration, milliseconds: unlike the mean it does not follow a single
    /// stall.
    pub steady_period_ms: f64,
    /// Median duration of a healthy iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Standard error of the mean duration of healthy iterations over such a window, milliseconds,
    /// when known.
    pub period_error_ms: Option<f64>,
    /// Usual scatter of the lags, when known.
    pub usual: Option<Scatter>,
    /// Share of the expected ranks that reported.
    pub coverage: f64,
    /// True if transfers take longer than usual although no rank is late.
    pub transfers_are_slow: bool,
    /// Kind of the window.
    pub window_kind: WindowKind,
    /// Ranks of the whole job: all of them are tested in one tick.
    pub n_tests: usize,
    /// Reduction of the wait of the latest rank of any other cohort of the job, milliseconds per
    /// iteration.
    pub rival_own_ms: f64,
    /// Lag of the latest rank of any other cohort of the job that waits itself, milliseconds per
    /// iteration; 0 for none.
    pub victim_lag_ms: f64,
    /// True if another cohort of the job shows why the job is slow.
    pub is_explained: bool,
}

/// Decision about one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// Ranks that are late only because they wait for another one.
    pub victims: Vec<Rank>,
    /// True if ranks are late, although none is named.
    pub is_doubtful: bool,
    /// Reduction of the wait of this cohort's root candidate compared with its peers, milliseconds
    /// per iteration; 0 for none.
    pub root_own_ms: f64,
}

/// The verdict on a window.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing that matters.
    Healthy,
    /// These ranks hold back the cohort, latest first.
    Culprits(Vec<Candidate>),
    /// The cohort is slower than its history and no rank is late.
    Uniform,
    /// The cohort is slower than its history, and the signals do not show why.
    Inconclusive(Doubt),
}

/// A late rank with its significance.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The rank and its lag.
    pub lag: Lag,
    /// Modified z-score of the lag.
    pub z: f64,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// The healthy period that the damage was measured against.
    pub baseline: Baseline,
}

impl Evidence<'_> {
    /// Excess duration of an iteration over a healthy one, milliseconds; `None` without a history.
    fn damage_ms(&self) -> Option<f64> {
        self.healthy_ms.map(|healthy| self.period_ms - healthy)
    }

    /// Returns true if the usual scatter of the lags is known, or there are enough ranks to show
    /// it.
    fn is_familiar(&self) -> bool {
        self.usual.is_some() || self.lags.is_none_or(|lags| lags.ranks.len() > FEW_RANKS)
    }

    /// Smallest lag caused by a rank itself that matters, milliseconds. Few ranks with unknown
    /// usual scatter differ more often by chance than by a fault.
    fn least_own_ms(&self, settings: &Settings) -> f64 {
        let share = if self.is_familiar() {
            settings.effect_gate
        } else {
            settings.unknown_baseline_gate
        };
        share * self.period_ms
    }

    /// Returns true if the cohort has a history and no significant loss against it.
    pub fn is_undamaged(&self, settings: &Settings) -> bool {
        let least = |healthy: f64| {
            let error = self.period_error_ms.unwrap_or(0.0);
            (DAMAGE_SHARE * settings.effect_gate * healthy).max(DAMAGE_ERRORS * error)
        };
        let damage = self.healthy_ms.zip(self.damage_ms());
        damage.is_some_and(|(healthy, damage)| damage < least(healthy))
    }

    /// Smallest slowdown of all ranks that counts, as a share of the healthy period: less where
    /// transfers show the cause.
    pub fn pace_gate(&self, settings: &Settings) -> f64 {
        if self.transfers_are_slow {
            settings.effect_gate * DAMAGE_SHARE
        } else {
            settings.uniform_gate
        }
    }

    /// Returns true if the cohort as a whole is slow and the cause is not known yet.
    fn is_uniformly_slow(&self, settings: &Settings) -> bool {
        let gate = self.pace_gate(settings);
        let is_slower = |healthy: f64| self.steady_period_ms - healthy >= gate * healthy;
        self.window_kind == WindowKind::Short
            && !self.is_explained
            && self.healthy_ms.is_some_and(is_slower)
    }
}

/// Decides about one window.
pub fn decide(evidence: &Evidence<'_>, settings: &Settings) -> Decision {
    let just = |verdict| Decision {
        verdict,
        victims: Vec::new(),
        is_doubtful: false,
        root_own_ms: 0.0,
    };
    // With a history, no damage means no verdict. Without one, the lag alone decides.
    if evidence.is_undamaged(settings) {
        return just(Verdict::Healthy);
    }
    let uniformly_slow = evidence.is_uniformly_slow(settings);
    let doubtful = |doubt| {
        if uniformly_slow {
            Verdict::Inconclusive(doubt)
        } else {
            Verdict::Healthy
        }
    };
    if evidence.coverage < settings.min_coverage {
        return just(doubtful(Doubt::Coverage));
    }
    let Some(lags) = evidence.lags else {
        return just(doubtful(Doubt::NoSignal));
    };
    if lags.ranks.len() < 2 {
        return just(doubtful(Doubt::NoPeers));
    }
    let late = late_ranks(evidence, lags, settings);
    let scale = Scale::from_lags(lags, evidence, settings);
    let significant: Vec<&Lag> = late
        .iter()
        .copied()
        .filter(|lag| scale.is_significant(lag))
        .collect();
    let (roots, victims) = split_roots(evidence, &significant, settings);
    let root_own_ms = roots
        .iter()
        .filter_map(|lag| lag.own_ms)
        .fold(0.0, f64::max);
    let verdict = if !roots.is_empty() {
        let candidate = |lag: &&Lag| scale.candidate(lag, evidence);
        Verdict::Culprits(roots.iter().map(candidate).collect())
    } else if !victims.is_empty() && evidence.rival_own_ms > 0.0 {
        Verdict::Healthy
    } else if !victims.is_empty() {
        doubtful(Doubt::NoRoot)
    } else if !late.is_empty() {
        doubtful(Doubt::NotSignificant)
    } else if uniformly_slow {
        Verdict::Uniform
    } else {
        Verdict::Healthy
    };
    Decision {
        verdict,
        is_doubtful: roots.is_empty()
            && late.iter().any(|lag| is_doubtful(lag, evidence, settings)),
        victims: victims.iter().map(|lag| lag.rank).collect(),
        root_own_ms,
    }
}

/// Returns true if a late rank that is not named keeps a window from counting as healthy. With few
/// ranks and no healthy history yet, a lag too small to be named is normal for the job: otherwise a
/// GPU that is always a little slower than its peers would keep the history empty forever. With
/// many ranks, one is late by chance in most windows, and the other windows show the healthy state.
fn is_doubtful(late: &Lag, evidence: &Evidence<'_>, settings: &Settings) -> bool {
    evidence.healthy_ms.is_some()
        || evidence.is_familiar()
        || late.mean_ms >= settings.unknown_baseline_gate * evidence.period_ms
}

/// Ranks whose lag matters and explains the damage, latest first.
fn late_ranks<'a>(evidence: &Evidence<'_>, lags: &'a Lags, settings: &Settings) -> Vec<&'a Lag> {
    let damage_ms = evidence.damage_ms();
    let matters = match lags.signal {
        // The lag of a GPU at one operation is not the loss. The reduction of its wait is (see
        // below).
        Signal::DeviceWait => settings.effect_gate * evidence.period_ms,
        Signal::HostGap | Signal::Wait | Signal::Arrival => evidence.least_own_ms(settings),
    };
    let gate = match (damage_ms, lags.signal) {
        (_, Signal::DeviceWait) => matters,
        (Some(damage), _) => matters.max(settings.explained_share * damage),
        // Arrival lags add up over the iterations between two completions, so small differences
        // between hosts grow. Only a lag above half an iteration is larger than they get.
        (None, Signal::Arrival) => evidence.period_ms * ARRIVAL_GATE,
        (None, _) => settings.unknown_baseline_gate * evidence.period_ms,
    };
    let is_steady = |lag: &Lag| match evidence.window_kind {
        WindowKind::Short => {
            lag.steady_ms >= gate * STEADY_SHARE && lag.typical_ms() >= gate * TYPICAL_SHARE
        }
        WindowKind::Long | WindowKind::SinceSlow => {
            lag.series.iter().filter(|ms| **ms >= gate).count() >= ENOUGH_STALLS
        }
    };
    let mut late: Vec<&Lag> = lags
        .ranks
        .iter()
        .filter(|lag| lag.mean_ms >= gate && (lag.signal == Signal::Wait || is_steady(lag)))
        // A rank that waits less than its peers may only work differently, unless the job has
        // become slower.
        .filter(|lag| {
            lag.signal != Signal::Wait
                || (damage_ms.is_some() && evidence.window_kind == WindowKind::Short)
        })
        .collect();
    late.sort_by(|a, b| b.mean_ms.total_cmp(&a.mean_ms));
    late
}

/// Splits late ranks into the ones for which the others wait, latest first, and the ones that are
/// late only because they wait themselves.
///
/// A late host causes its lag itself. A GPU that is late at a collective may have waited
/// elsewhere before: the root waits least among its role peers (`detection.md` 5.6).
fn split_roots<'a>(
    evidence: &Evidence<'_>,
    late: &[&'a Lag],
    settings: &Settings,
) -> (Vec<&'a Lag>, Vec<&'a Lag>) {
    let own_gate = match evidence.damage_ms() {
        Some(damage) if evidence.is_familiar() => (settings.effect_gate * evidence.period_ms)
            .min(damage)
            .max(settings.explained_share * damage),
        Some(damage) => evidence
            .least_own_ms(settings)
            .max(settings.explained_share * damage),
        None => settings.unknown_baseline_gate * evidence.period_ms,
    };
    let most = late.iter().map(|lag| lag.own_lag_ms()).fold(0.0, f64::max);
    let is_root = |lag: &&&Lag| {
        let own = lag.own_lag_ms();
        // If a group communicates more often than the whole cohort does, all of its members are
        // late at the operations of the cohort.
        let lost = evidence
            .damage_ms()
            .map_or(lag.mean_ms, |damage| lag.mean_ms.min(damage));
        let waits_itself = lag.waits_for_ms.is_some_and(|ms| ms >= ROOT_SHARE * lost);
        let is_own_lag = lag.signal != Signal::DeviceWait
            || (!waits_itself && own >= own_gate && own >= ROOT_SHARE * evidence.rival_own_ms);
        own >= ROOT_SHARE * most && is_own_lag
    };
    let (mut roots, others): (Vec<&Lag>, Vec<&Lag>) = late.iter().partition(is_root);
    roots.sort_by(|a, b| b.own_lag_ms().total_cmp(&a.own_lag_ms()));
    let victims = others
        .into_iter()
        .filter(|lag| lag.signal == Signal::DeviceWait)
        .collect();
    (roots, victims)
}

/// Healthy period that a candidate's damage is measured against.
fn baseline(lag: &Lag, evidence: &Evidence<'_>) -> Baseline {
    match evidence.healthy_ms {
        Some(period_ms) => Baseline::History { period_ms },
        // An arrival lag is not the loss of one iteration, so no loss is derived from it.
        None if lag.signal == Signal::Arrival => Baseline::None {
            period_ms: evidence.period_ms,
        },
        None => Baseline::None {
            period_ms: (evidence.period_ms - loss_ms(lag, evidence))
                .max(evidence.period_ms * LEAST_HEALTHY_SHARE),
        },
    }
}

/// Loss per iteration caused by a rank, milliseconds, if no healthy iteration was seen: the certain
/// part of its lag, at most the delay of its victims. The rest is structural: in a pipeline,
/// healthy ranks also wait in the bubbles, and the culprit does not.
fn loss_ms(lag: &Lag, evidence: &Evidence<'_>) -> f64 {
    let loss_ms = lag.certain_ms();
    if lag.signal == Signal::DeviceWait && evidence.victim_lag_ms > 0.0 {
        loss_ms.min(evidence.victim_lag_ms)
    } else {
        loss_ms
    }
}

#[cfg(test)]
mod tests;
