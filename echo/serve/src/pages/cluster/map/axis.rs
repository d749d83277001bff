//! Time axis of a lag map: round instants, and positions of instants.

use echo_core::units::Nanos;
use echo_tools::lag_map::LagMap;
use maud::{Markup, html};

use crate::pages::format::parse_instant;

/// Maximum number of ticks.
const MAX_TICKS: i64 = 4;

/// Steps between ticks, seconds.
const STEPS: [i64; 17] = [
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400,
];

/// Longest axis with the time of day on its ticks rather than the day, seconds.
const ONE_DAY_S: i64 = 86_400;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Time axis of a map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    from: Nanos,
    cell_nanos: f64,
    n_cells: usize,
}

impl Axis {
    /// Returns the axis of a map; `None` without cells.
    #[expect(
        clippy::cast_precision_loss,
        reason = "lengths of buckets in nanoseconds fit"
    )]
    pub(super) fn of_map(map: &LagMap) -> Option<Self> {
        let cells = map.ranks.iter().map(|one| one.lags_ms.len());
        Some(Self {
            from: parse_instant(&map.window.from)?,
            cell_nanos: map.bucket_s * NANOS_PER_SECOND as f64,
            n_cells: cells.max().filter(|n| *n > 0)?,
        })
    }

    /// Returns the position of an instant, in cells; `None` outside of the axis.
    #[expect(clippy::cast_precision_loss, reason = "cells are few")]
    pub(super) fn position(&self, instant: Nanos) -> Option<f64> {
        let at = instant.millis_since(self.from) * 1e6 / self.cell_nanos;
        (0.0..=self.n_cells as f64).contains(&at).then_some(at)
    }

    /// Returns the start of a cell.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "cells are few, and lengths of windows in nanoseconds fit"
    )]
    pub(super) fn begins(&self, cell: usize) -> Nanos {
        self.from.offset((self.cell_nanos * cell as f64) as i64)
    }

    /// Returns the ticks: positions in percent of the axis, and labels.
    #[expect(clippy::cast_precision_loss, reason = "cells are few")]
    fn ticks(&self) -> Vec<(f64, String)> {
        let length_s = self.begins(self.n_cells).millis_since(self.from) / 1e3;
        let fits = |step: &&i64| length_s / (**step as f64) <= MAX_TICKS as f64;
        let days = (length_s / (ONE_DAY_S as f64 * MAX_TICKS as f64)).ceil();
        let step = STEPS.iter().find(fits).copied();
        let step = step.unwrap_or_else(|| ONE_DAY_S.saturating_mul(whole(days)));
        let step_nanos = step.saturating_mul(NANOS_PER_SECOND);
        let first = self.from.value().div_euclid(step_nanos) + 1;
        (first..=first.saturating_add(MAX_TICKS))
            .filter_map(|number| {
                let instant = Nanos::new(number.checked_mul(step_nanos)?);
                let percent = self.position(instant)? * 100.0 / self.n_cells as f64;
                Some((percent, label(instant, step)))
            })
            .collect()
    }

    /// Renders the axis.
    pub(super) fn markup(&self) -> Markup {
        html! {
            svg.axis aria-hidden="true" {
                @for (index, (percent, label)) in self.ticks().into_iter().enumerate() {
                    @let x = format!("{percent:.2}%");
                    line x1=(x) x2=(x) y1="70%" y2="100%" {}
                    text.last[percent > 90.0].minor[index % 2 == 1] x=(x) y="60%" { (label) }
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "windows have few days")]
const fn whole(days: f64) -> i64 {
    days as i64
}

/// Formats a tick as precisely as the step requires.
fn label(instant: Nanos, step_s: i64) -> String {
    let text = instant.to_string();
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    let digits = match step_s {
        step if step >= ONE_DAY_S => return day.to_owned(),
        step if step >= 60 => 5,
        _ => 8,
    };
    time.get(..digits).unwrap_or(time).to_owned()
}

#[cfg(test)]
mod tests {
    use echo_core::units::Nanos;

    use super::Axis;

    #[test]
    fn ticks_are_round_and_few() {
        let axis = |cell_s: f64| Axis {
            // 2026-06-01T00:00:07Z
            from: Nanos::new(1_780_272_007_000_000_000),
            cell_nanos: cell_s * 1e9,
            n_cells: 60,
        };
        let labels = |cell_s| {
            let ticks = axis(cell_s).ticks().into_iter();
            ticks.map(|(_, label)| label).collect::<Vec<String>>()
        };
        assert_eq!(labels(5.0), ["00:02", "00:04"]);
        assert_eq!(labels(60.0), ["00:15", "00:30", "00:45", "01:00"]);
        assert_eq!(labels(0.5), ["00:00:10", "00:00:20", "00:00:30"]);
        assert_eq!(
            labels(10_080.0),
            ["2026-06-02", "2026-06-04", "2026-06-06", "2026-06-08"]
        );
    }
}
