//! Which clusters, and which tools.

use echo_core::ids::ClusterId;
use echo_core::pattern::{self, Pattern};

/// Clusters, by names and names with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope(Vec<Pattern>);

/// Tools, by names and names with `*`. A tool has its name with dots and, for callers that know no dots, with
/// underscores; what is said of one holds for the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globs(Vec<Pattern>);

impl Scope {
    /// All clusters, also those that nobody has heard of yet.
    pub fn everything() -> Self {
        Self(vec![Pattern::everything()])
    }

    /// Whether no cluster is left out.
    pub fn is_everything(&self) -> bool {
        self.0.iter().any(Pattern::is_everything)
    }

    /// Whether the cluster is one of them.
    pub fn allows(&self, cluster: &ClusterId) -> bool {
        let mut patterns = self.0.iter();
        patterns.any(|pattern| pattern.matches(cluster.as_str()))
    }

    /// The clusters that these patterns name; nothing when there are none.
    pub(super) fn of(patterns: Vec<Pattern>) -> Option<Self> {
        (!patterns.is_empty()).then_some(Self(patterns))
    }
}

impl Globs {
    /// All tools.
    pub fn everything() -> Self {
        Self(vec![Pattern::everything()])
    }

    /// Whether the tool is one of them.
    pub fn allows(&self, tool: &str) -> bool {
        let tool = pattern::without_dots(tool);
        self.0.iter().any(|pattern| pattern.matches(&tool))
    }

    /// The tools that these patterns name.
    pub(super) fn of(patterns: Vec<Pattern>) -> Self {
        Self(patterns.iter().map(Pattern::without_dots).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Globs, Scope};

    #[test]
    fn a_tool_is_allowed_by_either_of_its_names() {
        let tools = Globs::of(vec!["fleet.cluster.get_*".parse().unwrap()]);
        assert!(tools.allows("fleet.cluster.get_cost"));
        assert!(tools.allows("fleet_cluster_get_cost"));
        assert!(!tools.allows("fleet.cluster.run_analysis"));
        assert!(Globs::everything().allows("fleet.cluster.run_analysis"));
    }

    #[test]
    fn clusters_are_everything_only_when_a_star_stands_alone() {
        let scope = |patterns: &[&str]| {
            let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap());
            Scope::of(patterns.collect()).unwrap()
        };
        assert!(Scope::everything().is_everything());
        assert!(scope(&["prod", "*"]).is_everything());
        assert!(!scope(&["prod", "p*"]).is_everything());
        assert!(scope(&["prod", "lab-*"]).allows(&"lab-2".parse().unwrap()));
        assert!(!scope(&["prod", "lab-*"]).allows(&"lab".parse().unwrap()));
        assert!(Scope::of(Vec::new()).is_none());
    }
}
