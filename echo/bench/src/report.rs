//! Scores as Markdown.

use std::collections::BTreeMap;

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::runner::Tables;
use super::score::{ClassVerdict, Score, ratio};

/// Two-sided 95 % of the normal distribution.
const Z: f64 = 1.959_964;

const HEADER: &str = "| method | events | precision | recall | F1 | false alarms per 1,000 GPUs and day | top-1 | \
     misnamed | steps to detect (median, p95) | steps to clear (median, p95) | class right | inconclusive | \
     CPU per rank and block |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// Tables by group and method as Markdown; the detector first.
pub fn markdown(tables: &Tables, first: &str) -> String {
    let mut text = String::new();
    for (group, methods) in tables {
        text.extend(["### ", group, "\n\n", HEADER]);
        let own = methods.iter().filter(|(method, _)| **method == first);
        let others = methods.iter().filter(|(method, _)| **method != first);
        for (method, score) in own.chain(others) {
            text.push_str(&row(method, score));
        }
        text.push('\n');
    }
    text
}

/// One row for each detail of one method.
pub fn details(rows: &BTreeMap<String, Score>, method: &str) -> String {
    let header = HEADER.replacen("method", "jobs", 1);
    let rows: String = rows.iter().map(|(name, score)| row(name, score)).collect();
    format!("### {method} in detail\n\n{header}{rows}\n")
}

/// Misses and false alerts of one method, as a list.
pub fn wrong(tables: &Tables, method: &str) -> String {
    let scores = tables.values().filter_map(|methods| methods.get(method));
    let lines = scores
        .flat_map(|score| &score.wrong)
        .map(|line| format!("- {line}\n"));
    format!(
        "### What {method} got wrong\n\n{}\n",
        lines.collect::<String>()
    )
}

fn row(method: &str, score: &Score) -> String {
    let n_classed = ClassVerdict::ALL
        .iter()
        .map(|verdict| score.classed(*verdict))
        .sum();
    let cells = [
        method.to_owned(),
        score.events.to_string(),
        share(score.found, score.found + score.false_alerts),
        share(score.found, score.events),
        score.f1().map_or_else(none, |f1| format!("{f1:.3}")),
        alarms(score),
        share(score.located, score.named),
        score.misnamed.to_string(),
        quantiles(&score.to_detect),
        quantiles(&score.to_clear),
        share(score.classed(ClassVerdict::Right), n_classed),
        share(score.classed(ClassVerdict::Inconclusive), n_classed),
        cpu(score),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn none() -> String {
    "-".to_owned()
}

/// A share with its Wilson interval.
pub fn share(part: u32, whole: u32) -> String {
    let Some(share) = ratio(part, whole) else {
        return none();
    };
    let (low, high) = wilson(share, f64::from(whole));
    format!("{share:.3} ({low:.2}-{high:.2})")
}

/// 95 % interval of a share (Wilson 1927).
fn wilson(share: f64, n: f64) -> (f64, f64) {
    let spread = Z * Z / n;
    let center = (share + spread / 2.0) / (1.0 + spread);
    let half = Z / (1.0 + spread) * (share * (1.0 - share) / n + spread / (4.0 * n)).sqrt();
    ((center - half).max(0.0), (center + half).min(1.0))
}

/// Rate with the exact upper 95 % limit of its Poisson count.
fn alarms(score: &Score) -> String {
    if score.gpu_days <= 0.0 {
        return none();
    }
    let per_day = 1_000.0 / score.gpu_days;
    let count = f64::from(score.false_alerts);
    let upper =
        ChiSquared::new(2.0 * (count + 1.0)).map_or(f64::NAN, |chi| chi.inverse_cdf(0.95) / 2.0);
    format!(
        "{:.1} ({} seen, < {:.1})",
        count * per_day,
        score.false_alerts,
        upper * per_day
    )
}

/// Returns the quantile of the values at this many hundredths.
pub fn quantile(values: &[f64], hundredths: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied()
}

/// Median and 95th percentile.
fn quantiles(values: &[f64]) -> String {
    match (quantile(values, 50), quantile(values, 95)) {
        (Some(median), Some(late)) => format!("{median:.0}, {late:.0}"),
        _ => none(),
    }
}

fn cpu(score: &Score) -> String {
    if score.rank_blocks > 0.0 {
        format!("{:.2} us", score.cpu_s * 1e6 / score.rank_blocks)
    } else {
        none()
    }
}
