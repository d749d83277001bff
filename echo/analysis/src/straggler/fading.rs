//! Means by rank over recent time, which fade.

/// Weighted sums by rank, and their weights.
#[derive(Debug, Default)]
pub(super) struct FadingMeans(Vec<(f64, f64)>);

impl FadingMeans {
    /// Adds values that are known, each for so many seconds, after keeping this share of what was added
    /// before.
    pub(super) fn add(&mut self, kept: f64, values: &[f64], seconds: f64) {
        self.0.resize(values.len(), (0.0, 0.0));
        for ((sum, weight), value) in self.0.iter_mut().zip(values) {
            let (value, new) = if value.is_finite() {
                (*value, seconds)
            } else {
                (0.0, 0.0)
            };
            *sum = kept.mul_add(*sum, new * value);
            *weight = kept.mul_add(*weight, new);
        }
    }

    /// Keeps this share of the weights.
    pub(super) fn fade(&mut self, kept: f64) {
        for (sum, weight) in &mut self.0 {
            (*sum, *weight) = (*sum * kept, *weight * kept);
        }
    }

    /// The means; NaN where nothing is known.
    pub(super) fn means(&self) -> Vec<f64> {
        self.0.iter().map(|(sum, weight)| sum / weight).collect()
    }
}
