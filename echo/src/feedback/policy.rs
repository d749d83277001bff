//! Policies for agents, computed from the cohorts of a cluster.

use std::collections::BTreeMap;

use bytes::Bytes;
use echo_analysis::assembly::CohortKey;
use echo_analysis::policy_input::PolicyInput;
use echo_analysis::settings::Settings;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::PolicyRecord;
use echo_core::policy_table::ClusterPolicy;
use echo_core::stats::multiplicity::critical_z;
use echo_core::units::{NANOS_PER_MILLI, Nanos};
use fleet_proto::metadata;
use fleet_proto::policy::{CohortPolicy, PolicySet};
use prost::Message;

/// Event time after which an unchanged policy is resent with fresh numbers, milliseconds.
const REFRESH_AFTER_MS: f64 = 5_000.0;

/// Policies in force, by cluster.
#[derive(Debug, Default)]
pub struct Policies {
    clusters: BTreeMap<ClusterId, PolicySet>,
}

impl Policies {
    /// Resumes from the policies published last, so that versions only grow. Undecodable policies
    /// are ignored.
    pub fn resume(&mut self, published: &[PolicyRecord]) -> Vec<(ClusterId, ClusterPolicy)> {
        let sets = published.iter().filter_map(|record| {
            let set = PolicySet::decode(record.encoded.as_slice()).ok()?;
            Some((&record.cluster, set))
        });
        let resumed = sets.map(|(cluster, set)| {
            let (_, policy) = publish(cluster, &set);
            self.clusters.insert(cluster.clone(), set);
            (cluster.clone(), policy)
        });
        resumed.collect()
    }

    /// Recomputes the policies and returns those that changed: another culprit or quorum, a new
    /// cohort, one with culprits that has gone, or numbers older than five seconds of event time.
    pub fn update(
        &mut self,
        policy_inputs: BTreeMap<CohortKey, PolicyInput>,
        settings: &Settings,
    ) -> Vec<(PolicyRecord, ClusterPolicy)> {
        let mut fresh: BTreeMap<ClusterId, Vec<CohortPolicy>> = BTreeMap::new();
        for (key, policy_input) in policy_inputs {
            let policies = fresh.entry(key.cluster.clone()).or_default();
            policies.push(cohort_policy(&key, &policy_input, settings));
        }
        for cluster in self.clusters.keys() {
            fresh.entry(cluster.clone()).or_default();
        }
        fresh
            .into_iter()
            .filter_map(|(cluster, cohorts)| self.replace(cluster, cohorts, settings))
            .collect()
    }

    fn replace(
        &mut self,
        cluster: ClusterId,
        cohorts: Vec<CohortPolicy>,
        settings: &Settings,
    ) -> Option<(PolicyRecord, ClusterPolicy)> {
        let validity_nanos = nanos(settings.policy_validity_ms);
        let current = self.clusters.get(&cluster);
        let valid_until = cohorts.iter().map(|cohort| cohort.valid_until_unix_nano);
        let computed = match valid_until.max() {
            Some(latest) => latest.saturating_sub(validity_nanos),
            None => current?.computed_unix_nano,
        };
        let mut cohorts = within_limit(cohorts);
        if current.is_some_and(|current| is_current(current, &cohorts, computed)) {
            return None;
        }
        let version = current.map_or(1, |current| current.version + 1);
        for cohort in &mut cohorts {
            let before = current.and_then(|current| find(current, &cohort.cohort));
            let unchanged = before.is_some_and(|before| same_verdict(before, cohort));
            cohort.policy_version = match before {
                Some(before) if unchanged => before.policy_version,
                _ => version,
            };
        }
        let set = PolicySet {
            version,
            cluster_id: cluster.to_string(),
            cohorts,
            computed_unix_nano: computed,
        };
        let published = publish(&cluster, &set);
        self.clusters.insert(cluster, set);
        Some(published)
    }
}

fn nanos(ms: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "settings are non-negative durations far below 2^63 nanoseconds"
    )]
    let nanos = (ms * NANOS_PER_MILLI) as u64;
    nanos
}

fn cohort_policy(key: &CohortKey, policy_input: &PolicyInput, settings: &Settings) -> CohortPolicy {
    let computed = u64::try_from(policy_input.computed_at.value()).unwrap_or(0);
    CohortPolicy {
        cohort: key.to_string(),
        policy_version: 0,
        signal: policy_input.signal.name().to_owned(),
        center_ms: policy_input.center_ms,
        sigma_ms: policy_input.sigma_ms,
        effect_gate: settings.effect_gate,
        critical_z: critical_z(policy_input.n_ranks, settings.family_alpha),
        period_ms: policy_input.healthy_ms.unwrap_or(0.0),
        sample_mod: settings.sample_mod,
        quorum_met: policy_input.quorum_met,
        valid_until_unix_nano: computed.saturating_add(nanos(settings.policy_validity_ms)),
        outlier_ranks: policy_input
            .outliers
            .iter()
            .map(|rank| rank.value())
            .collect(),
        examined_ranks: policy_input
            .examined
            .iter()
            .map(|rank| rank.value())
            .collect(),
    }
}

fn find<'a>(set: &'a PolicySet, cohort: &str) -> Option<&'a CohortPolicy> {
    set.cohorts.iter().find(|known| known.cohort == cohort)
}

fn same_verdict(a: &CohortPolicy, b: &CohortPolicy) -> bool {
    a.quorum_met == b.quorum_met
        && a.outlier_ranks == b.outlier_ranks
        && a.examined_ranks == b.examined_ranks
        && a.signal == b.signal
}

fn is_current(current: &PolicySet, fresh: &[CohortPolicy], computed: u64) -> bool {
    let known = |cohort: &CohortPolicy| {
        find(current, &cohort.cohort).is_some_and(|before| same_verdict(before, cohort))
    };
    // The verdict of an entry that has gone must not stay in force.
    let is_in_force = |before: &CohortPolicy| {
        let lists_nobody = before.outlier_ranks.is_empty() && before.examined_ranks.is_empty();
        lists_nobody || fresh.iter().any(|cohort| cohort.cohort == before.cohort)
    };
    let age = computed.saturating_sub(current.computed_unix_nano);
    age < nanos(REFRESH_AFTER_MS)
        && fresh.iter().all(known)
        && current.cohorts.iter().all(is_in_force)
}

/// Keeps the most recently computed cohorts, as many as fit the size limit of the wire contract.
fn within_limit(mut cohorts: Vec<CohortPolicy>) -> Vec<CohortPolicy> {
    // Upper bound for version, cluster name and time of the set itself.
    let mut left = metadata::POLICY_MAX_BYTES - 512;
    cohorts.sort_by_key(|cohort| std::cmp::Reverse(cohort.valid_until_unix_nano));
    let mut fits = |cohort: &CohortPolicy| {
        // Tag and length of an entry take up to four bytes.
        let size = cohort.encoded_len() + 4;
        let enough = size <= left;
        left = left.saturating_sub(size);
        enough
    };
    cohorts.retain(|cohort| fits(cohort));
    cohorts.sort_by(|a, b| a.cohort.cmp(&b.cohort));
    cohorts
}

fn publish(cluster: &ClusterId, set: &PolicySet) -> (PolicyRecord, ClusterPolicy) {
    let encoded = set.encode_to_vec();
    let quorum_met = set.cohorts.iter().any(|cohort| cohort.quorum_met);
    let computed_at = Nanos::new(i64::try_from(set.computed_unix_nano).unwrap_or(i64::MAX));
    let record = PolicyRecord {
        cluster: cluster.clone(),
        version: set.version,
        computed_at,
        encoded: encoded.clone(),
    };
    let policy = ClusterPolicy {
        version: set.version,
        encoded: Bytes::from(encoded),
        quorum_met,
        health: None,
    };
    (record, policy)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use echo_analysis::assembly::CohortKey;
    use echo_analysis::policy_input::PolicyInput;
    use echo_analysis::settings::Settings;
    use echo_core::ids::{Rank, RoleId};
    use echo_core::model::detector_output::Signal;
    use echo_core::units::Nanos;
    use fleet_proto::policy::PolicySet;
    use prost::Message;

    use super::Policies;

    fn key(role: u64) -> CohortKey {
        CohortKey {
            cluster: "prod".parse().unwrap(),
            job: Some("job".parse().unwrap()),
            role: RoleId::new(role),
        }
    }

    fn policy_input(at_ms: i64, outliers: &[u32]) -> PolicyInput {
        PolicyInput {
            computed_at: Nanos::new(1_790_000_000_000_000_000 + at_ms * 1_000_000),
            signal: Signal::HostGap,
            center_ms: 4.0,
            sigma_ms: 0.2,
            healthy_ms: Some(50.0),
            quorum_met: true,
            n_ranks: 4,
            outliers: outliers.iter().copied().map(Rank::new).collect(),
            examined: Vec::new(),
        }
    }

    fn of_cohorts(n: u64, policy_input: &PolicyInput) -> BTreeMap<CohortKey, PolicyInput> {
        let keys = (0..n).map(key);
        keys.map(|key| (key, policy_input.clone())).collect()
    }

    fn update(policies: &mut Policies, policy_input: &PolicyInput) -> Option<PolicySet> {
        let policy_inputs = BTreeMap::from([(key(7), policy_input.clone())]);
        let changed = policies.update(policy_inputs, &Settings::default());
        changed
            .first()
            .map(|(record, _)| PolicySet::decode(record.encoded.as_slice()).unwrap())
    }

    #[test]
    fn a_new_culprit_creates_a_new_version_at_once() {
        let mut policies = Policies::default();
        assert_eq!(
            update(&mut policies, &policy_input(0, &[]))
                .unwrap()
                .version,
            1
        );
        assert_eq!(update(&mut policies, &policy_input(200, &[])), None);
        let set = update(&mut policies, &policy_input(400, &[2])).unwrap();
        assert_eq!((set.version, set.cohorts[0].policy_version), (2, 2));
        assert_eq!(set.cohorts[0].outlier_ranks, [2]);
        let examined = PolicyInput {
            examined: vec![Rank::new(0)],
            ..policy_input(600, &[2])
        };
        let set = update(&mut policies, &examined).unwrap();
        assert_eq!((set.version, set.cohorts[0].policy_version), (3, 3));
        assert_eq!(set.cohorts[0].examined_ranks, [0]);
    }

    #[test]
    fn the_verdict_of_a_job_that_has_no_entry_any_more_is_withdrawn_once() {
        let mut policies = Policies::default();
        update(&mut policies, &policy_input(0, &[2])).unwrap();
        let mut without_entries = || policies.update(BTreeMap::new(), &Settings::default());
        let withdrawn = without_entries();
        let set = PolicySet::decode(withdrawn[0].0.encoded.as_slice()).unwrap();
        assert_eq!((set.version, set.cohorts), (2, Vec::new()));
        assert_eq!(without_entries().len(), 0);
    }

    #[test]
    fn old_numbers_are_resent_without_a_new_cohort_version() {
        let mut policies = Policies::default();
        update(&mut policies, &policy_input(0, &[])).unwrap();
        let set = update(&mut policies, &policy_input(6_000, &[])).unwrap();
        assert_eq!((set.version, set.cohorts[0].policy_version), (2, 1));
    }

    #[test]
    fn cohorts_over_the_size_limit_do_not_cause_new_versions() {
        let policy_inputs = of_cohorts(500, &policy_input(0, &[]));
        let mut policies = Policies::default();
        let mut update = || {
            let changed = policies.update(policy_inputs.clone(), &Settings::default());
            changed.len()
        };
        assert_eq!((update(), update()), (1, 0));
    }

    #[test]
    fn a_policy_never_exceeds_the_size_limit() {
        let policy_inputs = of_cohorts(500, &policy_input(0, &[1, 2, 3]));
        let changed = Policies::default().update(policy_inputs, &Settings::default());
        let size = changed[0].0.encoded.len();
        assert!((4_096..=8_192).contains(&size), "{size} bytes");
    }
}
