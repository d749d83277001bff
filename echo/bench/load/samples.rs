//! Repeated samples of a process.

use crate::table::megabytes;

/// Samples of one value over time.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<(f64, f64)>);

impl Samples {
    /// Adds the value at a time in seconds.
    pub(crate) fn add(&mut self, at_s: f64, value: f64) {
        self.0.push((at_s, value));
    }

    /// Formats the first, the last and the largest value as megabytes.
    pub(crate) fn ends(&self) -> String {
        let first = self.0.first().map_or(f64::NAN, |(_, value)| *value);
        let last = self.0.last().map_or(f64::NAN, |(_, value)| *value);
        let largest = self
            .0
            .iter()
            .fold(f64::NAN, |most, (_, value)| most.max(*value));
        [first, last, largest].map(megabytes).join(", ")
    }

    /// Growth per hour over the second half, by least squares: caches fill in the first half.
    #[expect(clippy::cast_precision_loss, reason = "a few thousand samples")]
    pub(crate) fn slope_per_hour(&self) -> Option<f64> {
        let half = self.0.get(self.0.len() / 2..)?;
        let n = half.len() as f64;
        let mean = |pick: fn(&(f64, f64)) -> f64| half.iter().map(pick).sum::<f64>() / n;
        let (at, value) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let product = half
            .iter()
            .map(|sample| (sample.0 - at) * (sample.1 - value));
        let square = half.iter().map(|sample| (sample.0 - at).powi(2));
        let slope = product.sum::<f64>() / square.sum::<f64>();
        slope.is_finite().then_some(slope * 3600.0)
    }
}
