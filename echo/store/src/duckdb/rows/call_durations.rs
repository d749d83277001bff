//! Durations of calls with their numbers, as agents report them for each period.

use std::collections::BTreeMap;

/// Durations of calls of one function, of several periods.
#[derive(Debug, Default)]
pub(super) struct CallDurations {
    /// Number of calls by duration, nanoseconds.
    calls: BTreeMap<u64, u64>,
    /// Longest duration, milliseconds, if it is known.
    max_ms: Option<f64>,
}

impl CallDurations {
    /// Reads `8700=90 1400000=2`, of which durations may occur again. What is not of this form is left out.
    pub(super) fn parse(text: &str, max_ms: Option<f64>) -> Self {
        let mut calls: BTreeMap<u64, u64> = BTreeMap::new();
        let pairs = text.split_ascii_whitespace();
        for (ns, times) in pairs.filter_map(|pair| pair.split_once('=')) {
            if let (Ok(ns), Ok(times)) = (ns.parse(), times.parse::<u64>()) {
                let sum = calls.entry(ns).or_default();
                *sum = sum.saturating_add(times);
            }
        }
        Self { calls, max_ms }
    }

    /// Returns the shortest duration that `percent` per cent of the calls did not exceed, milliseconds;
    /// `None` without calls. It deviates from theirs by at most a ninth, and is at most the longest.
    #[expect(
        clippy::cast_precision_loss,
        reason = "durations of calls are far below 2^53 ns"
    )]
    pub(super) fn percentile_ms(&self, percent: u8) -> Option<f64> {
        let all: u128 = self.calls.values().copied().map(u128::from).sum();
        let wanted = (all * u128::from(percent)).div_ceil(100).max(1);
        let mut seen: u128 = 0;
        let (ns, _) = self.calls.iter().find(|(_, times)| {
            seen += u128::from(**times);
            seen >= wanted
        })?;
        let ms = *ns as f64 / 1e6;
        Some(self.max_ms.map_or(ms, |max_ms| ms.min(max_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::CallDurations;

    #[test]
    fn percentiles_are_those_of_all_calls_of_all_periods() {
        // 98 short calls in one period, and 2 long ones in another.
        let durations = CallDurations::parse("1000000=60 2000000=38 9000000=2", Some(8.5));
        let found = [50, 95, 99].map(|percent| durations.percentile_ms(percent));
        assert_eq!(found, [Some(1.0), Some(2.0), Some(8.5)]);
        let twice = CallDurations::parse("1000000=60 1000000=60 3000000=1", None);
        assert_eq!(twice.percentile_ms(99), Some(1.0));
    }

    #[test]
    fn what_is_no_duration_is_left_out() {
        let durations = CallDurations::parse("x=1 5 7=y =3 -2=4 4000000=1", None);
        assert_eq!(durations.percentile_ms(50), Some(4.0));
        assert_eq!(CallDurations::parse("", None).percentile_ms(50), None);
    }
}
