//! Times and windows.

use std::fmt;
use std::time::Duration;

/// An instant in Unix nanoseconds. Event times are checked by [`Nanos::plausible`] on ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(i64);

/// Nanoseconds in one millisecond.
pub const NANOS_PER_MILLI: f64 = 1e6;

/// Milliseconds in one hour.
pub const MILLIS_PER_HOUR: f64 = 3_600_000.0;

impl Nanos {
    /// First plausible instant, 2020-01-01: earlier ones come from clocks that were never set.
    pub const EARLIEST: Self = Self(1_577_836_800_000_000_000);

    /// First implausible instant after that, 2100-01-01.
    pub const LATEST: Self = Self(4_102_444_800_000_000_000);

    /// Creates an instant from Unix nanoseconds.
    pub const fn new(unix_nanos: i64) -> Self {
        Self(unix_nanos)
    }

    /// The instant as Unix nanoseconds.
    pub const fn value(self) -> i64 {
        self.0
    }

    /// Accepts the unsigned form of OTLP if it lies between [`Self::EARLIEST`] and
    /// [`Self::LATEST`].
    pub fn plausible(unix_nanos: u64) -> Option<Self> {
        let instant = Self(i64::try_from(unix_nanos).ok()?);
        (Self::EARLIEST <= instant && instant < Self::LATEST).then_some(instant)
    }

    /// Milliseconds from `earlier` to this instant; negative when it lies before.
    #[expect(
        clippy::cast_precision_loss,
        reason = "differences of event times stay far below 2^53 nanoseconds"
    )]
    pub fn millis_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / NANOS_PER_MILLI
    }

    /// The instant `nanos` later (or earlier when negative), limited to the range.
    #[must_use]
    pub const fn offset(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// The instant `span` before, limited to the range.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// The instant `span` after, limited to the range.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "{}ns", self.0),
        }
    }
}

/// A half-open span of event time `[from, to)`, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    from: Nanos,
    to: Nanos,
}

impl Window {
    /// The window from `from` (inclusive) to `to` (exclusive); `None` if it would be empty.
    pub fn new(from: Nanos, to: Nanos) -> Option<Self> {
        (from < to).then_some(Self { from, to })
    }

    /// First instant inside.
    pub const fn from(self) -> Nanos {
        self.from
    }

    /// First instant after.
    pub const fn to(self) -> Nanos {
        self.to
    }

    /// Length in milliseconds.
    pub fn millis(self) -> f64 {
        self.to.millis_since(self.from)
    }

    /// Hours that begin inside, in order.
    pub fn hours(self) -> impl Iterator<Item = Hour> {
        let first = Hour::containing(self.from.offset(Hour::NANOS - 1));
        std::iter::successors(Some(first), |hour| Some(Hour::containing(hour.end())))
            .take_while(move |hour| hour.begin() < self.to)
    }

    /// Returns true if the instant lies inside.
    pub fn contains(self, instant: Nanos) -> bool {
        self.from <= instant && instant < self.to
    }
}

/// An hour of UTC, the unit of stored costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(Nanos);

impl Hour {
    /// Nanoseconds in one hour.
    pub const NANOS: i64 = 3_600 * 1_000_000_000;

    /// The hour that contains an instant.
    pub const fn containing(instant: Nanos) -> Self {
        Self(instant.offset(-instant.value().rem_euclid(Self::NANOS)))
    }

    /// First instant inside.
    pub const fn begin(self) -> Nanos {
        self.0
    }

    /// First instant after.
    pub const fn end(self) -> Nanos {
        self.0.offset(Self::NANOS)
    }

    /// The hour as a window.
    pub const fn window(self) -> Window {
        Window {
            from: self.0,
            to: self.end(),
        }
    }

    /// Returns true if an hour begins at the instant.
    pub const fn begins_at(instant: Nanos) -> bool {
        instant.value().rem_euclid(Self::NANOS) == 0
    }
}

/// GPU time in whole microseconds: one GPU for one second is a million. Sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GpuTime(i64);

impl GpuTime {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Microseconds in one hour.
    pub const MICROS_PER_HOUR: i64 = 3_600_000_000;

    /// Creates a time from microseconds.
    pub const fn new(micros: i64) -> Self {
        Self(micros)
    }

    /// Rounds milliseconds to the microsecond; NaN becomes zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the conversion saturates and turns NaN into zero"
    )]
    pub fn from_millis(millis: f64) -> Self {
        Self((millis * 1e3).round() as i64)
    }

    /// The time in microseconds.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The time in hours.
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 microseconds are 285 GPU-years, and the sums before were exact"
    )]
    pub fn hours(self) -> f64 {
        self.0 as f64 / Self::MICROS_PER_HOUR as f64
    }
}

impl std::ops::Add for GpuTime {
    type Output = Self;

    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl std::iter::Sum for GpuTime {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, |sum, time| sum + time)
    }
}

#[cfg(test)]
mod tests {
    use super::{Hour, Nanos, Window};

    #[test]
    fn an_hour_has_its_first_instant_and_not_its_last() {
        let begin = Nanos::EARLIEST;
        let hour = Hour::containing(begin.offset(Hour::NANOS - 1));
        assert_eq!((hour, hour.begin()), (Hour::containing(begin), begin));
        assert!(Hour::begins_at(hour.end()));
        assert_ne!(Hour::containing(hour.end()), hour);
        let window = Window::new(begin.offset(1), begin.offset(3 * Hour::NANOS)).unwrap();
        let begins: Vec<i64> = window
            .hours()
            .map(|hour| (hour.begin().value() - begin.value()) / Hour::NANOS)
            .collect();
        assert_eq!(begins, [1, 2]);
    }

    #[test]
    fn clocks_that_were_never_set_are_not_plausible() {
        assert_eq!(Nanos::plausible(0), None);
        assert_eq!(
            Nanos::plausible(9_223_372_036_854_775_807),
            None,
            "the year 2262"
        );
        assert_eq!(Nanos::plausible(u64::MAX), None);
        assert!(Nanos::plausible(1_763_700_000_000_000_000).is_some());
    }

    #[test]
    fn a_window_is_half_open_and_never_empty() {
        let (a, b) = (Nanos::new(10), Nanos::new(20));
        let window = Window::new(a, b).unwrap();
        assert!(window.contains(a));
        assert!(!window.contains(b));
        assert!(Window::new(b, a).is_none());
        assert!(Window::new(a, a).is_none());
    }
}
