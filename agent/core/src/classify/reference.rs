//! What a block is compared with, and how long a policy may be used for it.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use fleet_proto::attribute;
use fleet_proto::policy::CohortPolicy;

use crate::verdict::{Measure, Mode};

/// A policy is used until it is so many times as old as it was meant to get, and called stale when past that once.
const STALE_VALIDITIES: i128 = 5;
/// Validity of a policy that does not tell when it was computed, nanoseconds.
const USUAL_VALIDITY_NS: i128 = 60_000_000_000;
/// Policies over which the difference between the clocks is taken.
const MAX_OFFSETS: usize = 16;
/// Smallest standard deviation, milliseconds, and as a share of the period, as in the collector: what is measured
/// exactly alike must not make a verdict out of nothing.
const FLOOR_MS: f64 = 0.05;
const FLOOR_SHARE: f64 = 0.0025;
/// Periods that a policy may tell, milliseconds: a microsecond to eleven days. What lies outside is damaged, and dividing by
/// it would end in infinity.
const PERIODS_MS: RangeInclusive<f64> = 1e-3..=1e9;
/// Centres and standard deviations that a policy may tell lie within this, milliseconds.
const MAX_MS: f64 = 1e9;

/// How a block reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lateness {
    /// Significant and large enough to matter.
    Late,
    /// Less than half of either.
    OnTime,
    /// Neither.
    Borderline,
}

/// What counts as late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gates {
    pub(super) effect: f64,
    pub(super) critical_z: f64,
}

impl Default for Gates {
    /// Stricter than the collector for the effect, because nobody is there to compare with.
    fn default() -> Self {
        Self {
            effect: 0.05,
            critical_z: 3.5,
        }
    }
}

/// Centre, scale and gates.
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

/// The entry of the own cohort in the last policy set that had one.
///
/// `valid_until` is time of the cohort's clock and blocks are stamped by the host's, and hosts' clocks are wrong by
/// seconds or more. So the difference between the two is taken where both are known, at the arrival of a policy:
/// own time then, less the time at which the policy was computed. That difference holds the delay of the policy
/// too, which is never negative, so the smallest of the last few differences is the best one. A host whose clock is
/// hours wrong ages its policies as well as any other; a clock that is set forward makes them look old for as many
/// policies as are remembered, which is the safe side.
#[derive(Debug)]
pub(super) struct AdoptedPolicy {
    policy: CohortPolicy,
    set_version: u64,
    computed_ns: u64,
    offsets_ns: VecDeque<i128>,
}

impl AdoptedPolicy {
    /// The next entry, after an earlier one: version of its set, when that was computed, and the entry itself.
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

    /// Whether the entry may be used for a block that ended at `time_ns` of the host's clock, and how it is called.
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

    /// The gates, which hold for the own past too.
    pub(super) fn gates(&self) -> Option<Gates> {
        let (effect, critical_z) = (self.policy.effect_gate, self.policy.critical_z);
        let is_usable = |value: f64| value.is_finite() && value > 0.0;
        (is_usable(effect) && is_usable(critical_z)).then_some(Gates { effect, critical_z })
    }

    /// The cohort as a standard; none without a quorum or with numbers that say nothing. The own period stands in
    /// for one that the cohort does not know yet.
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
