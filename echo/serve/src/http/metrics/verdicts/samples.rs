//! Conclusions as samples.

use std::collections::BTreeMap;
use std::fmt;

use echo_access::Principal;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::Incident;
use echo_core::units::Nanos;
use echo_tools::find_outlier_nodes::FindOutlierNodes;
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::by_cluster::ClusterLoss;
use echo_tools::tool::Tool;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::http::metrics::verdicts::{Cluster, KEPT_MS, Known};

mod costs;
mod outliers;

/// Metrics with all their samples, as a registry takes them.
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

/// What a caller may see.
struct Seen<'a> {
    clusters: BTreeMap<&'a ClusterId, &'a Cluster>,
    /// Gravest first.
    incidents: Vec<&'a Incident>,
    now: Nanos,
    /// How long ago it was read; nothing before the first time.
    age_ms: Option<f64>,
}

impl Families {
    /// What a caller may see: the clusters that he may ask about, by the tools that he may ask.
    pub(super) fn of(known: &Known, caller: &Principal, (now, is_ready): (Nanos, bool)) -> Self {
        let may_ask = |tool| {
            let ask = caller.ask.as_ref();
            ask.is_some_and(|ask| ask.tools.allows(tool))
        };
        let seen = Seen::of(known, caller, now);
        let mut families = seen.reports();
        if may_ask(GetCost::NAME) {
            families.extend(seen.costs());
        }
        if may_ask(FindOutlierNodes::NAME) {
            families.extend(seen.outliers());
        }
        if caller.sees_everything() {
            families.extend(of_echo(known, is_ready));
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
        let known = self.samples.iter().filter(|(_, value)| value.is_finite());
        for (labels, value) in known {
            self.put(*value, metric.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn put(&self, value: f64, metric: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        match self.kind {
            Kind::Counter => ConstCounter::new(value).encode(metric),
            Kind::Gauge => ConstGauge::new(value).encode(metric),
        }
    }
}

impl<'a> Seen<'a> {
    fn of(known: &'a Known, caller: &Principal, now: Nanos) -> Self {
        let clusters = known.clusters.iter();
        let clusters: BTreeMap<_, _> = clusters.filter(|(name, _)| caller.may_see(name)).collect();
        let incidents = known.incidents.iter();
        let incidents = incidents.filter(|incident| clusters.contains_key(&incident.cluster));
        Self {
            incidents: incidents.collect(),
            clusters,
            now,
            age_ms: known.read_at.map(|at| now.millis_since(at).max(0.0)),
        }
    }

    /// Who reports, and how current it is.
    fn reports(&self) -> Vec<Family> {
        let seconds_since = |instant: Nanos| (self.now.millis_since(instant) / 1e3).max(0.0);
        vec![
            gauge(
                (
                    "cluster_coverage_ratio",
                    "Share of the ranks of the cluster's jobs that report, 0 to 1",
                ),
                self.of_latest(|loss| loss.quality.coverage),
            ),
            gauge(
                ("cluster_ranks_reporting", "Ranks that report"),
                self.of_latest(|loss| Some(count(loss.quality.ranks_reporting))),
            ),
            gauge(
                (
                    "cluster_ranks_expected",
                    "Ranks that the reporting jobs have, by what they say of themselves",
                ),
                self.of_latest(|loss| Some(count(loss.quality.ranks_expected))),
            ),
            gauge(
                (
                    "cluster_last_event_age_seconds",
                    "Time since the last event of the cluster",
                ),
                self.each(|cluster| cluster.last_event.map(seconds_since)),
            ),
            gauge(
                (
                    "conclusions_age_seconds",
                    "Time since what Echo concluded was read for a scrape",
                ),
                self.age_ms
                    .map(|age_ms| (Labels::new(), age_ms / 1e3))
                    .into_iter()
                    .collect(),
            ),
        ]
    }

    /// A value of each cluster that has one.
    fn each(&self, value: impl Fn(&Cluster) -> Option<f64>) -> Vec<Sample> {
        let samples = self.clusters.iter().filter_map(|(name, cluster)| {
            let labels = vec![("cluster", name.to_string())];
            Some((labels, value(cluster)?))
        });
        samples.collect()
    }

    fn of_latest(&self, value: impl Fn(&ClusterLoss) -> Option<f64>) -> Vec<Sample> {
        self.each(|cluster| value(self.latest(cluster)?))
    }

    /// What was lost lately, while it is worth showing.
    fn latest<'b>(&self, cluster: &'b Cluster) -> Option<&'b ClusterLoss> {
        let is_shown = self.age_ms.is_some_and(|age_ms| age_ms < KEPT_MS);
        cluster.latest.as_ref().filter(|_| is_shown)
    }
}

fn of_echo(known: &Known, is_ready: bool) -> [Family; 4] {
    let one = |value: u64| vec![(Labels::new(), count(value))];
    let size = |value: usize| one(u64::try_from(value).unwrap_or(u64::MAX));
    [
        gauge(
            (
                "ready",
                "1 when events are taken, as /readyz says; 0 when they are refused",
            ),
            one(u64::from(is_ready)),
        ),
        gauge(
            (
                "rates_in_force",
                "Prices of GPU-hours that hold now; without any no money is counted",
            ),
            size(known.rates_in_force),
        ),
        gauge(
            (
                "conclusions_clusters_left_out",
                "Clusters of which nothing is told because there are more than a thousand",
            ),
            size(known.left_out),
        ),
        counter(
            (
                "conclusions_failed",
                "Scrapes that show older conclusions because they could not be read in time",
            ),
            one(known.failed),
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
