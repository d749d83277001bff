//! Scopes of permissions: clusters and tools.

use echo_core::ids::ClusterId;
use echo_core::pattern::{self, Pattern};

/// Set of clusters, as names and patterns with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope(Vec<Pattern>);

/// Set of tools, as names and patterns with `*`. A tool has a name with dots and an alias with
/// underscores; a pattern for one applies to both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Globs(Vec<Pattern>);

impl Scope {
    /// Returns the set of all clusters, including unknown ones.
    pub fn everything() -> Self {
        Self(vec![Pattern::everything()])
    }

    /// Returns true if the set contains all clusters.
    pub fn is_everything(&self) -> bool {
        self.0.iter().any(Pattern::is_everything)
    }

    /// Returns true if the set contains the cluster.
    pub fn allows(&self, cluster: &ClusterId) -> bool {
        let mut patterns = self.0.iter();
        patterns.any(|pattern| pattern.matches(cluster.as_str()))
    }

    /// Returns the set of these patterns; `None` without any.
    pub(super) fn from_patterns(patterns: Vec<Pattern>) -> Option<Self> {
        (!patterns.is_empty()).then_some(Self(patterns))
    }
}

impl Globs {
    /// Returns the set of all tools.
    pub fn everything() -> Self {
        Self(vec![Pattern::everything()])
    }

    /// Returns true if the set contains the tool.
    pub fn allows(&self, tool: &str) -> bool {
        let tool = pattern::without_dots(tool);
        self.0.iter().any(|pattern| pattern.matches(&tool))
    }

    /// Returns the set of these patterns.
    pub(super) fn from_patterns(patterns: Vec<Pattern>) -> Self {
        Self(patterns.iter().map(Pattern::without_dots).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Globs, Scope};

    #[test]
    fn a_tool_is_allowed_by_either_of_its_names() {
        let tools = Globs::from_patterns(vec!["fleet.cluster.get_*".parse().unwrap()]);
        assert!(tools.allows("fleet.cluster.get_cost"));
        assert!(tools.allows("fleet_cluster_get_cost"));
        assert!(!tools.allows("fleet.cluster.run_analysis"));
        assert!(Globs::everything().allows("fleet.cluster.run_analysis"));
    }

    #[test]
    fn a_scope_is_everything_only_with_the_pattern_star() {
        let scope = |patterns: &[&str]| {
            let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap());
            Scope::from_patterns(patterns.collect()).unwrap()
        };
        assert!(Scope::everything().is_everything());
        assert!(scope(&["prod", "*"]).is_everything());
        assert!(!scope(&["prod", "p*"]).is_everything());
        assert!(scope(&["prod", "lab-*"]).allows(&"lab-2".parse().unwrap()));
        assert!(!scope(&["prod", "lab-*"]).allows(&"lab".parse().unwrap()));
        assert!(Scope::from_patterns(Vec::new()).is_none());
    }
}
