//! Changes of each rank's waits since its job became slow, and the rank that causes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use echo_core::ids::Rank;

use super::tick::{Tick, Waits, root_mean_square, small_sample_factor, windows};

/// Smallest plausible scatter of a share of time.
const LEAST_SCATTER: f64 = 0.01;

/// Smallest reduction of a rank's wait compared with its peers, as a share of the loss, to be the
/// cause.
const EXPLAINED: f64 = 0.4;

/// Largest increase of the wait of the causing rank itself, as a share of the loss.
const OWN_WAIT: f64 = 0.25;

/// Smallest reduction of the wait of a pipeline stage, as a share of its former wait, if the others
/// wait for it. The waits of the others are measured only in part: if operations are sent and
/// received in one group, the GPU times only the first one.
const RELIEVED: f64 = 0.5;

/// Standard errors by which a change must exceed the largest change expected by chance, and the
/// value for a job that has been slow for a long time, milliseconds.
const MARGIN: f64 = 2.0;
const LONG_MARGIN: f64 = 1.4;
const LONG_MS: f64 = 10_000.0;

/// Standard errors of a change that supports a finding of another signal.
const Z_SUPPORT: f64 = 1.5;

/// Change of one rank's waits, as a share of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Rank.
    pub rank: Rank,
    /// True if no other rank of its role reports: a stage of a pipeline.
    pub is_alone: bool,
    /// Inside collectives, by its GPU.
    pub device: Option<Change>,
    /// Blocked in synchronisation, by its host.
    pub host: Option<Change>,
}

/// A change of a share of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Share before the change, 0 to 1.
    pub before: f64,
    /// Share since the change less the share before, -1 to 1.
    pub by: f64,
    /// Standard error of that.
    pub error: f64,
}

/// The rank that a job waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowRank {
    /// Rank.
    pub rank: Rank,
    /// Increase of the peers' wait relative to its own, as a share of the time.
    pub rise: f64,
    /// The same increase in standard errors.
    pub z: f64,
    /// True if its GPU shows the increase.
    pub by_device: bool,
    /// True if its host shows the increase.
    pub by_host: bool,
}

/// Changes of the ranks' waits between the past and now, and their usual size within `window_ms`.
pub(super) fn shifts(past: &VecDeque<Tick>, now: &[&Tick], window_ms: f64) -> Vec<Shift> {
    let ranks: BTreeSet<Rank> = now
        .iter()
        .flat_map(|tick| tick.waits.keys())
        .copied()
        .collect();
    let lasted_ms: f64 = now.iter().map(|tick| tick.elapsed_ms).sum();
    let windows = windows(past, window_ms);
    let spread = Spread {
        windows: &windows,
        small_sample_factor: small_sample_factor(past, window_ms),
        shrink: (window_ms / lasted_ms).sqrt().min(1.0),
    };
    let all: Vec<&Tick> = past.iter().collect();
    let shift = |rank: Rank| {
        let change = |of: fn(&Waits) -> Option<f64>| {
            let before = share(&all, rank, of)?;
            Some(Change {
                before,
                by: share(now, rank, of)? - before,
                error: spread.error(rank, before, of),
            })
        };
        Shift {
            rank,
            is_alone: ranks.len() == 1,
            device: change(|waits| waits.device),
            host: change(|waits| waits.host),
        }
    };
    ranks.iter().copied().map(shift).collect()
}

/// Usual scatter of a rank's share.
struct Spread<'t> {
    windows: &'t [Vec<&'t Tick>],
    small_sample_factor: f64,
    shrink: f64,
}

impl Spread<'_> {
    fn error(&self, rank: Rank, before: f64, of: fn(&Waits) -> Option<f64>) -> f64 {
        let shares = self
            .windows
            .iter()
            .filter_map(|window| share(window, rank, of));
        let scatter = root_mean_square(shares.map(|share| share - before));
        (scatter * self.small_sample_factor).max(LEAST_SCATTER) * self.shrink
    }
}

/// Share of the time that a rank waited.
fn share(ticks: &[&Tick], rank: Rank, of: fn(&Waits) -> Option<f64>) -> Option<f64> {
    let (mut waited_ms, mut elapsed_ms) = (0.0, 0.0);
    for tick in ticks {
        if let Some(waited) = tick.waits.get(&rank).and_then(of) {
            waited_ms += waited;
            elapsed_ms += tick.elapsed_ms;
        }
    }
    (elapsed_ms > 0.0).then(|| waited_ms / elapsed_ms)
}

/// Increase of the peers' wait relative to each rank: the change of the median of the others less
/// the change of the rank itself.
fn rises(shifts: &[Shift], of: fn(&Shift) -> Option<Change>) -> BTreeMap<Rank, Rise> {
    let known: Vec<(Rank, Change)> = shifts
        .iter()
        .filter_map(|shift| Some((shift.rank, of(shift)?)))
        .collect();
    let sorted = |of: fn(&Change) -> f64| {
        let mut values: Vec<f64> = known.iter().map(|(_, change)| of(change)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (by, errors) = (sorted(|change| change.by), sorted(|change| change.error));
    let rise = |(rank, own): &(Rank, Change)| {
        let rise = median_without(&by, own.by)? - own.by;
        let z = rise / (own.error + median_without(&errors, own.error)?);
        Some((*rank, (rise, z)))
    };
    known.iter().filter_map(rise).collect()
}

/// Median of sorted values without one of them, in logarithmic time, because a job may have 10,000
/// ranks.
fn median_without(sorted: &[f64], one: f64) -> Option<f64> {
    let at = sorted.partition_point(|value| value.total_cmp(&one).is_lt());
    let other = |index: usize| sorted.get(index + usize::from(index >= at)).copied();
    let n = sorted.len().checked_sub(1).filter(|n| *n > 0)?;
    Some(f64::midpoint(other((n - 1) / 2)?, other(n / 2)?))
}

/// Increase of the peers' wait relative to a rank, as a share of the time and in standard errors.
type Rise = (f64, f64);

/// Combined evidence of a job's ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct ShiftEvidence {
    device: BTreeMap<Rank, Rise>,
    host: BTreeMap<Rank, Rise>,
    own: BTreeMap<Rank, Shift>,
    lost: f64,
    critical_z: f64,
}

impl ShiftEvidence {
    /// Compares the ranks of a job that has lost a share of its time for this long, milliseconds.
    pub fn from_shifts(shifts: &[Shift], (lost, lasted_ms): (f64, f64)) -> Self {
        Self {
            device: rises(shifts, |shift| shift.device),
            host: rises(shifts, |shift| shift.host),
            own: shifts.iter().map(|shift| (shift.rank, *shift)).collect(),
            lost,
            critical_z: critical_z(shifts.len(), lasted_ms),
        }
    }

    /// Number of ranks that can be compared.
    pub fn n_ranks(&self) -> usize {
        self.device.len().max(self.host.len())
    }

    /// The rank that the job waits for, if the change exceeds the usual alternation of ranks;
    /// `None` for no rank or several.
    pub fn slow_rank(&self) -> Option<SlowRank> {
        let slow_rank = self.candidate()?;
        (slow_rank.z >= self.critical_z).then_some(slow_rank)
    }

    /// The rank whose wait was reduced by as much as was lost, significantly or not.
    pub fn candidate(&self) -> Option<SlowRank> {
        let by_device = self.most(&self.device, |own| own.device);
        let by_host = self.most(&self.host, |own| own.host);
        let (rank, (rise, z)) = match (by_device, by_host) {
            (Some(device), Some(host)) if device.0 != host.0 => {
                // The GPU measures its waits better, unless only the host shows a change.
                if device.1.1 >= self.critical_z {
                    device
                } else {
                    host
                }
            }
            (Some(device), Some(host)) if host.1.1 > device.1.1 => host,
            (Some(device), _) => device,
            (None, host) => host?,
        };
        if self.is_contradicted(rank) {
            return None;
        }
        Some(SlowRank {
            rank,
            rise,
            z,
            by_device: by_device.is_some_and(|(of, _)| of == rank),
            by_host: by_host.is_some_and(|(of, _)| of == rank),
        })
    }

    /// Returns true if the other ranks wait less for this one than before although the job lost
    /// time: then it is not the cause.
    pub fn is_contradicted(&self, rank: Rank) -> bool {
        let device = self.device.get(&rank).map(|(rise, _)| *rise);
        device.is_some_and(|rise| rise <= -OWN_WAIT * self.lost)
    }

    /// Returns true if a signal shows significantly that the others wait for this rank, but not
    /// enough to name it.
    pub fn supports(&self, rank: Rank) -> bool {
        let is_shown = |rises: &BTreeMap<Rank, Rise>, of: fn(&Shift) -> Option<Change>| {
            let rise = rises.get(&rank);
            rise.is_some_and(|rise| self.explains(rank, *rise, of) && rise.1 >= Z_SUPPORT)
        };
        is_shown(&self.device, |own| own.device) || is_shown(&self.host, |own| own.host)
    }

    /// The rank with the largest increase, if that explains the loss and the rank itself does not
    /// wait longer.
    fn most(
        &self,
        rises: &BTreeMap<Rank, Rise>,
        of: fn(&Shift) -> Option<Change>,
    ) -> Option<(Rank, Rise)> {
        let (rank, most) = rises.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let own = self.own.get(rank).and_then(of)?;
        let is_slow_rank = self.explains(*rank, *most, of) && own.by <= OWN_WAIT * self.lost;
        is_slow_rank.then_some((*rank, *most))
    }

    /// Returns true if the increase of the peers' wait relative to this rank explains the loss.
    fn explains(&self, rank: Rank, (rise, _): Rise, of: fn(&Shift) -> Option<Change>) -> bool {
        if rise >= EXPLAINED * self.lost {
            return true;
        }
        let Some((shift, own)) = self
            .own
            .get(&rank)
            .and_then(|shift| Some((shift, of(shift)?)))
        else {
            return false;
        };
        // If all stages of a pipeline were slower alike, all would wait for the same share of the
        // time as before.
        shift.is_alone
            && own.before > LEAST_SCATTER
            && own.by <= -RELIEVED * own.before
            && rise + own.by > 0.0
    }
}

/// Standard errors that the largest of `n` changes must exceed: two more than expected by chance,
/// fewer for a job that stays slow for a long time, since alternations end.
#[expect(
    clippy::cast_precision_loss,
    reason = "the number of ranks is far below 2^53"
)]
fn critical_z(n: usize, lasted_ms: f64) -> f64 {
    let margin = if lasted_ms >= LONG_MS {
        LONG_MARGIN
    } else {
        MARGIN
    };
    margin + (2.0 * (n.max(1) as f64).ln()).sqrt()
}

#[cfg(test)]
mod tests {
    use echo_core::ids::Rank;
    use echo_core::stats::median;
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::{Change, Shift, ShiftEvidence, median_without};

    #[test]
    fn one_value_has_no_others() {
        assert_eq!(median_without(&[1.0], 1.0), None);
    }

    fn stage(rank: u32, (before, now): (f64, f64)) -> Shift {
        let change = Change {
            before,
            by: now - before,
            error: 0.01,
        };
        Shift {
            rank: Rank::new(rank),
            is_alone: true,
            device: Some(change),
            host: None,
        }
    }

    fn slow_rank(shifts: &[Shift]) -> Option<Rank> {
        let shift_evidence = ShiftEvidence::from_shifts(shifts, (0.4, 12_000.0));
        shift_evidence.slow_rank().map(|slow_rank| slow_rank.rank)
    }

    #[test]
    fn a_stage_that_hardly_waits_any_more_is_what_the_next_one_waits_for() {
        let slow = [stage(0, (0.04, 0.003)), stage(1, (0.10, 0.145))];
        assert_eq!(slow_rank(&slow), Some(Rank::new(0)));
    }

    #[test]
    fn stages_that_all_wait_as_much_as_before_or_more_are_not_named() {
        assert_eq!(
            slow_rank(&[stage(0, (0.04, 0.04)), stage(1, (0.10, 0.10))]),
            None
        );
        // It never waited, so it cannot wait less.
        assert_eq!(
            slow_rank(&[stage(0, (0.0, 0.0)), stage(1, (0.10, 0.25))]),
            None
        );
        assert_eq!(
            slow_rank(&[stage(0, (0.04, 0.09)), stage(1, (0.10, 0.16))]),
            None
        );
        assert_eq!(
            slow_rank(&[stage(0, (0.04, 0.003)), stage(1, (0.10, 0.06))]),
            None
        );
    }

    #[test]
    fn ranks_with_peers_are_named_only_for_the_time_lost() {
        let alone = [stage(0, (0.04, 0.003)), stage(1, (0.10, 0.145))];
        let peers = alone.map(|shift| Shift {
            is_alone: false,
            ..shift
        });
        assert_eq!(slow_rank(&peers), None);
    }

    proptest! {
        #[test]
        fn the_median_of_the_others_is_that_of_the_values_without_one(
            mut values in proptest::collection::vec(-1.0..1.0_f64, 2..40),
            one in 0_usize..40,
        ) {
            values.sort_by(f64::total_cmp);
            let one = one % values.len();
            let mut others = values.clone();
            let removed = others.remove(one);
            prop_assert_eq!(median_without(&values, removed), median(&others));
        }
    }
}
