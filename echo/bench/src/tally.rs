//! Aggregates that agents keep.

use std::time::Duration;

use echo_core::ids::CommId;
use echo_core::model::event::{Reading, Summary};

/// Count, sum, minimum and maximum of samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    count: u64,
    sum: f64,
    range: Option<(f64, f64)>,
}

impl Tally {
    /// Adds a sample.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        let (min, max) = self.range.unwrap_or((value, value));
        self.range = Some((min.min(value), max.max(value)));
    }

    /// Adds `n` samples that are spread evenly over `(first, first + span]`.
    #[expect(clippy::cast_precision_loss, reason = "a few operations per step")]
    pub fn add_evenly(&mut self, first: f64, span: f64, n: u64) {
        for number in 1..=n {
            self.add(span.mul_add(number as f64 / n as f64, first));
        }
    }

    /// Returns the histogram point.
    pub fn reading(&self) -> Reading {
        Reading::Histogram(Summary {
            count: self.count,
            sum: self.sum,
            min: self.range.map(|range| range.0),
            max: self.range.map(|range| range.1),
        })
    }
}

/// True when all ranks sample this operation, by the hash that agents use.
pub fn is_sampled(comm: CommId, seq: u64, modulus: u32) -> bool {
    let key = (u128::from(seq) << 64 | u128::from(comm.value())).to_le_bytes();
    modulus == 1 || xxhash_rust::xxh64::xxh64(&key, 0).is_multiple_of(u64::from(modulus.max(1)))
}

/// Milliseconds as whole nanoseconds.
pub fn nanos(ms: f64) -> i64 {
    let magnitude = Duration::from_secs_f64(ms.abs() / 1e3).as_nanos();
    let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
    if ms < 0.0 { -magnitude } else { magnitude }
}
