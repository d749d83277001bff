//! References that blocks are compared with, and the validity of policies.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use fleet_proto::attribute;
use fleet_proto::policy::CohortPolicy;

use crate::verdict::{Measure, Mode};

/// A policy is used until its age reaches this many times its validity; past its validity it is
/// stale.
const STALE_VALIDITIES: i128 = 5;
/// Validity of a policy without a computation time, nanoseconds.
const USUAL_VALIDITY_NS: i128 = 60_000_000_000;
/// Number of policies over which the clock offset is estimated.
const MAX_OFFSETS: usize = 16;
/// Minimum standard deviation, milliseconds, and as a fraction of the period, as in the collector:
/// identical measurements must not cause a verdict.
const FLOOR_MS: f64 = 0.05;
const FLOOR_SHARE: f64 = 0.0025;
/// Plausible periods of a policy, milliseconds: a microsecond to eleven days. Others are corrupt,
/// and dividing by them would yield infinity.
const PERIODS_MS: RangeInclusive<f64> = 1e-3..=1e9;
/// Maximum absolute center and standard deviation of a policy, milliseconds.
const MAX_MS: f64 = 1e9;

/// Lateness of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lateness {
    /// Significant and large enough to matter.
    Late,
    /// Less than half of the significance or of the effect.
    OnTime,
    /// Neither late nor on time.
    Borderline,
}

/// Thresholds of lateness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gates {
    pub(super) effect: f64,
    pub(super) critical_z: f64,
}

impl Default for Gates {
    /// Stricter than the collector for the effect, because there are no peers to compare with.
    fn default() -> Self {
        Self {
            effect: 0.05,
            critical_z: 3.5,
        }
    }
}

/// Center, scale and thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reference {
    pub(super) center_ms: f64,
    pub(super) sigma_ms: f64,
    pub(super) period_ms: f64,
    pub(super) gates: Gates,
}

impl Reference {
    pub(super) fn measure(&self, gap_ms: f64) -> Measure {
        let lag_ms = gap_ms - self.center_ms;
        let floor_ms = FLOOR_MS.max(FLOOR_SHARE * self.period_ms);
        Measure {
            lag_ms,
            z: lag_ms / self.sigma_ms.max(floor_ms),
            effect_ratio: lag_ms / self.period_ms,
        }
    }

    pub(super) fn lateness(&self, gap_ms: f64) -> Lateness {
        let Measure {
            z, effect_ratio, ..
        } = self.measure(gap_ms);
        let Gates { effect, critical_z } = self.gates;
        if effect_ratio >= effect && z >= critical_z {
            Lateness::Late
        } else if effect_ratio < effect / 2.0 || z < critical_z / 2.0 {
            Lateness::OnTime
        } else {
            Lateness::Borderline
        }
    }
}

/// Entry of a cohort in a policy set.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicyEntry<'a> {
    /// Version of the set.
    pub(super) set_version: u64,
    /// Time at which the set was computed, Unix nanoseconds; 0 when unknown.
    pub(super) computed_ns: u64,
    pub(super) policy: &'a CohortPolicy,
}

/// Entry of the own cohort in the last policy set that had one.
///
/// `valid_until` is a time of the cohort's clock, while blocks are stamped by the host's clock, and
/// clocks of hosts may be wrong by seconds or more. So the offset between the two is measured where
/// both are known, at the arrival of a policy: own time minus the time at which the policy was
/// computed. The offset includes the delay of the policy, which is never negative, so the smallest
/// of the last few offsets is the best one. A host whose clock is hours wrong ages its policies
/// correctly; a clock that is set forward makes them look old for as many policies as are kept,
/// which is the safe side.
#[derive(Debug)]
pub(super) struct AdoptedPolicy {
    policy: CohortPolicy,
    set_version: u64,
    computed_ns: u64,
    offsets_ns: VecDeque<i128>,
}

impl AdoptedPolicy {
    /// Returns the state after the next entry, given the state before.
    pub(super) fn update(before: Option<Self>, entry: PolicyEntry<'_>, now_ns: u64) -> Self {
        let PolicyEntry {
            set_version,
            computed_ns,
            policy,
        } = entry;
        let mut offsets_ns = VecDeque::new();
        if let Some(before) = before {
            if (before.set_version, before.computed_ns) == (set_version, computed_ns) {
                return before;
            }
            offsets_ns = before.offsets_ns;
        }
        if computed_ns > 0 {
            offsets_ns.push_back(i128::from(now_ns) - i128::from(computed_ns));
            if offsets_ns.len() > MAX_OFFSETS {
                offsets_ns.pop_front();
            }
        }
        Self {
            policy: policy.clone(),
            set_version,
            computed_ns,
            offsets_ns,
        }
    }

    pub(super) fn is_for(&self, cohort: Option<&str>) -> bool {
        cohort == Some(self.policy.cohort.as_str())
    }

    pub(super) fn set_version(&self) -> u64 {
        self.set_version
    }

    pub(super) fn is_about_gaps(&self) -> bool {
        self.policy.signal == attribute::SIGNAL_HOST_GAP
    }

    /// Returns the mode in which the entry may be used for a block that ended at `time_ns` of the
    /// host's clock; `None` if it is too old.
    pub(super) fn mode(&self, time_ns: u64) -> Option<Mode> {
        let offset_ns = self.offsets_ns.iter().min().copied().unwrap_or(0);
        let now_ns = i128::from(time_ns) - offset_ns;
        let until_ns = i128::from(self.policy.valid_until_unix_nano);
        let validity_ns = match self.computed_ns {
            0 => USUAL_VALIDITY_NS,
            computed_ns => (until_ns - i128::from(computed_ns)).max(0),
        };
        if now_ns <= until_ns {
            Some(Mode::Fleet)
        } else if now_ns - until_ns < (STALE_VALIDITIES - 1) * validity_ns {
            Some(Mode::Stale)
        } else {
            None
        }
    }

    /// Returns the thresholds, which apply to the own history, too.
    pub(super) fn gates(&self) -> Option<Gates> {
        let (effect, critical_z) = (self.policy.effect_gate, self.policy.critical_z);
        let is_usable = |value: f64| value.is_finite() && value > 0.0;
        (is_usable(effect) && is_usable(critical_z)).then_some(Gates { effect, critical_z })
    }

    /// Returns the cohort as a reference; `None` without a quorum or with implausible numbers. The
    /// own period replaces one that the cohort does not know yet.
    pub(super) fn reference(&self, own_period_ms: Option<f64>) -> Option<Reference> {
        let CohortPolicy {
            center_ms,
            sigma_ms,
            period_ms,
            ..
        } = self.policy;
        let gates = self.gates()?;
        let is_plausible = |value: f64| value.abs() <= MAX_MS;
        let is_usable = self.policy.quorum_met && is_plausible(center_ms) && is_plausible(sigma_ms);
        let period_ms = Some(period_ms).filter(|ms| PERIODS_MS.contains(ms));
        is_usable.then_some(Reference {
            center_ms,
            sigma_ms,
            period_ms: period_ms.or(own_period_ms)?,
            gates,
        })
    }
}
