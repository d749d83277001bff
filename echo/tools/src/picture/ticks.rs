//! Ticks of an axis: few, round, and within its range.

use super::figure::Axis;

/// Maximum number of ticks on a value axis.
const MAX_VALUES: f64 = 6.0;

/// Maximum number of ticks on a time axis.
const MAX_TIMES: i64 = 8;

/// Natural steps between two times, seconds.
const STEPS: [i64; 18] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
    86_400,
];

/// Builds a value axis that contains the values and zero.
pub fn values(label: &str, seen: impl Iterator<Item = f64>) -> Axis {
    let seen = seen.filter(|value| value.is_finite());
    let (least, most) = seen.fold((0.0_f64, 0.0_f64), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let margin = if most - least > 0.0 {
        (most - least) * 0.08
    } else {
        1.0
    };
    let (from, to) = (least - margin, most + margin);
    let step = step((to - from) / MAX_VALUES);
    let digits = digits(step);
    let first = (from / step).ceil();
    let positions = (0..).map(|n| (first + f64::from(n)) * step);
    let ticks = positions
        .take_while(|position| *position <= to)
        .map(|position| {
            // No negative zero.
            let position = if position.abs() < step / 2.0 {
                0.0
            } else {
                position
            };
            (position, format!("{position:.digits$}"))
        });
    Axis {
        label: label.to_owned(),
        from,
        to,
        ticks: ticks.collect(),
    }
}

/// Rounds up to the next of 1, 2, 5, 10, ...
fn step(least: f64) -> f64 {
    let magnitude = 10.0_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * magnitude);
    let fits = |step: &f64| *step >= least;
    steps.into_iter().find(fits).unwrap_or(least)
}

/// Number of decimals that distinguish multiples of a step.
fn digits(step: f64) -> usize {
    (0..12)
        .find(|digits| step * 10.0_f64.powi(*digits) > 0.999)
        .and_then(|digits| usize::try_from(digits).ok())
        .unwrap_or(12)
}

/// Returns round seconds of the epoch within the span, at most eight, and the step between them.
pub fn times(from: i64, to: i64) -> (Vec<i64>, i64) {
    let fits = |step: &i64| (to - from) / step < MAX_TIMES;
    let days = || ((to - from) / 86_400 / MAX_TIMES + 1) * 86_400;
    let step = STEPS.into_iter().find(fits).unwrap_or_else(days);
    let first = from.div_euclid(step) * step;
    let positions = (0..).map(|n| first + n * step).skip_while(|at| *at < from);
    (positions.take_while(|at| *at <= to).collect(), step)
}
