//! Parser of the text that Prometheus scrapes.

use std::collections::{BTreeMap, BTreeSet};

/// An exposed metric.
#[derive(Debug, Default)]
pub(super) struct Metric {
    /// `counter`, `gauge` or `histogram`.
    pub(super) kind: String,
    /// Names of labels; empty without samples.
    pub(super) labels: BTreeSet<String>,
}

impl Metric {
    /// Returns whether `name` is the metric, which is called `own`, or one of its samples.
    pub(super) fn is_sampled_as(&self, own: &str, name: &str) -> bool {
        let suffixes: &[&str] = match self.kind.as_str() {
            "histogram" => &["", "_bucket", "_count", "_sum"],
            _ => &[""],
        };
        suffixes
            .iter()
            .any(|suffix| format!("{own}{suffix}") == name)
    }
}

/// Returns the metrics by the names of their samples; histograms by the name without suffix. Checks
/// that each has a help text.
pub(super) fn metrics_of(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (_, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 10, "{line}");
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            name.clone_into(&mut current);
            let kind = kind.to_owned();
            let metric = Metric {
                kind,
                ..Metric::default()
            };
            assert!(
                metrics.insert(current.clone(), metric).is_none(),
                "{line} twice"
            );
        } else if !line.starts_with('#') {
            let metric = metrics.get_mut(&current).unwrap();
            metric.labels.extend(labels(line));
        }
    }
    metrics
}

/// Returns the names of the labels of a sample, except that of buckets.
fn labels(sample: &str) -> Vec<String> {
    let Some((_, labels)) = sample.split_once('{') else {
        return Vec::new();
    };
    let (labels, _) = labels.rsplit_once('}').unwrap();
    let parts = labels
        .split("\",")
        .filter_map(|part| part.split_once("=\""));
    let names = parts.map(|(name, _)| name.to_owned());
    names.filter(|name| name != "le").collect()
}
