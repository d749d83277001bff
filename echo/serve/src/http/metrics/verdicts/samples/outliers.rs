//! Metrics of outliers, and of conditions of whole jobs.

use std::collections::{BTreeMap, BTreeSet};

use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{
    CauseClass, ConditionKind, Culprit, Incident, IncidentState,
};
use echo_tools::outlier::{condition, culprit};

use crate::http::metrics::verdicts::samples::{Family, Labels, Sample, VisibleVerdicts, gauge};

/// Most ranks with a lag metric, most severe first.
const MAX_RANKS: usize = 50;

impl VisibleVerdicts<'_> {
    /// Returns all outlier metrics.
    pub(super) fn outliers(&self) -> Vec<Family> {
        vec![
            gauge(
                (
                    "outlier_ranks",
                    "Ranks that hold back their peers, open now or cleared within the hour",
                ),
                self.ranks(),
            ),
            gauge(
                (
                    "rank_lag_seconds",
                    "Delay of a rank behind its peers per iteration, for the 50 most severe open culprits",
                ),
                self.lags(),
            ),
            gauge(
                (
                    "gpu_incidents",
                    "Incidents of a GPU in seven days, the open one included, for the 50 most severe open culprits",
                ),
                self.gpu_incidents(),
            ),
            gauge(
                (
                    "open_conditions",
                    "Open conditions of whole jobs, without a responsible rank",
                ),
                self.conditions(),
            ),
        ]
    }

    /// Counts outliers by class and state; zero for reporting clusters without any.
    fn ranks(&self) -> Vec<Sample> {
        let mut counts = BTreeMap::new();
        for name in self.reporting() {
            for class in CauseClass::ALL {
                for state in [IncidentState::Open, IncidentState::Cleared] {
                    counts.insert((name, class.name(), state), 0.0);
                }
            }
        }
        for incident in &self.incidents {
            if let Some(culprit) = culprit(incident) {
                let key = (&incident.cluster, culprit.class.name(), incident.state);
                *counts.entry(key).or_default() += 1.0;
            }
        }
        let samples = counts.into_iter().map(|((cluster, class, state), count)| {
            let state = match state {
                IncidentState::Open => "open",
                IncidentState::Cleared => "cleared",
            };
            let labels = vec![
                ("cluster", cluster.to_string()),
                ("class", class.to_owned()),
                ("state", state.to_owned()),
            ];
            (labels, count)
        });
        samples.collect()
    }

    fn conditions(&self) -> Vec<Sample> {
        let mut counts = BTreeMap::new();
        for name in self.reporting() {
            counts.extend(ConditionKind::ALL.map(|kind| ((name, kind.name()), 0.0)));
        }
        for incident in self.open() {
            if let Some(condition) = condition(incident) {
                let key = (&incident.cluster, condition.kind.name());
                *counts.entry(key).or_default() += 1.0;
            }
        }
        let samples = counts.into_iter().map(|((cluster, kind), count)| {
            let labels = vec![("cluster", cluster.to_string()), ("kind", kind.to_owned())];
            (labels, count)
        });
        samples.collect()
    }

    /// Returns the lag of each culprit. A rank that holds back several cohorts is listed once, with
    /// its largest lag, because Prometheus rejects duplicate labels.
    fn lags(&self) -> Vec<Sample> {
        let mut lags: BTreeMap<Labels, f64> = BTreeMap::new();
        for incident in self.open() {
            let Some(culprit) = culprit(incident) else {
                continue;
            };
            let (labels, lag_s) = (rank_labels(incident, culprit), culprit.lag_ms / 1e3);
            if lags.len() < MAX_RANKS || lags.contains_key(&labels) {
                let known = lags.entry(labels).or_insert(lag_s);
                *known = known.max(lag_s);
            }
        }
        lags.into_iter().collect()
    }

    /// Counts the incidents of the GPU of each culprit, the largest number of a rank that holds back
    /// several cohorts.
    fn gpu_incidents(&self) -> Vec<Sample> {
        let mut counts: BTreeMap<Labels, u32> = BTreeMap::new();
        for incident in self.open() {
            let culprit = culprit(incident);
            let count = culprit.and_then(|culprit| {
                let recurrence = self.history.recurrence(incident, culprit, self.caller);
                let n = u32::try_from(recurrence.gpu_incidents?).unwrap_or(u32::MAX);
                Some((rank_labels(incident, culprit), n))
            });
            if let Some((labels, n)) = count
                && (counts.len() < MAX_RANKS || counts.contains_key(&labels))
            {
                let known = counts.entry(labels).or_default();
                *known = n.max(*known);
            }
        }
        let counts = counts.into_iter();
        counts.map(|(labels, n)| (labels, f64::from(n))).collect()
    }

    /// Returns the open incidents, most severe first.
    pub(super) fn open(&self) -> impl Iterator<Item = &Incident> {
        let incidents = self.incidents.iter().copied();
        incidents.filter(|incident| incident.state == IncidentState::Open)
    }

    fn reporting(&self) -> BTreeSet<&ClusterId> {
        let clusters = self.clusters.iter();
        let reporting = clusters.filter(|(_, cluster)| cluster.is_reporting);
        reporting.map(|(name, _)| *name).collect()
    }
}

fn rank_labels(incident: &Incident, culprit: &Culprit) -> Labels {
    let job = incident.job.as_ref().map(ToString::to_string);
    vec![
        ("cluster", incident.cluster.to_string()),
        // Not `job`, which Prometheus uses for the scrape job.
        ("job_id", job.unwrap_or_default()),
        ("node", culprit.node.to_string()),
        ("rank", culprit.rank.to_string()),
    ]
}
