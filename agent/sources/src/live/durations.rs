//! Conversion of the kernel's histograms to durations of calls since the last reading. Pure.

use std::collections::BTreeMap;

use fleet_agent_bpf::layout::{FIRST_BUCKET, FunctionHistogram, LaunchSizeCounts};
use fleet_agent_core::event::{CallDurations, FunctionDurations, LaunchSizes, LogHistogram};

use crate::functions;
use crate::watch::Histograms;

/// Histograms at the last reading.
#[derive(Debug, Default)]
pub(crate) struct DurationMeter {
    functions: BTreeMap<(u32, u32), FunctionHistogram>,
    launch_sizes: BTreeMap<u32, LaunchSizeCounts>,
}

impl DurationMeter {
    /// Compares the histograms of all processes with the last reading and returns the calls of each
    /// process since then.
    pub(crate) fn measure(&mut self, ts_ns: u64, now: &Histograms) -> Vec<CallDurations> {
        let mut measured: BTreeMap<u32, CallDurations> = BTreeMap::new();
        let of_process = |pid| CallDurations {
            ts_ns,
            pid,
            calls: Vec::new(),
            launch_sizes: None,
        };
        for histogram in &now.functions {
            let key = (histogram.tgid, histogram.op);
            let before = self.functions.insert(key, histogram.clone());
            if let Some(mut calls) = increase(histogram, &before.unwrap_or_default()) {
                calls.interrupted = calls.interrupted.filter(|_| now.sees_preemptions);
                let pid = histogram.tgid;
                let durations = measured.entry(pid).or_insert_with(|| of_process(pid));
                durations.calls.push(calls);
            }
        }
        for sizes in &now.launch_sizes {
            let pid = sizes.tgid;
            let before = self.launch_sizes.insert(pid, sizes.clone());
            let sampled = sampled(sizes, &before.unwrap_or_default());
            if !sampled.grid.is_empty() {
                let durations = measured.entry(pid).or_insert_with(|| of_process(pid));
                durations.launch_sizes = Some(sampled);
            }
        }
        measured.into_values().collect()
    }

    /// Removes a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.functions.retain(|(owner, _), _| *owner != pid);
        self.launch_sizes.remove(&pid);
    }
}

/// Returns the calls of a function since the last reading; `None` if there are none.
fn increase(now: &FunctionHistogram, before: &FunctionHistogram) -> Option<FunctionDurations> {
    let [number, kind, ..] = now.op.to_le_bytes();
    let function = functions::by_number(number)?;
    let histogram = counts(FIRST_BUCKET, &now.buckets, &before.buckets);
    let (last, _) = histogram.buckets().last()?;
    let longest_ns = if now.longest_ns > before.longest_ns {
        now.longest_ns
    } else {
        LogHistogram::upper_bound(last).min(now.longest_ns)
    };
    Some(FunctionDurations {
        function: function.name.to_owned(),
        direction: function.direction(kind),
        histogram,
        total_ns: now.total_ns.saturating_sub(before.total_ns),
        longest_ns,
        interrupted: Some(now.interrupted.saturating_sub(before.interrupted)),
        bytes: now.bytes.saturating_sub(before.bytes),
    })
}

fn sampled(now: &LaunchSizeCounts, before: &LaunchSizeCounts) -> LaunchSizes {
    LaunchSizes {
        grid: counts(0, &now.grid, &before.grid),
        block: counts(0, &now.block, &before.block),
        grid_total: now.grid_total.saturating_sub(before.grid_total),
        block_total: now.block_total.saturating_sub(before.block_total),
    }
}

/// Returns the increase of counts, the first of which is that of bucket number `first`.
fn counts(first: u8, now: &[u32], before: &[u32]) -> LogHistogram {
    let mut histogram = LogHistogram::default();
    let before = before.iter().copied().chain(std::iter::repeat(0));
    for ((bucket, now), before) in (first..).zip(now).zip(before) {
        histogram.add(bucket, now.wrapping_sub(before).into());
    }
    histogram
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::Direction;

    use super::*;
    use crate::functions::FUNCTIONS;

    fn op(name: &str, kind: u32) -> u32 {
        let at = FUNCTIONS.iter().position(|function| function.name == name);
        u32::try_from(at.unwrap()).unwrap() | kind << 8
    }

    /// Histogram of a function with these counts in its first buckets.
    fn calls(op: u32, counts: &[u32], longest_ns: u64) -> FunctionHistogram {
        let mut buckets = counts.to_vec();
        buckets.resize(112, 0);
        FunctionHistogram {
            tgid: 7,
            op,
            bytes: 0,
            total_ns: 1000,
            longest_ns,
            interrupted: 0,
            buckets,
        }
    }

    fn histograms(functions: Vec<FunctionHistogram>) -> Histograms {
        Histograms {
            functions,
            ..Histograms::default()
        }
    }

    #[test]
    fn calls_are_counted_since_the_last_reading_even_if_a_count_wraps() {
        let mut meter = DurationMeter::default();
        let malloc = op("cudaMalloc", 0);
        meter.measure(1, &histograms(vec![calls(malloc, &[u32::MAX, 5], 300)]));
        let measured = meter.measure(2, &histograms(vec![calls(malloc, &[1, 5], 300)]));
        let [durations] = measured.as_slice() else {
            panic!("{measured:?}");
        };
        assert_eq!((durations.ts_ns, durations.pid), (2, 7));
        let [function] = durations.calls.as_slice() else {
            panic!("{durations:?}");
        };
        assert_eq!(function.function, "cudaMalloc");
        assert_eq!((function.calls(), function.total_ns), (2, 0));
        // Of this window only the bucket is known, which begins at 256 ns.
        assert_eq!(function.longest_ns, 300);
        assert_eq!(function.histogram.percentile(50), Some(284));
    }

    #[test]
    fn a_function_that_was_not_called_is_left_out() {
        let mut meter = DurationMeter::default();
        let now = histograms(vec![calls(op("cudaFree", 0), &[3], 300)]);
        assert_eq!(meter.measure(1, &now).len(), 1);
        assert_eq!(meter.measure(2, &now), []);
    }

    #[test]
    fn a_process_with_a_reused_id_starts_from_zero() {
        let mut meter = DurationMeter::default();
        let now = histograms(vec![calls(op("cudaFree", 0), &[3], 300)]);
        meter.measure(1, &now);
        meter.forget(7);
        assert_eq!(meter.measure(2, &now)[0].calls[0].calls(), 3);
    }

    #[test]
    fn the_direction_of_a_copy_is_in_its_argument_or_in_its_name() {
        let copies = histograms(vec![
            calls(op("cudaMemcpyAsync", 2), &[1], 300),
            calls(op("cuMemcpyHtoD_v2", 0), &[1], 300),
        ]);
        let measured = DurationMeter::default().measure(1, &copies);
        let directions = measured[0].calls.iter().map(|calls| calls.direction);
        assert_eq!(
            directions.collect::<Vec<_>>(),
            [Some(Direction::ToHost), Some(Direction::ToDevice)]
        );
        let kinds = copies.sums().map(|sum| sum.op >> 8);
        assert_eq!(kinds.collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn sizes_of_launches_are_those_since_the_last_reading() {
        let mut meter = DurationMeter::default();
        let sizes = |n: u32| Histograms {
            launch_sizes: vec![LaunchSizeCounts {
                tgid: 7,
                grid_total: u64::from(n) * 6,
                block_total: u64::from(n),
                grid: vec![0, 0, 0, 0, 0, 0, n],
                block: vec![0, n],
            }],
            ..Histograms::default()
        };
        meter.measure(1, &sizes(2));
        let measured = meter.measure(2, &sizes(5));
        let sampled = measured[0].launch_sizes.as_ref().unwrap();
        assert_eq!((sampled.grid.count(), sampled.grid_total), (3, 18));
        assert_eq!(sampled.grid.percentile(50), Some(6));
        assert_eq!(meter.measure(3, &sizes(5)), []);
    }
}
