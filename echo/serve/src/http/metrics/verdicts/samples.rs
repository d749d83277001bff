//! Verdicts as metric samples.

use std::collections::BTreeMap;
use std::fmt;

use echo_access::Principal;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::Incident;
use echo_core::units::Nanos;
use echo_tools::find_outlier_nodes::FindOutlierNodes;
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::by_cluster::ClusterLoss;
use echo_tools::recurrence::History;
use echo_tools::tool::Tool;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::http::metrics::verdicts::{Cluster, STALE_AFTER_MS, State};

mod costs;
mod outliers;

/// Metrics with all their samples, as a registry collects them.
#[derive(Debug)]
pub(in crate::http) struct Families(Vec<Family>);

/// A metric with all its samples.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

type Sample = (Labels, f64);

type Labels = Vec<(&'static str, String)>;

/// Verdicts visible to a caller.
struct VisibleVerdicts<'a> {
    clusters: BTreeMap<&'a ClusterId, &'a Cluster>,
    /// Incidents, most severe first.
    incidents: Vec<&'a Incident>,
    history: &'a History,
    caller: &'a Principal,
    now: Nanos,
    /// Time since the verdicts were read; `None` before the first read.
    age_ms: Option<f64>,
}

impl Families {
    /// Returns the metrics visible to a caller: clusters it may query, through tools it may call.
    pub(super) fn visible_to(
        state: &State,
        caller: &Principal,
        (now, is_ready): (Nanos, bool),
    ) -> Self {
        let may_call = |tool| {
            let query = caller.query.as_ref();
            query.is_some_and(|query| query.tools.allows(tool))
        };
        let visible = VisibleVerdicts::new(state, caller, now);
        let mut families = visible.reports();
        if may_call(GetCost::NAME) {
            families.extend(visible.costs());
        }
        if may_call(FindOutlierNodes::NAME) {
            families.extend(visible.outliers());
        }
        if caller.sees_everything() {
            families.extend(process_families(state, is_ready));
        }
        Self(families)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut families = self.0.iter();
        families.try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = match self.kind {
            Kind::Counter => ConstCounter::new(0.0).metric_type(),
            Kind::Gauge => ConstGauge::new(0.0).metric_type(),
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        if let [(labels, value)] = self.samples.as_slice()
            && labels.is_empty()
        {
            return self.put(*value, metric);
        }
        let finite = self.samples.iter().filter(|(_, value)| value.is_finite());
        for (labels, value) in finite {
            self.put(*value, metric.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn put(&self, value: f64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        // The sum of nothing is a negative zero; adding zero removes the sign.
        let value = value + 0.0;
        match self.kind {
            Kind::Counter => ConstCounter::new(value).encode(metric),
            Kind::Gauge => ConstGauge::new(value).encode(metric),
        }
    }
}

impl<'a> VisibleVerdicts<'a> {
    fn new(state: &'a State, caller: &'a Principal, now: Nanos) -> Self {
        let clusters = state.clusters.iter();
        let clusters: BTreeMap<_, _> = clusters.filter(|(name, _)| caller.may_see(name)).collect();
        let incidents = state.incidents.iter();
        let incidents = incidents.filter(|incident| clusters.contains_key(&incident.cluster));
        Self {
            incidents: incidents.collect(),
            history: &state.history,
            caller,
            clusters,
            now,
            age_ms: state.read_at.map(|at| now.millis_since(at).max(0.0)),
        }
    }

    /// Returns the metrics of coverage and freshness.
    fn reports(&self) -> Vec<Family> {
        let seconds_since = |instant: Nanos| (self.now.millis_since(instant) / 1e3).max(0.0);
        vec![
            gauge(
                (
                    "cluster_coverage_ratio",
                    "Share of the ranks of the cluster's jobs that report, 0 to 1",
                ),
                self.latest_samples(|loss| loss.quality.coverage),
            ),
            gauge(
                ("cluster_ranks_reporting", "Ranks that report"),
                self.latest_samples(|loss| Some(count(loss.quality.ranks_reporting))),
            ),
            gauge(
                (
                    "cluster_ranks_expected",
                    "Ranks that the reporting jobs declare",
                ),
                self.latest_samples(|loss| Some(count(loss.quality.ranks_expected))),
            ),
            gauge(
                (
                    "cluster_last_event_age_seconds",
                    "Time since the last event of the cluster",
                ),
                self.cluster_samples(|cluster| cluster.last_event.map(seconds_since)),
            ),
            gauge(
                (
                    "verdicts_age_seconds",
                    "Time since verdicts were read for a scrape",
                ),
                self.age_ms
                    .map(|age_ms| (Labels::new(), age_ms / 1e3))
                    .into_iter()
                    .collect(),
            ),
        ]
    }

    /// Returns a sample for each cluster that has a value.
    fn cluster_samples(&self, value: impl Fn(&Cluster) -> Option<f64>) -> Vec<Sample> {
        let samples = self.clusters.iter().filter_map(|(name, cluster)| {
            let labels = vec![("cluster", name.to_string())];
            Some((labels, value(cluster)?))
        });
        samples.collect()
    }

    fn latest_samples(&self, value: impl Fn(&ClusterLoss) -> Option<f64>) -> Vec<Sample> {
        self.cluster_samples(|cluster| value(self.latest(cluster)?))
    }

    /// Returns the latest losses, unless they are stale.
    fn latest<'b>(&self, cluster: &'b Cluster) -> Option<&'b ClusterLoss> {
        let is_shown = self.age_ms.is_some_and(|age_ms| age_ms < STALE_AFTER_MS);
        cluster.latest.as_ref().filter(|_| is_shown)
    }
}

fn process_families(state: &State, is_ready: bool) -> [Family; 4] {
    let one = |value: u64| vec![(Labels::new(), count(value))];
    let size = |value: usize| one(u64::try_from(value).unwrap_or(u64::MAX));
    [
        gauge(
            (
                "ready",
                "1 if events are accepted, as in /readyz; 0 if they are refused",
            ),
            one(u64::from(is_ready)),
        ),
        gauge(
            (
                "rates_in_force",
                "Prices of GPU-hours in force; without any, no money is counted",
            ),
            size(state.rates_in_force),
        ),
        gauge(
            (
                "verdicts_clusters_omitted",
                "Clusters without metrics because there are more than a thousand",
            ),
            size(state.left_out),
        ),
        counter(
            (
                "verdicts_failed",
                "Scrapes with older verdicts because they could not be read in time",
            ),
            one(state.failed),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "a count is far below 2^53")]
const fn count(number: u64) -> f64 {
    number as f64
}

const fn gauge((name, help): (&'static str, &'static str), samples: Vec<Sample>) -> Family {
    Family {
        name,
        help,
        kind: Kind::Gauge,
        samples,
    }
}

const fn counter((name, help): (&'static str, &'static str), samples: Vec<Sample>) -> Family {
    Family {
        name,
        help,
        kind: Kind::Counter,
        samples,
    }
}
