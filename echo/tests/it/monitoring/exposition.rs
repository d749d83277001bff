//! The text that Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};

/// A metric as it is exposed.
#[derive(Debug, Default)]
pub(super) struct Metric {
    /// `counter`, `gauge`, `histogram` or `info`.
    pub(super) kind: String,
    /// Names of labels, where it has samples.
    pub(super) labels: BTreeSet<String>,
}

impl Metric {
    /// Whether a sample of it has this name, or all of them together have. It is `own` itself.
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

/// Every metric under the name that its samples have, histograms under the name without suffix. Each says what it means.
pub(super) fn metrics_of(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (_, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 10, "{line}");
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            current = match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            };
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

/// Names of the labels of a sample, without that of buckets.
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
