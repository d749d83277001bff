//! Where an axis has numbers: few, round, and inside.

use super::figure::Axis;

/// Most numbers on an axis of values.
const MAX_VALUES: f64 = 6.0;

/// Most times on an axis of times.
const MAX_TIMES: i64 = 8;

/// Lengths between two times that people count in, in seconds.
const STEPS: [i64; 18] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200,
    86_400,
];

/// An axis of values that has room for these, and for zero.
pub fn values(label: &str, seen: impl Iterator<Item = f64>) -> Axis {
    let seen = seen.filter(|value| value.is_finite());
    let (least, most) = seen.fold((0.0_f64, 0.0_f64), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    let room = if most - least > 0.0 {
        (most - least) * 0.08
    } else {
        1.0
    };
    let (from, to) = (least - room, most + room);
    let step = step((to - from) / MAX_VALUES);
    let digits = digits(step);
    let first = (from / step).ceil();
    let places = (0..).map(|n| (first + f64::from(n)) * step);
    let ticks = places.take_while(|place| *place <= to).map(|place| {
        // No negative zero.
        let place = if place.abs() < step / 2.0 { 0.0 } else { place };
        (place, format!("{place:.digits$}"))
    });
    Axis {
        label: label.to_owned(),
        from,
        to,
        ticks: ticks.collect(),
    }
}

/// The next of 1, 2, 5, 10, ... that is not smaller.
fn step(least: f64) -> f64 {
    let magnitude = 10.0_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * magnitude);
    let fits = |step: &f64| *step >= least;
    steps.into_iter().find(fits).unwrap_or(least)
}

/// Digits after the point that tell multiples of a step apart.
fn digits(step: f64) -> usize {
    (0..12)
        .find(|digits| step * 10.0_f64.powi(*digits) > 0.999)
        .and_then(|digits| usize::try_from(digits).ok())
        .unwrap_or(12)
}

/// Round seconds of the epoch in the span, at most eight, with the distance between them.
pub fn times(from: i64, to: i64) -> (Vec<i64>, i64) {
    let fits = |step: &i64| (to - from) / step < MAX_TIMES;
    let days = || ((to - from) / 86_400 / MAX_TIMES + 1) * 86_400;
    let step = STEPS.into_iter().find(fits).unwrap_or_else(days);
    let first = from.div_euclid(step) * step;
    let places = (0..).map(|n| first + n * step).skip_while(|at| *at < from);
    (places.take_while(|at| *at <= to).collect(), step)
}
