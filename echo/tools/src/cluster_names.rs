//! Names of clusters in error messages.

use std::collections::BTreeSet;

use echo_core::ids::ClusterId;

/// Maximum number of clusters named in a message.
const MAX_LISTED: usize = 20;

/// Minimum similarity (Jaro-Winkler) of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.8;

/// Lists the clusters, at most twenty.
pub(super) fn listed(known: &BTreeSet<ClusterId>) -> String {
    if known.is_empty() {
        return "none; no agent has sent events yet".to_owned();
    }
    let names = known.iter().take(MAX_LISTED).map(ClusterId::as_str);
    let names: Vec<&str> = names.collect();
    let names = names.join(", ");
    match known.len().saturating_sub(MAX_LISTED) {
        0 => names,
        n_more => format!("{names}, and {n_more} more"),
    }
}

/// Returns the cluster with the most similar name, if one is similar.
pub(super) fn nearest<'a>(
    name: &ClusterId,
    known: &'a BTreeSet<ClusterId>,
) -> Option<&'a ClusterId> {
    let similarity = |cluster: &ClusterId| strsim::jaro_winkler(name.as_str(), cluster.as_str());
    let scored = known.iter().map(|cluster| (similarity(cluster), cluster));
    let similar = scored.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    let best = similar.max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, cluster)| cluster)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use echo_core::ids::ClusterId;

    use super::{listed, nearest};

    fn named(names: impl IntoIterator<Item = String>) -> BTreeSet<ClusterId> {
        names
            .into_iter()
            .map(|name| name.parse().unwrap())
            .collect()
    }

    #[test]
    fn a_message_names_at_most_twenty_clusters() {
        let many = named((10..40).map(|number| format!("c{number}")));
        assert!(listed(&many).ends_with(", c28, c29, and 10 more"));
        let two = named(["lab".to_owned(), "prod".to_owned()]);
        assert_eq!(listed(&two), "lab, prod");
        assert!(listed(&BTreeSet::new()).starts_with("none"));
    }

    #[test]
    fn only_a_similar_name_is_suggested() {
        let known = named(["lab", "prod-eu-1", "prod-us-1"].map(str::to_owned));
        for (typed, expected) in [
            ("prod-us1", Some("prod-us-1")),
            ("Lab", None),
            ("labs", Some("lab")),
            ("production", None),
        ] {
            let found = nearest(&typed.parse().unwrap(), &known);
            assert_eq!(found.map(ClusterId::as_str), expected, "{typed}");
        }
    }
}
