//! Slices of received time, and the trusted time that their age is measured by.

use std::time::Duration;

use echo_core::units::Nanos;

const MINUTE: i64 = 60 * 1_000_000_000;

const HOUR: i64 = 60 * MINUTE;

/// Age from which on slices are whole hours.
const HOURS_FROM: Duration = Duration::from_hours(24);

/// Longest plausible gap without events. A longer one may be a clock that jumped ahead.
const MAX_TRUSTED_GAP: i64 = 24 * HOUR;

/// Lead of the machine's clock that is logged.
const LOGGED_LEAD: i64 = HOUR;

/// Slice of received time, `[from, until)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeSlice {
    /// Beginning.
    pub(super) from: Nanos,
    /// End.
    pub(super) until: Nanos,
}

/// Clock of retention: a jump of the system clock is followed at twice the speed of real time, so
/// that one wrong reading does not delete everything.
#[derive(Debug, Default)]
pub(super) struct TrustedTime {
    at: Option<Nanos>,
    is_behind: bool,
}

impl TimeSlice {
    /// Slice of events received at `first` when it exceeds the age limit.
    pub(super) fn for_age(first: Nanos, age: Duration) -> Self {
        Self::at(first, if age < HOURS_FROM { MINUTE } else { HOUR })
    }

    /// Slice to delete when space is needed: an hour; within the latest hour a minute; nothing
    /// within the latest minute. The latest time is that of the events, since the clock can be
    /// wrong.
    pub(super) fn for_size(first: Nanos, last: Nanos) -> Option<Self> {
        let slices = [HOUR, MINUTE].map(|length| Self::at(first, length));
        slices.into_iter().find(|slice| slice.until <= last)
    }

    const fn at(first: Nanos, length: i64) -> Self {
        let from = first.value() - first.value().rem_euclid(length);
        Self {
            from: Nanos::new(from),
            until: Nanos::new(from.saturating_add(length)),
        }
    }
}

impl TrustedTime {
    /// Starts the clock, unless it is running, as if it had always run: it is advanced through the
    /// `minutes` in which events were received. Neither a wrong clock at startup nor timestamps
    /// written by one are trusted. After a long downtime, retention by age lags behind for the same
    /// time.
    pub(super) fn begin<E>(
        &mut self,
        minutes: impl FnOnce() -> Result<Vec<Nanos>, E>,
    ) -> Result<(), E> {
        if self.at.is_none() {
            let mut minutes = minutes()?.into_iter();
            self.at = minutes.next().map(|first| {
                let through = |(at, before): (Nanos, Nanos), minute: Nanos| {
                    let passed = minute.value().saturating_sub(before.value());
                    let believed = if passed > MAX_TRUSTED_GAP {
                        MINUTE
                    } else {
                        passed
                    };
                    (minute.min(at.offset(2 * believed)), minute)
                };
                minutes.fold((first, first), through).0
            });
        }
        Ok(())
    }

    /// Advances the trusted time when the system clock shows `now`, `after` the last reading.
    pub(super) fn advance(&mut self, now: Nanos, after: Duration) -> Nanos {
        let step = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
        let at = match self.at {
            Some(before) => now.min(before.offset(step.saturating_mul(2))),
            None => now,
        };
        self.at = Some(at);
        let is_behind = now.value().saturating_sub(at.value()) > LOGGED_LEAD;
        if is_behind && !self.is_behind {
            tracing::warn!(
                "the clock jumped ahead from {at} to {now}; retention by age follows it slowly"
            );
        }
        self.is_behind = is_behind;
        at
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use echo_core::units::Nanos;

    use super::{HOUR, MINUTE, TimeSlice, TrustedTime};

    fn slice(from: i64, until: i64) -> TimeSlice {
        TimeSlice {
            from: Nanos::new(from),
            until: Nanos::new(until),
        }
    }

    fn begin(time: &mut TrustedTime, hours: &[i64]) {
        let minutes =
            || Ok::<_, Infallible>(hours.iter().map(|hour| Nanos::new(hour * HOUR)).collect());
        time.begin(minutes).unwrap();
    }

    #[test]
    fn slices_are_whole_hours_unless_retention_is_short() {
        let first = Nanos::new(5 * HOUR + 7 * MINUTE + 1);
        let month = Duration::from_hours(720);
        assert_eq!(TimeSlice::for_age(first, month), slice(5 * HOUR, 6 * HOUR));
        let minutes = slice(5 * HOUR + 7 * MINUTE, 5 * HOUR + 8 * MINUTE);
        assert_eq!(TimeSlice::for_age(first, Duration::from_mins(10)), minutes);
    }

    #[test]
    fn the_latest_hour_is_deleted_by_minutes_and_the_latest_minute_is_kept() {
        let first = Nanos::new(5 * HOUR + 1);
        let at = |last: i64| TimeSlice::for_size(first, Nanos::new(last));
        assert_eq!(at(6 * HOUR), Some(slice(5 * HOUR, 6 * HOUR)));
        assert_eq!(at(6 * HOUR - 1), Some(slice(5 * HOUR, 5 * HOUR + MINUTE)));
        assert_eq!(at(5 * HOUR + MINUTE - 1), None);
    }

    #[test]
    fn a_clock_that_is_wrong_from_the_start_is_followed_slowly_from_the_newest_event() {
        let mut time = TrustedTime::default();
        begin(&mut time, &[99, 100]);
        let wrong = Nanos::new(9_000 * HOUR);
        let believed = time.advance(wrong, Duration::from_secs(5));
        assert_eq!(believed.value(), 100 * HOUR + 10_000_000_000);
        begin(&mut time, &[9_000]);
        let right = Nanos::new(99 * HOUR);
        assert_eq!(time.advance(right, Duration::from_secs(5)), right);
    }

    #[test]
    fn timestamps_of_a_wrong_clock_are_not_trusted_after_a_restart() {
        let begun = |hours: &[i64]| {
            let mut time = TrustedTime::default();
            begin(&mut time, hours);
            time.at.map(Nanos::value)
        };
        assert_eq!(begun(&[]), None);
        assert_eq!(begun(&[0, 1, 25, 49]), Some(49 * HOUR));
        let jumped = begun(&[0, 1, 9_000]);
        assert_eq!(jumped, Some(HOUR + 2 * MINUTE));
        let caught_up = begun(&[0, 1, 51, 60, 80, 101]);
        assert_eq!(caught_up, Some(101 * HOUR), "after as much time as the gap");
    }

    #[test]
    fn a_clock_jump_ahead_is_followed_slowly_and_one_back_at_once() {
        let mut time = TrustedTime::default();
        let tick = Duration::from_secs(5);
        let mut read = |now: i64| time.advance(Nanos::new(now), tick).value();
        assert_eq!(read(100 * HOUR), 100 * HOUR);
        let jumped = 9_000 * HOUR;
        assert_eq!(read(jumped), 100 * HOUR + 10_000_000_000);
        assert_eq!(read(jumped), 100 * HOUR + 20_000_000_000);
        assert_eq!(read(90 * HOUR), 90 * HOUR);
    }
}
