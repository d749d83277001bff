//! Shades of lags, as shares of an iteration. The same lag has the same shade on every page: the
//! scale follows from the share above which the detector names a rank.

use std::collections::BTreeMap;

use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::lag_map::LagMap;
use maud::{Markup, html};

use crate::pages::bars::SHADES;
use crate::pages::format;

/// Lower bounds of the shades, as multiples of the share above which a rank is named.
const STEPS: [f64; 6] = [f64::NEG_INFINITY, 0.25, 0.5, 1.0, 2.0, 4.0];

/// Shade of the largest lags, and of ranks for which others wait in an operation that does not end.
pub(super) const DARKEST: usize = STEPS.len() - 1;

/// First shade of a lag that matters.
const NOTABLE: usize = 3;

/// Scale of a map.
#[derive(Debug)]
pub(super) struct Scale {
    /// Iteration time of each job, milliseconds.
    iteration_ms: BTreeMap<Option<String>, f64>,
    effect_gate: f64,
}

impl Scale {
    /// Takes the iteration time of each job from its incidents, which know the healthy one, or else
    /// from the map.
    pub(super) fn new(map: &LagMap, answer: Option<&Outliers>) -> Self {
        let mut iteration_ms = map.iteration_ms.clone();
        let culprits = answer.into_iter().flat_map(|answer| &answer.outliers);
        for course in culprits.map(|one| &one.lifecycle) {
            if course.healthy_period_ms > 0.0 {
                iteration_ms.insert(course.job.clone(), course.healthy_period_ms);
            }
        }
        Self {
            iteration_ms,
            effect_gate: map.effect_gate,
        }
    }

    /// Returns the shade of a lag, lightest first. A lag is light while no iteration time is known.
    pub(super) fn shade(&self, job: Option<&str>, lag_ms: f64) -> usize {
        let mut times = self.iteration_ms.iter();
        let time = times.find(|(known, _)| known.as_deref() == job);
        let share = time.map(|(_, iteration_ms)| lag_ms / iteration_ms);
        let gates = share.map_or(0.0, |share| share / self.effect_gate);
        STEPS.iter().rposition(|step| gates >= *step).unwrap_or(0)
    }

    /// Returns true if a lag is large enough to name a rank.
    pub(super) fn is_notable(&self, job: Option<&str>, lag_ms: f64) -> bool {
        self.shade(job, lag_ms) >= NOTABLE
    }

    /// Renders the legend, with milliseconds if all jobs have the same iteration time.
    pub(super) fn legend(&self) -> Markup {
        let mut known = self.iteration_ms.values();
        let only = known.next().filter(|_| known.next().is_none());
        let words = STEPS.iter().skip(1).zip(0..).map(|(step, index)| {
            let share = step * self.effect_gate;
            let from = if index == 0 { "from " } else { "" };
            let percent = format::percent((share * 1e4).round() / 1e4);
            let millis = only.map(|only| format!(" ({})", format::millis(share * only)));
            format!("{from}{percent}{}", millis.unwrap_or_default())
        });
        let words = std::iter::once("less".to_owned()).chain(words);
        html! {
            ul.legend aria-label="Shades, as shares of an iteration" {
                li { "Lag in shares of an iteration:" }
                @for (shade, words) in SHADES.iter().zip(words) {
                    li { svg.swatch aria-hidden="true" viewBox="0 0 1 1" { rect class=(shade) width="1" height="1" {} } (words) }
                }
                li { svg.swatch.hatched aria-hidden="true" viewBox="0 0 1 1" {} "no data" }
                li { svg.swatch aria-hidden="true" viewBox="0 0 3 3" { line.opened x1="1.5" x2="1.5" y1="0" y2="3" {} } "incident began" }
            }
            @if self.iteration_ms.is_empty() {
                p.caveat { "No iteration time was reported, so lags have no shades." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Scale;

    #[test]
    fn noise_is_light_and_a_lag_above_the_gate_is_dark_whatever_else_is_on_the_page() {
        let scale = Scale {
            iteration_ms: BTreeMap::from([(None, 519.0)]),
            effect_gate: 0.03,
        };
        assert_eq!(scale.shade(None, 0.25), 0);
        assert_eq!(scale.shade(None, -97.0), 0);
        assert_eq!(scale.shade(None, 16.0), 3);
        assert_eq!(scale.shade(None, 97.6), 5);
        assert!(scale.is_notable(None, 16.0) && !scale.is_notable(None, 15.0));
        assert_eq!(scale.shade(Some("other"), 97.6), 0);
    }
}
