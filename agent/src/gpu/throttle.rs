//! Time that the clocks of GPUs were throttled, added up over readings of the driver. Pure.

use std::collections::BTreeMap;

use fleet_agent_core::signal::millis;

use crate::gpu::Throttling;

/// Maximum time before a reading for which an active reason is counted, nanoseconds.
const MAX_STEP_NS: u64 = 10_000_000_000;

/// Throttled time of all GPUs, by index.
#[derive(Debug, Default)]
pub(super) struct ThrottleTimes(BTreeMap<u32, LastReading>);

#[derive(Debug, Default)]
struct LastReading {
    at_ns: u64,
    totals: BTreeMap<&'static str, u64>,
    throttled_ns: u64,
}

impl ThrottleTimes {
    /// Adds a reading of `now_ns`; returns the total time, milliseconds, and the reasons since the
    /// previous reading. The first reading of a GPU only sets the baseline.
    pub(super) fn record(
        &mut self,
        index: u32,
        throttling: &Throttling,
        now_ns: u64,
    ) -> (f64, Vec<&'static str>) {
        let known = self.0.get(&index).map(|last| last.at_ns);
        let elapsed_ns = known.map_or(0, |at_ns| now_ns.saturating_sub(at_ns));
        let last = self.0.entry(index).or_default();
        last.at_ns = now_ns;
        let (throttled_ns, reasons) = match throttling {
            Throttling::Totals(totals) => last.increases(totals),
            Throttling::Now(reasons) => {
                let throttled_ns = if reasons.is_empty() { 0 } else { MAX_STEP_NS };
                (throttled_ns, reasons.clone())
            }
        };
        last.throttled_ns += throttled_ns.min(elapsed_ns);
        (millis(last.throttled_ns), reasons)
    }
}

impl LastReading {
    /// Returns the largest increase, and the reasons that increased. Reasons overlap, so their sum
    /// would count time twice.
    fn increases(&mut self, totals: &[(&'static str, u64)]) -> (u64, Vec<&'static str>) {
        let mut longest_ns = 0;
        let mut reasons = Vec::new();
        for (reason, total_ns) in totals {
            let before_ns = self.totals.insert(reason, *total_ns);
            // Totals restart when the driver is reloaded.
            let increase_ns = match before_ns {
                None => 0,
                Some(before_ns) if *total_ns < before_ns => *total_ns,
                Some(before_ns) => total_ns - before_ns,
            };
            if increase_ns > 0 {
                reasons.push(*reason);
            }
            longest_ns = longest_ns.max(increase_ns);
        }
        (longest_ns, reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[track_caller]
    fn assert_adds(
        times: &mut ThrottleTimes,
        throttling: Throttling,
        at_s: u64,
        expected: (f64, &[&str]),
    ) {
        let (total_ms, reasons) = times.record(0, &throttling, at_s * SECOND);
        assert!((total_ms - expected.0).abs() < 1e-9, "{total_ms}");
        assert_eq!(reasons, expected.1);
    }

    fn totals(power_s: u64, thermal_s: u64) -> Throttling {
        Throttling::Totals(vec![
            ("power", power_s * SECOND),
            ("thermal", thermal_s * SECOND),
        ])
    }

    #[test]
    fn increases_of_the_drivers_totals_add_up() {
        let mut times = ThrottleTimes::default();
        assert_adds(&mut times, totals(100, 7), 10, (0.0, &[]));
        assert_adds(
            &mut times,
            totals(102, 8),
            15,
            (2000.0, &["power", "thermal"]),
        );
        assert_adds(&mut times, totals(102, 8), 20, (2000.0, &[]));
        assert_adds(&mut times, totals(102, 9), 25, (3000.0, &["thermal"]));
    }

    #[test]
    fn totals_that_restart_count_from_zero_and_never_more_than_the_elapsed_time() {
        let mut times = ThrottleTimes::default();
        assert_adds(&mut times, totals(100, 0), 10, (0.0, &[]));
        assert_adds(&mut times, totals(1, 0), 15, (1000.0, &["power"]));
        assert_adds(&mut times, totals(5000, 0), 16, (2000.0, &["power"]));
        assert_adds(&mut times, totals(5001, 0), 3, (2000.0, &["power"]));
    }

    #[test]
    fn an_active_reason_counts_for_the_time_since_the_previous_reading() {
        let mut times = ThrottleTimes::default();
        let now = |reasons: &[&'static str]| Throttling::Now(reasons.to_vec());
        assert_adds(
            &mut times,
            now(&["sw_power_cap"]),
            10,
            (0.0, &["sw_power_cap"]),
        );
        assert_adds(
            &mut times,
            now(&["sw_power_cap"]),
            12,
            (2000.0, &["sw_power_cap"]),
        );
        assert_adds(&mut times, now(&[]), 14, (2000.0, &[]));
        assert_adds(
            &mut times,
            now(&["hw_slowdown"]),
            100,
            (12_000.0, &["hw_slowdown"]),
        );
    }
}
