//! Significance of a lag against the usual scatter.

use echo_core::model::detector_output::{Baseline, Signal};
use echo_core::stats::multiplicity::{Tail, discovery_threshold, upper_tail};
use echo_core::stats::series::{effective_size, lag_one_correlation};
use echo_core::stats::{late_sigma, lower_median};

use super::{Candidate, Evidence, WindowKind, baseline};
use crate::baseline::Scatter;
use crate::lag::rank_order::FEW_RANKS;
use crate::lag::{Lag, Lags};
use crate::settings::Settings;

/// Smallest scale that lags are measured against, milliseconds: exact ties must not divide by zero.
const FLOOR_MS: f64 = 0.05;

/// Smallest scale as a share of the period.
const FLOOR_SHARE: f64 = 0.0025;

/// Standard deviation that lags are measured against, milliseconds: the cohort's own history, else
/// the scatter of the ranks in this window.
pub fn sigma_ms(lags: &Lags, period_ms: f64, usual: Option<Scatter>) -> f64 {
    let floor = FLOOR_MS.max(FLOOR_SHARE * period_ms);
    let means: Vec<f64> = lags.ranks.iter().map(|lag| lag.mean_ms).collect();
    let usual = usual.map(|usual| usual.sigma_ms);
    let scale = usual.or_else(|| late_sigma(&means)).unwrap_or(0.0);
    scale.hypot(floor)
}

/// Largest p-value of the rank order that is significant: always last in six rounds of four ranks,
/// or in five rounds of eight.
const PLACE_P: f64 = 1e-3;

/// The same for two ranks: 23 rounds. One of two is always last, and with correlated noise it is
/// the same one for a while.
const PLACE_P_OF_TWO: f64 = 1e-6;

/// Maximum number of correlated rounds per independent round: `(1 + rho) / (1 - rho)` for a
/// correlation of 0.9 between consecutive iterations, the strongest in the benchmark. Only a
/// history shows the real correlation.
const CORRELATED: f64 = 19.0;

/// Smallest loss, as a share of the period, for which the rank order counts in full.
const BOLD_SHARE: f64 = 0.1;

/// Scale that lags of one window are measured against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Standard deviation of lags, milliseconds.
    pub sigma_ms: f64,
    /// Smallest z-score that counts.
    pub critical_z: f64,
    tail: Tail,
    window_kind: WindowKind,
    /// Largest significant p-value; `None` if no p-value is small enough.
    max_p: Option<f64>,
    /// Level at which the rank order must agree, because there are too few ranks for a scale and no
    /// history.
    place_p: Option<f64>,
    /// Smallest loss for which the rank order counts in full, milliseconds.
    bold_ms: f64,
    /// Excess duration of an iteration over a healthy one, milliseconds, when known.
    damage_ms: Option<f64>,
}

impl Scale {
    /// The scale of a window.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of ranks is far below 2^53"
    )]
    pub fn from_lags(lags: &Lags, evidence: &Evidence<'_>, settings: &Settings) -> Self {
        let sigma = sigma_ms(lags, evidence.period_ms, evidence.usual);
        let n_ranks = lags.ranks.len();
        let n_tests = evidence.n_tests.max(n_ranks);
        // Few ranks without a history give no reliable scale: the rank order decides.
        let by_place = evidence.usual.is_none() && n_ranks <= FEW_RANKS;
        let tail = match evidence.usual {
            Some(usual) => Tail::from_mad(usual.n_lags),
            None if by_place => Tail::NORMAL,
            None => Tail::from_mad(n_ranks),
        };
        let mut scale = Self {
            sigma_ms: sigma.hypot(usual_error_ms(lags)),
            critical_z: tail.critical(n_tests, settings.family_alpha),
            tail,
            window_kind: evidence.window_kind,
            bold_ms: BOLD_SHARE * evidence.period_ms,
            damage_ms: evidence.damage_ms(),
            max_p: None,
            place_p: by_place.then_some(if n_ranks == 2 {
                PLACE_P_OF_TWO
            } else {
                PLACE_P
            }),
        };
        let p_of = |lag: &Lag| tail.above(scale.z(lag));
        let p_values: Vec<f64> = lags.ranks.iter().map(p_of).collect();
        // This cohort's part of the false discoveries allowed in one tick over the whole job.
        let q = settings.discovery_rate * n_ranks as f64 / n_tests as f64;
        scale.max_p = discovery_threshold(&p_values, q);
        scale
    }

    /// Modified z-score of a lag: of the typical lag over a few iterations, of the mean lag over
    /// many, where rare stalls count as well.
    pub fn z(&self, lag: &Lag) -> f64 {
        let ms = match self.window_kind {
            WindowKind::Short if lag.signal != Signal::Wait => lag.mean_ms.min(lag.typical_ms()),
            WindowKind::Short | WindowKind::Long | WindowKind::SinceSlow => lag.mean_ms,
        };
        ms / self.sigma_ms
    }

    /// Certain loss per iteration caused by a lag, milliseconds.
    fn loss_ms(&self, lag: &Lag) -> f64 {
        self.damage_ms
            .map_or_else(|| lag.certain_ms(), |damage| lag.mean_ms.min(damage))
    }

    /// Returns true if a lag is significant by all tests.
    pub fn is_significant(&self, lag: &Lag) -> bool {
        let z = self.z(lag);
        let is_discovery = self.max_p.is_some_and(|p| self.tail.above(z) <= p);
        let is_last = match (self.place_p, lag.place) {
            (Some(p), Some(place)) if self.loss_ms(lag) >= self.bold_ms => upper_tail(place.z) <= p,
            (Some(_), Some(place)) => upper_tail(place.z / CORRELATED.sqrt()) <= PLACE_P,
            _ => true,
        };
        z >= self.critical_z && is_discovery && is_last
    }

    /// Returns the rank as a candidate.
    pub fn candidate(&self, lag: &Lag, evidence: &Evidence<'_>) -> Candidate {
        let baseline = baseline(lag, evidence);
        let n_ranks = evidence.lags.map_or(0, |lags| lags.ranks.len());
        let z = self.z(lag);
        Candidate {
            lag: lag.clone(),
            z,
            confidence: confidence(z / self.critical_z, evidence.coverage, &baseline, n_ranks),
            baseline,
        }
    }
}

/// Standard error of the peers' lags, widened for correlation between neighbouring blocks,
/// milliseconds. The candidate is left out: an intermittent fault is irregular by nature.
#[expect(
    clippy::cast_precision_loss,
    reason = "blocks of one window stay far below 2^53"
)]
fn usual_error_ms(lags: &Lags) -> f64 {
    let errors: Vec<f64> = lags.ranks.iter().filter_map(|lag| lag.error_ms).collect();
    let Some(error) = lower_median(&errors) else {
        return 0.0;
    };
    let series: Vec<&[f64]> = lags.ranks.iter().map(|lag| lag.series.as_slice()).collect();
    let n = series.first().map_or(0, |series| series.len()) as f64;
    let widened = n / effective_size(n, lag_one_correlation(&series)).max(1.0);
    error * widened.max(1.0).sqrt()
}

/// Confidence from 0.5 at the critical z towards 0.99 at twice the critical z, less for missing
/// ranks and for a missing history. With two ranks either may be at fault, so it is at most 0.6.
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
