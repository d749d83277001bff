//! Spread of the past.

use echo_core::stats::{mean, median};

/// Length of the means whose spread is the spread of the pace, seconds.
pub(super) const MEAN_S: f64 = 10.0;

/// Smallest number of such means of which a deviation is taken.
const LEAST_MEANS: usize = 4;

/// Standard deviation of a normal variable as a multiple of its median absolute deviation.
pub(super) const MAD_TO_SIGMA: f64 = 1.4826;

/// Means over stretches of at least `length` seconds, from pairs of length and value.
pub(super) fn means(values: &[(f64, f64)], length: f64) -> Vec<f64> {
    let mut means = Vec::new();
    let (mut seconds, mut sum) = (0.0, 0.0);
    for (part, value) in values {
        seconds += part;
        sum += part * value;
        if seconds >= length {
            means.push(sum / seconds);
            (seconds, sum) = (0.0, 0.0);
        }
    }
    means
}

/// Share of the time that is usually lost to work that recurs, such as checkpoints: it is in the
/// mean of both halves of the past, but not in the median. A slow start is in one half only.
pub(super) fn recurring(losses: &[(f64, f64)]) -> f64 {
    let (first, second) = losses.split_at(losses.len() / 2);
    let mean = |half: &[(f64, f64)]| {
        let seconds: f64 = half.iter().map(|(seconds, _)| seconds).sum();
        let lost: f64 = half.iter().map(|(seconds, loss)| seconds * loss).sum();
        if seconds > 0.0 { lost / seconds } else { 0.0 }
    };
    mean(first).min(mean(second)).max(0.0)
}

/// Evidence that the healthy past itself reaches, in both of its halves, seconds: the larger of two
/// checkpoints is no fault.
pub(super) fn reached(losses: &[(f64, f64)], allowance: f64) -> f64 {
    let peak = |half: &[(f64, f64)]| {
        let (mut lost, mut peak) = (0.0_f64, 0.0_f64);
        for (seconds, loss) in half {
            lost = (lost + seconds * (loss - allowance)).max(0.0);
            peak = peak.max(lost);
        }
        peak
    };
    let (first, second) = losses.split_at(losses.len() / 2);
    peak(first).min(peak(second))
}

/// Standard deviation of means over 10 s; while the past is too short for them, of the values
/// themselves.
pub(super) fn lasting_deviation(values: &[(f64, f64)]) -> f64 {
    let means = means(values, MEAN_S);
    if means.len() >= LEAST_MEANS {
        deviation(&means)
    } else {
        deviation(&values.iter().map(|(_, value)| *value).collect::<Vec<f64>>())
    }
}

/// Standard deviation around the mean. Not a robust one: that of a rank which is last in a third of
/// the time is 0.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let center = mean(values).unwrap_or(0.0);
    let squares: Vec<f64> = values
        .iter()
        .map(|value| (value - center).powi(2))
        .collect();
    mean(&squares).unwrap_or(0.0).sqrt()
}

pub(super) fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
}
