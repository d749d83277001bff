//! Time that each process computed on a GPU, from the driver's samples of utilization. Pure.

use std::collections::BTreeMap;

use crate::gpu::GpuProcess;

/// Share of a GPU that a process used at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utilization {
    /// Process id.
    pub pid: u32,
    /// Instant of the sample, microseconds of the driver's clock.
    pub at_us: u64,
    /// Share of the time for which a kernel of the process ran, percent.
    pub percent: u32,
}

/// Time that a process computed on a GPU since the previous reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeTime {
    /// Index of the GPU in the driver.
    pub gpu: u32,
    /// Process id.
    pub pid: u32,
    /// The time, nanoseconds.
    pub ns: u64,
}

/// Previous reading of each GPU, by index.
#[derive(Debug, Default)]
pub struct ComputeTimes(BTreeMap<u32, LastReading>);

#[derive(Debug, Clone, Copy, Default)]
struct LastReading {
    at_ns: u64,
    newest_us: u64,
}

impl ComputeTimes {
    /// Instant of the newest sample of a GPU that was read, microseconds of the driver's clock; 0
    /// before the first one.
    pub(super) fn newest_us(&self, gpu: u32) -> u64 {
        self.0.get(&gpu).map_or(0, |last| last.newest_us)
    }

    /// Adds the samples since the previous reading, read at `now_ns`, and returns the time of each
    /// process that is listed. The first reading of a GPU only sets the baseline.
    pub(super) fn record(
        &mut self,
        gpu: u32,
        listed: &[GpuProcess],
        samples: &[Utilization],
        now_ns: u64,
    ) -> Vec<ComputeTime> {
        let last = self.0.entry(gpu).or_insert(LastReading {
            at_ns: now_ns,
            newest_us: 0,
        });
        let elapsed_ns = now_ns.saturating_sub(last.at_ns);
        let after_us = last.newest_us;
        // The driver is known to return entries that it has not filled.
        let is_valid = |sample: &&Utilization| {
            let is_listed = listed.iter().any(|process| process.pid == sample.pid);
            is_listed && sample.percent <= 100 && sample.at_us > after_us
        };
        let samples: Vec<&Utilization> = samples.iter().filter(is_valid).collect();
        last.at_ns = now_ns;
        let newest_us = samples.iter().map(|sample| sample.at_us).max();
        last.newest_us = newest_us.unwrap_or(after_us);
        if elapsed_ns == 0 {
            return Vec::new();
        }
        let of = |process: &GpuProcess| {
            let own = samples.iter().filter(|sample| sample.pid == process.pid);
            own.map(|own| u64::from(own.percent)).collect::<Vec<_>>()
        };
        // A process that does not compute has no sample.
        let most = listed.iter().map(|process| of(process).len()).max();
        let most = most.and_then(|most| u64::try_from(most).ok()).unwrap_or(1);
        let time = |process: &GpuProcess| ComputeTime {
            gpu,
            pid: process.pid,
            ns: elapsed_ns / 100 * of(process).iter().sum::<u64>() / most.max(1),
        };
        listed.iter().map(time).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    const LISTED: [GpuProcess; 2] = [
        GpuProcess { pid: 7, bytes: 1 },
        GpuProcess { pid: 8, bytes: 1 },
    ];

    fn sample(pid: u32, at_us: u64, percent: u32) -> Utilization {
        Utilization {
            pid,
            at_us,
            percent,
        }
    }

    #[test]
    fn a_process_computed_for_its_mean_share_of_the_time_between_two_readings() {
        let mut times = ComputeTimes::default();
        assert_eq!(times.record(1, &LISTED, &[sample(7, 5, 100)], SECOND), []);
        assert_eq!(times.newest_us(1), 5);
        let samples = [sample(7, 6, 40), sample(8, 6, 50), sample(8, 9, 70)];
        // Process 7 did not compute at the second sample.
        let expected = [(7, 2 * SECOND), (8, 6 * SECOND)];
        let expected = expected.map(|(pid, ns)| ComputeTime { gpu: 1, pid, ns });
        assert_eq!(times.record(1, &LISTED, &samples, 11 * SECOND), expected);
        assert_eq!(times.newest_us(1), 9);
    }

    #[test]
    fn samples_that_the_driver_has_not_filled_do_not_count() {
        let mut times = ComputeTimes::default();
        times.record(0, &LISTED, &[sample(7, 5, 100)], 0);
        let unfilled = [
            sample(7, 6, u32::MAX),
            sample(99, 1 << 60, 50),
            sample(8, 4, 60),
        ];
        let none = [7, 8].map(|pid| ComputeTime { gpu: 0, pid, ns: 0 });
        assert_eq!(times.record(0, &LISTED, &unfilled, SECOND), none);
        assert_eq!(times.newest_us(0), 5);
    }

    #[test]
    fn a_process_without_a_sample_did_not_compute_and_the_newest_sample_stays_known() {
        let mut times = ComputeTimes::default();
        let (idle, none) = (
            [sample(7, 5, 0)],
            [7, 8].map(|pid| ComputeTime { gpu: 0, pid, ns: 0 }),
        );
        assert_eq!(times.record(0, &LISTED, &idle, 0), []);
        assert_eq!(times.record(0, &LISTED, &idle, SECOND), none);
        assert_eq!(times.record(0, &LISTED, &[], 2 * SECOND), none);
        assert_eq!((times.newest_us(0), times.newest_us(1)), (5, 0));
    }
}
