//! Policies from Echo: settings for processes, and changes to log.

use std::collections::BTreeMap;

use fleet_proto::policy::{CohortPolicy, PolicySet};
use prost::Message;

use crate::exemplar::DEFAULT_MODULUS;
use crate::printable::printable;
use crate::signal::Role;

/// Maximum plausible modulus: beyond it nothing would be sampled.
const MAX_MODULUS: u32 = 1 << 16;

/// Maximum number of culprits listed in a log line.
const MAX_LISTED: usize = 16;

/// Maximum number of characters of a cohort key in a log line.
const MAX_KEY: usize = 120;

/// Decodes the value of the response metadata `fleet-policy-bin`.
pub fn decode(bytes: &[u8]) -> Result<PolicySet, prost::DecodeError> {
    PolicySet::decode(bytes)
}

/// Settings of one process from a policy set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sampling modulus: one operation in so many is sampled.
    pub sample_mod: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sample_mod: DEFAULT_MODULUS,
        }
    }
}

impl Settings {
    /// Returns the settings for a process with this role and job: those of its own cohort, else the
    /// sampling modulus of the first cohort.
    pub fn for_process(set: &PolicySet, role: Option<Role>, job: Option<&str>) -> Self {
        let own = cohort_key(role, job).and_then(|key| find_cohort(set, &key));
        let requested = own
            .or_else(|| set.cohorts.first())
            .map_or(0, |cohort| cohort.sample_mod);
        let is_usable = (1..=MAX_MODULUS).contains(&requested);
        Self {
            sample_mod: if is_usable {
                requested
            } else {
                DEFAULT_MODULUS
            },
        }
    }
}

/// Returns whether every cohort has a plausible sampling modulus. 0 stands for no preference.
pub fn is_plausible(set: &PolicySet) -> bool {
    let moduli = set.cohorts.iter().map(|cohort| cohort.sample_mod);
    moduli.max().is_none_or(|max| max <= MAX_MODULUS)
}

/// Returns the cohort key of a process with this role and job, as the collector forms it; `None`
/// while the role is unknown.
pub fn cohort_key(role: Option<Role>, job: Option<&str>) -> Option<String> {
    role.map(|role| format!("{}/{role}", job.unwrap_or("-")))
}

/// Returns the entry of the cohort with exactly this key.
pub fn find_cohort<'a>(set: &'a PolicySet, key: &str) -> Option<&'a CohortPolicy> {
    set.cohorts.iter().find(|cohort| cohort.cohort == key)
}

/// Returns whether an entry is of this job. Each entry of a job lists the late ranks of the whole job.
pub fn is_of_job(cohort: &CohortPolicy, job: &str) -> bool {
    let key = cohort.cohort.rsplit_once('/');
    key.is_some_and(|(of, _)| of == job)
}

/// Tracks changes from one policy set to the next.
#[derive(Debug, Default)]
pub struct PolicyChanges {
    version: Option<u64>,
    cohorts: BTreeMap<String, (bool, Vec<u32>, Vec<u32>)>,
}

impl PolicyChanges {
    /// Records the next policy set and returns a log line for each cohort whose quorum or culprits
    /// changed.
    pub fn update(&mut self, set: &PolicySet) -> Vec<String> {
        if self.version == Some(set.version) {
            return Vec::new();
        }
        self.version = Some(set.version);
        let mut changes = Vec::new();
        for cohort in &set.cohorts {
            let state = (
                cohort.quorum_met,
                cohort.outlier_ranks.clone(),
                cohort.examined_ranks.clone(),
            );
            if self.cohorts.get(&cohort.cohort) != Some(&state) {
                changes.push(change_line(set.version, cohort));
                self.cohorts.insert(cohort.cohort.clone(), state);
            }
        }
        self.cohorts
            .retain(|key, _| set.cohorts.iter().any(|cohort| cohort.cohort == *key));
        changes
    }

    /// Returns the version of the latest set.
    pub fn version(&self) -> Option<u64> {
        self.version
    }
}

fn change_line(version: u64, cohort: &CohortPolicy) -> String {
    let quorum = if cohort.quorum_met { "met" } else { "not met" };
    let culprits = listed(&cohort.outlier_ranks);
    let key = printable(&cohort.cohort, MAX_KEY);
    let examined = match cohort.examined_ranks.as_slice() {
        [] => String::new(),
        ranks => format!(", examined: {}", listed(ranks)),
    };
    format!("policy v{version}: cohort {key} quorum {quorum}, culprits: {culprits}{examined}")
}

fn listed(ranks: &[u32]) -> String {
    let listed = ranks.iter().take(MAX_LISTED);
    let listed: Vec<String> = listed.map(u32::to_string).collect();
    match ranks.len() {
        0 => "none".to_owned(),
        1 => format!("rank {}", listed.concat()),
        n if n > MAX_LISTED => format!("ranks {} and {} more", listed.join(", "), n - MAX_LISTED),
        _ => format!("ranks {}", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cohort(key: &str, outlier_ranks: &[u32]) -> CohortPolicy {
        CohortPolicy {
            cohort: key.to_owned(),
            sample_mod: 4,
            quorum_met: true,
            outlier_ranks: outlier_ranks.to_vec(),
            ..CohortPolicy::default()
        }
    }

    fn set(version: u64, cohorts: Vec<CohortPolicy>) -> PolicySet {
        PolicySet {
            version,
            cohorts,
            ..PolicySet::default()
        }
    }

    #[test]
    fn the_entries_of_a_job_are_those_of_all_of_its_roles() {
        let of_job = |job| {
            let keys = ["a/b/01", "a/b/02", "a/03", "a"];
            keys.map(|key| is_of_job(&cohort(key, &[]), job))
        };
        assert_eq!(of_job("a/b"), [true, true, false, false]);
        assert_eq!(of_job("a"), [false, false, true, false]);
    }

    #[test]
    fn a_modulus_above_the_maximum_is_implausible() {
        let with_modulus = |sample_mod| {
            let cohort = CohortPolicy {
                sample_mod,
                ..cohort("a", &[])
            };
            set(1, vec![cohort])
        };
        for (requested, is_expected) in [(0, true), (MAX_MODULUS, true), (MAX_MODULUS + 1, false)] {
            assert_eq!(
                is_plausible(&with_modulus(requested)),
                is_expected,
                "{requested}"
            );
        }
        assert!(is_plausible(&set(1, Vec::new())));
    }

    #[test]
    fn a_change_is_reported_once() {
        let mut changes = PolicyChanges::default();
        let lines = changes.update(&set(3, vec![cohort("a", &[2])]));
        assert_eq!(lines, ["policy v3: cohort a quorum met, culprits: rank 2"]);
        assert!(changes.update(&set(3, vec![cohort("a", &[2])])).is_empty());
        assert!(changes.update(&set(4, vec![cohort("a", &[2])])).is_empty());
        let lines = changes.update(&set(5, vec![cohort("a", &[])]));
        assert_eq!(lines, ["policy v5: cohort a quorum met, culprits: none"]);
    }

    #[test]
    fn versions_may_restart_with_a_new_collector() {
        let mut changes = PolicyChanges::default();
        changes.update(&set(30, vec![]));
        assert_eq!(changes.update(&set(1, vec![cohort("a", &[2])])).len(), 1);
        assert_eq!(changes.version(), Some(1));
    }

    #[test]
    fn the_cohort_of_the_own_role_determines_the_sampling() {
        let role = Role::new(0xab);
        let sampled = |key: &str, sample_mod| CohortPolicy {
            sample_mod,
            ..cohort(&format!("{key}/{role}"), &[])
        };
        let set = set(1, vec![sampled("other", 8), sampled("job", 16)]);
        let sample_mod = |role, job| Settings::for_process(&set, role, job).sample_mod;
        assert_eq!(sample_mod(Some(role), Some("job")), 16);
        // While the role is unknown, the first cohort counts.
        assert_eq!(sample_mod(None, Some("job")), 8);
    }

    #[test]
    fn jobs_with_a_common_name_prefix_are_distinct() {
        let role = Role::new(0xab);
        let key = |job| cohort_key(Some(role), job).unwrap();
        let all = ["train-2", "my-train"].map(|job| cohort(&key(Some(job)), &[]));
        let mut set = set(1, all.to_vec());
        assert_eq!(find_cohort(&set, &key(Some("train"))), None);
        // A process without a known job is compared with others without one.
        assert_eq!(find_cohort(&set, &key(None)), None);
        set.cohorts.push(cohort(&key(Some("train")), &[]));
        let own = find_cohort(&set, &key(Some("train")));
        assert_eq!(own, set.cohorts.last());
        assert_eq!(cohort_key(None, Some("train")), None);
    }

    #[test]
    fn an_unusable_modulus_is_replaced_by_the_default() {
        let sample_mod = |sample_mod| {
            let cohort = CohortPolicy {
                sample_mod,
                ..cohort("a", &[])
            };
            Settings::for_process(&set(1, vec![cohort]), None, None).sample_mod
        };
        assert_eq!(sample_mod(MAX_MODULUS), MAX_MODULUS);
        for unusable in [0, MAX_MODULUS + 1, u32::MAX] {
            assert_eq!(sample_mod(unusable), DEFAULT_MODULUS);
        }
    }

    #[test]
    fn a_log_line_lists_few_culprits_and_has_no_control_characters() {
        let ranks: Vec<u32> = (0..2_000).collect();
        let key = format!("\u{1b}[2J\u{202e}{}", "k".repeat(3_000));
        let lines = PolicyChanges::default().update(&set(1, vec![cohort(&key, &ranks)]));
        let line = &lines[0];
        assert!(line.contains("14, 15 and 1984 more"), "{line}");
        assert!(
            line.len() < 400 && !line.contains(['\u{1b}', '\u{202e}']),
            "{line}"
        );
    }

    #[test]
    fn garbage_is_rejected() {
        assert!(decode(&[0xff; 7]).is_err());
    }
}
