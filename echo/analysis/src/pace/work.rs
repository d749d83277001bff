//! Duration of healthy operations, by their kinds.
//!
//! Least squares over healthy spans of work, with costs that are never negative. The cost of an
//! iteration, of a log line and of an evaluation follow from spans with different numbers of each.

use std::collections::BTreeMap;

use echo_core::stats::median;

use crate::mix::Mix;

/// Maximum number of passes of coordinate descent; equal spans need one.
const PASSES: usize = 40;

/// Regularisation: keeps the costs of kinds that always occur together from diverging.
const RIDGE: f64 = 1e-3;

/// Factor by which the ratio of a span's duration to its prediction may differ from the typical
/// ratio. Beyond it the span was not usual work: compilation, a pause of the machine.
const UNUSUAL: f64 = 2.0;

/// Largest share of the operations of a span that may be of unknown kinds or proportions.
const UNFAMILIAR: f64 = 0.05;

/// Cost of an operation of each kind, milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    costs: BTreeMap<u64, f64>,
    /// Cost of an operation of an unknown kind, milliseconds.
    usual: f64,
    /// Largest share of each kind in the operations of a span.
    shares: BTreeMap<u64, f64>,
}

impl Work {
    /// Learns from healthy spans, given as mix and duration in milliseconds; `None` without spans.
    pub(super) fn learn(spans: &[(&Mix, f64)]) -> Option<Self> {
        let first = Self::fit(spans)?;
        let ratios = |work: &Self| -> Vec<f64> {
            let ratio = |(mix, ms): &(&Mix, f64)| ms / work.predict(mix).max(f64::MIN_POSITIVE);
            spans.iter().map(ratio).collect()
        };
        let all = ratios(&first);
        let typical = median(&all)?;
        let is_usual = |ratio: &f64| (typical / UNUSUAL..=typical * UNUSUAL).contains(ratio);
        let usual = spans.iter().zip(&all);
        let usual: Vec<(&Mix, f64)> = usual
            .filter(|(_, ratio)| is_usual(ratio))
            .map(|(span, _)| *span)
            .collect();
        let fitted = Self::fit(&usual)?;
        // On average a healthy span takes as long as predicted.
        let predicted: f64 = usual.iter().map(|(mix, _)| fitted.predict(mix)).sum();
        let took: f64 = usual.iter().map(|(_, ms)| ms).sum();
        (predicted > 0.0).then(|| fitted.scaled(took / predicted))
    }

    /// Healthy duration of these operations, milliseconds.
    pub(super) fn predict(&self, mix: &Mix) -> f64 {
        let cost = |kind| self.costs.get(&kind).copied().unwrap_or(self.usual);
        mix.kinds().map(|(kind, count)| count * cost(kind)).sum()
    }

    /// Returns true if similar spans were learned. The healthy duration of others is unknown: the
    /// first evaluation or checkpoint of a job is not slow.
    pub(super) fn is_familiar(&self, mix: &Mix) -> bool {
        let operations = mix.operations();
        let known = |kind| self.shares.get(&kind).copied().unwrap_or(0.0);
        let beyond = mix
            .kinds()
            .map(|(kind, count)| (count / operations - known(kind)).max(0.0));
        beyond.sum::<f64>() <= UNFAMILIAR
    }

    /// Returns true if nearly all operations are of learned kinds, in any proportions: blocks may
    /// be shorter than iterations.
    pub(super) fn knows(&self, mix: &Mix) -> bool {
        let unknown = mix
            .kinds()
            .filter(|(kind, _)| !self.shares.contains_key(kind));
        let unknown: f64 = unknown.map(|(_, count)| count).sum();
        unknown <= UNFAMILIAR * mix.operations()
    }

    fn scaled(mut self, factor: f64) -> Self {
        self.costs.values_mut().for_each(|cost| *cost *= factor);
        self.usual *= factor;
        self
    }

    fn fit(spans: &[(&Mix, f64)]) -> Option<Self> {
        let took: f64 = spans.iter().map(|(_, ms)| ms).sum();
        let operations: f64 = spans.iter().map(|(mix, _)| mix.operations()).sum();
        if operations <= 0.0 || took <= 0.0 {
            return None;
        }
        let usual = took / operations;
        let kinds = spans.iter().flat_map(|(mix, _)| mix.kinds());
        let mut costs: BTreeMap<u64, f64> = kinds.map(|(kind, _)| (kind, usual)).collect();
        let mut rest: Vec<f64> = spans
            .iter()
            .map(|(mix, ms)| ms - mix.operations() * usual)
            .collect();
        for _ in 0..PASSES {
            for (kind, cost) in &mut costs {
                let (mut with, mut square) = (0.0, 0.0);
                for ((mix, ms), rest) in spans.iter().zip(&rest) {
                    // Relative errors count: otherwise long spans would dominate.
                    let count = mix.count_of_kind(*kind) / ms;
                    with += count * rest / ms;
                    square += count * count;
                }
                if square <= 0.0 {
                    continue;
                }
                let step = (with / (square * (1.0 + RIDGE))).max(-*cost);
                *cost += step;
                for ((mix, _), rest) in spans.iter().zip(&mut rest) {
                    *rest -= step * mix.count_of_kind(*kind);
                }
            }
        }
        Some(Self {
            costs,
            usual,
            shares: largest_shares(spans),
        })
    }
}

fn largest_shares(spans: &[(&Mix, f64)]) -> BTreeMap<u64, f64> {
    let mut shares: BTreeMap<u64, f64> = BTreeMap::new();
    for (mix, _) in spans {
        let operations = mix.operations();
        for (kind, count) in mix.kinds() {
            let most = shares.entry(kind).or_default();
            *most = most.max(count / operations);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::Work;
    use crate::mix::Mix;

    fn mix(text: &str) -> Mix {
        Mix::from_attributes(&format!(r#"{{"fleet.mix":"{text}"}}"#)).unwrap()
    }

    #[test]
    fn the_cost_of_log_lines_is_separated_from_the_cost_of_iterations() {
        let spans: Vec<(Mix, f64)> = (1..20_u32)
            .map(|n| {
                let logs = n % 3;
                let text = format!("step={} log={logs}", n * 10);
                (mix(&text), f64::from(n * 10 * 3 + logs * 50))
            })
            .collect();
        let known: Vec<(&Mix, f64)> = spans.iter().map(|(mix, ms)| (mix, *ms)).collect();
        let work = Work::learn(&known).unwrap();
        let ms = work.predict(&mix("step=100 log=4"));
        assert!((ms - 500.0).abs() < 5.0, "{ms}");
    }

    #[test]
    fn operations_that_were_never_seen_are_unfamiliar_and_a_few_of_them_are_not() {
        let one = mix("step=100 log=2");
        let work = Work::learn(&[(&one, 300.0), (&one, 300.0)]).unwrap();
        assert!(work.is_familiar(&mix("step=100 log=3")));
        assert!(work.is_familiar(&mix("step=100 save=1")));
        assert!(!work.is_familiar(&mix("step=100 evaluate=10")));
        assert!(!work.is_familiar(&mix("step=10 log=10")));
    }

    #[test]
    fn a_slow_start_is_not_taken_for_usual() {
        let one = mix("step=10");
        let mut known = vec![(&one, 3_000.0)];
        known.extend(std::iter::repeat_n((&one, 300.0), 9));
        let ms = Work::learn(&known).unwrap().predict(&one);
        assert!((ms - 300.0).abs() < 1.0, "{ms}");
    }
}
