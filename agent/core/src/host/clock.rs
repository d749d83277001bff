//! Conversion from the clock of a source to wall time.

use crate::signal::{Point, Value};

/// Mapping from the monotonic clock of a source to wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock {
    /// Instant of the source's clock, nanoseconds.
    pub origin_ns: u64,
    /// Same instant on the host's wall clock, Unix nanoseconds.
    pub unix_ns: i128,
}

impl WallClock {
    /// Converts an instant of the source's clock to Unix nanoseconds, clamped to the range of
    /// `u64`.
    pub fn unix_ns(self, ts_ns: u64) -> u64 {
        let unix_ns = self.unix_ns + i128::from(ts_ns) - i128::from(self.origin_ns);
        u64::try_from(unix_ns.max(0)).unwrap_or(u64::MAX)
    }

    /// Converts the times of a point from the source's clock to Unix nanoseconds.
    pub(super) fn to_wall_time(self, point: &mut Point) {
        point.start_ns = self.unix_ns(point.start_ns);
        point.time_ns = self.unix_ns(point.time_ns);
        if let Value::Summary { exemplars, .. } = &mut point.value {
            for exemplar in exemplars {
                exemplar.time_ns = self.unix_ns(exemplar.time_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_follows_the_source_and_saturates() {
        let clock = WallClock {
            origin_ns: 100,
            unix_ns: 5000,
        };
        assert_eq!(clock.unix_ns(130), 5030);
        assert_eq!(clock.unix_ns(90), 4990);
        assert_eq!(
            WallClock {
                origin_ns: 100,
                unix_ns: -10_000
            }
            .unix_ns(130),
            0
        );
        assert_eq!(clock.unix_ns(u64::MAX), u64::MAX);
    }
}
