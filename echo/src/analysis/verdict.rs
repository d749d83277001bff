//! One judgement: given the lags and the damage in a window, is there a culprit?
//!
//! A rank is named only if its lag is significant (modified z-score against the cohort's usual scatter), matters
//! (a share of the period) and explains the damage (the cohort's period against its own history). Lag without
//! damage is slack; damage without a lag is a slowdown of everybody.

use crate::analysis::lag::{Lag, Lags};
use crate::analysis::settings::Settings;
use crate::model::conclusion::{Baseline, Signal};
use crate::stats::multiplicity::critical_z;
use crate::stats::{lower_median, robust_sigma};

/// Smallest scale that lags are measured against, milliseconds: exact ties must not divide by zero.
const FLOOR_MS: f64 = 0.05;

/// Smallest scale as a share of the period.
const FLOOR_SHARE: f64 = 0.0025;

/// A culprit's steady lag must be at least this share of the gate that its mean lag must pass.
const STEADY_SHARE: f64 = 0.5;

/// Smallest lag of arrivals, as a share of the period, for which a rank is named while no healthy iteration is known.
const ARRIVAL_GATE: f64 = 0.5;

/// Without a history no more than the rest of the period is taken for loss.
const LEAST_HEALTHY_SHARE: f64 = 0.1;

/// A rank less late than this share of the latest is one of its victims, or late without consequence.
const ROOT_SHARE: f64 = 0.5;

/// What is known of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence<'a> {
    /// Lags of the ranks; nothing when no signal compares them.
    pub lags: Option<&'a Lags>,
    /// Mean duration of an iteration, milliseconds.
    pub period_ms: f64,
    /// Typical duration of an iteration, milliseconds: unlike the mean it does not follow a single stall.
    pub steady_period_ms: f64,
    /// Median duration of a healthy iteration, milliseconds, when known.
    pub healthy_ms: Option<f64>,
    /// Usual scatter of the lags, milliseconds, when known.
    pub usual_sigma_ms: Option<f64>,
    /// Share of the expected ranks that reported.
    pub coverage: f64,
}

/// What one window says.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing that matters.
    Healthy,
    /// These ranks hold back the cohort, latest first.
    Culprits(Vec<Suspect>),
    /// The cohort is slower than its history and nobody is late.
    Uniform,
    /// The cohort is slower than its history, and the signals do not say why.
    Inconclusive(Doubt),
}

/// A rank with its lag and how sure that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// The rank and its lag.
    pub lag: Lag,
    /// Modified z-score of the lag.
    pub z: f64,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// The healthy period that the damage was measured against.
    pub baseline: Baseline,
}

/// Why a slow cohort has no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// Too few of the expected ranks report.
    Coverage,
    /// The job neither synchronises nor shares completions.
    NoSignal,
    /// Somebody is late, but not beyond the usual scatter.
    NotSignificant,
}

impl Doubt {
    /// The reason in words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Coverage => "too few of the job's ranks report to compare them",
            Self::NoSignal => {
                "the job never blocks in a synchronisation, so the host cannot see which rank is late"
            }
            Self::NotSignificant => {
                "a rank is late by as much as the cohort lost, but not beyond the usual scatter of its peers"
            }
        }
    }
}

/// Standard deviation that lags are measured against, milliseconds: the cohort's own history, else the scatter of
/// the ranks in this window.
pub fn sigma_ms(lags: &Lags, period_ms: f64, usual_sigma_ms: Option<f64>) -> f64 {
    let floor = FLOOR_MS.max(FLOOR_SHARE * period_ms);
    let means: Vec<f64> = lags.ranks.iter().map(|lag| lag.mean_ms).collect();
    let scale = usual_sigma_ms
        .or_else(|| robust_sigma(&means))
        .unwrap_or(0.0);
    scale.hypot(floor)
}

/// Judges one window.
pub fn judge(evidence: &Evidence<'_>, settings: &Settings) -> Verdict {
    let damage_ms = evidence
        .healthy_ms
        .map(|healthy| evidence.period_ms - healthy);
    let slower = |period_ms: f64, gate: f64| {
        evidence
            .healthy_ms
            .is_some_and(|healthy| period_ms - healthy >= gate * healthy)
    };
    // With a history, no damage means no verdict; without one, the lag alone has to speak.
    if evidence.healthy_ms.is_some()
        && !slower(
            evidence.period_ms,
            settings.effect_gate.min(settings.uniform_gate),
        )
    {
        return Verdict::Healthy;
    }
    let everybody_slow = slower(evidence.steady_period_ms, settings.uniform_gate);
    let doubtful = |doubt| {
        if everybody_slow {
            Verdict::Inconclusive(doubt)
        } else {
            Verdict::Healthy
        }
    };
    if evidence.coverage < settings.min_coverage {
        return doubtful(Doubt::Coverage);
    }
    let Some(lags) = evidence.lags.filter(|lags| lags.ranks.len() >= 2) else {
        return doubtful(Doubt::NoSignal);
    };
    let late = late_ranks(evidence, lags, damage_ms, settings);
    let culprits: Vec<Suspect> = late
        .iter()
        .filter_map(|lag| convict(evidence, lags, lag, settings))
        .collect();
    match (culprits.is_empty(), late.is_empty()) {
        (false, _) => Verdict::Culprits(culprits),
        (true, false) => doubtful(Doubt::NotSignificant),
        (true, true) if everybody_slow => Verdict::Uniform,
        (true, true) => Verdict::Healthy,
    }
}

/// Ranks whose lag matters and explains the damage, latest first.
fn late_ranks<'a>(
    evidence: &Evidence<'_>,
    lags: &'a Lags,
    damage_ms: Option<f64>,
    settings: &Settings,
) -> Vec<&'a Lag> {
    let gate = match damage_ms {
        Some(damage) => {
            let matters = settings.effect_gate * evidence.period_ms;
            matters.max(settings.explained_share * damage)
        }
        // Arrivals add up over the iterations between two completions, so that small differences between hosts grow:
        // only half an iteration is beyond them.
        None if lags.signal == Signal::Arrival => evidence.period_ms * ARRIVAL_GATE,
        None => settings.unknown_baseline_gate * evidence.period_ms,
    };
    let mut late: Vec<&Lag> = lags
        .ranks
        .iter()
        .filter(|lag| lag.mean_ms >= gate && lag.steady_ms >= gate * STEADY_SHARE)
        // A rank that waits less than its peers may just work in another way, unless the job has become slower.
        .filter(|lag| lag.signal != Signal::Wait || damage_ms.is_some())
        .collect();
    late.sort_by(|a, b| b.mean_ms.total_cmp(&a.mean_ms));
    let root = late.first().map_or(0.0, |lag| lag.mean_ms * ROOT_SHARE);
    late.retain(|lag| lag.mean_ms >= root);
    late
}

/// The rank as a suspect if its lag is beyond the usual scatter.
fn convict(
    evidence: &Evidence<'_>,
    lags: &Lags,
    lag: &Lag,
    settings: &Settings,
) -> Option<Suspect> {
    let n_ranks = lags.ranks.len();
    let sigma = sigma_ms(lags, evidence.period_ms, evidence.usual_sigma_ms);
    // The scatter of the peers, not of the suspect: a fault that comes and goes is irregular by nature.
    let errors: Vec<f64> = lags.ranks.iter().filter_map(|lag| lag.error_ms).collect();
    let z = lag.mean_ms / sigma.hypot(lower_median(&errors).unwrap_or(0.0));
    let critical = critical_z(n_ranks, settings.family_alpha);
    let baseline = match evidence.healthy_ms {
        Some(period_ms) => Baseline::History { period_ms },
        // A lag of arrivals is not the loss of one iteration, so no loss is claimed from it.
        None if lag.signal == Signal::Arrival => Baseline::None {
            period_ms: evidence.period_ms,
        },
        None => Baseline::None {
            period_ms: (evidence.period_ms - lag.mean_ms)
                .max(evidence.period_ms * LEAST_HEALTHY_SHARE),
        },
    };
    (z >= critical).then(|| Suspect {
        lag: lag.clone(),
        z,
        confidence: confidence(z / critical, evidence.coverage, &baseline, n_ranks),
        baseline,
    })
}

/// From 0.5 at the critical z towards 0.99 at twice of it, less for missing ranks and for a missing history. Of two
/// ranks either may be at fault, so two never give more than 0.6.
fn confidence(z_over_critical: f64, coverage: f64, baseline: &Baseline, n_ranks: usize) -> f64 {
    let significance = (z_over_critical / 2.0).min(0.99);
    let history = if matches!(baseline, Baseline::None { .. }) {
        0.7
    } else {
        1.0
    };
    let ceiling = if n_ranks == 2 { 0.6 } else { 0.99 };
    (significance * coverage.min(1.0) * history).min(ceiling)
}

#[cfg(test)]
mod tests;
