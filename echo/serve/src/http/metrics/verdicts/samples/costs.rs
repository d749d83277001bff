//! Metrics of straggler costs, per hour and cumulative.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_tools::get_cost::by_cluster::HourlyLoss;
use echo_tools::outlier::culprit;
use echo_tools::rates::{Currency, RateClass};

use crate::http::metrics::verdicts::Cluster;
use crate::http::metrics::verdicts::counters::Quantity;
use crate::http::metrics::verdicts::samples::{
    Family, Labels, Sample, VisibleVerdicts, counter, gauge,
};

impl VisibleVerdicts<'_> {
    /// Returns all cost metrics.
    pub(super) fn costs(&self) -> Vec<Family> {
        let mut families = self.money();
        families.extend(self.time());
        families
    }

    fn money(&self) -> Vec<Family> {
        let clusters = || self.clusters.iter();
        let per_hour = clusters().flat_map(|(name, cluster)| self.per_hour(name, cluster));
        let total = clusters().flat_map(|(name, cluster)| total(name, cluster));
        vec![
            gauge(
                (
                    "straggler_cost_per_hour",
                    "Money lost per hour to the open incidents, each since it began, at most in the last five minutes",
                ),
                per_hour.collect(),
            ),
            gauge(
                (
                    "straggler_max_rank_cost_per_hour",
                    "Money lost per hour to the open incidents of the rank that costs most",
                ),
                self.max_rank_cost(),
            ),
            counter(
                (
                    "straggler_cost",
                    "Money lost to stragglers since Echo was first scraped after its start",
                ),
                total.collect(),
            ),
        ]
    }

    fn time(&self) -> Vec<Family> {
        let counted = |counted: &Quantity| {
            self.cluster_samples(|cluster| cluster.counters.values().get(counted).copied())
        };
        let lately = |value: fn(&HourlyLoss) -> f64| {
            self.latest_samples(|loss| Some(value(loss.per_hour.as_ref()?)))
        };
        vec![
            gauge(
                (
                    "straggler_lost_gpu_hours_per_hour",
                    "GPU-hours lost to stragglers per hour, with a price and without",
                ),
                lately(|loss| loss.gpu_hours),
            ),
            gauge(
                (
                    "straggler_unpriced_gpu_hours_per_hour",
                    "The part of the GPU-hours lost per hour that has no price in the rates file",
                ),
                lately(|loss| loss.unpriced_gpu_hours),
            ),
            counter(
                (
                    "straggler_lost_gpu_seconds",
                    "GPU time lost to stragglers, counted as the money is",
                ),
                counted(&Quantity::Lost),
            ),
            counter(
                (
                    "cluster_allocated_gpu_seconds",
                    "GPU time from each rank's first to its last event, counted as the money is",
                ),
                counted(&Quantity::Allocated),
            ),
        ]
    }

    /// Returns what the costliest rank of each cluster costs per hour: zero without an open culprit,
    /// omitted if unknown.
    fn max_rank_cost(&self) -> Vec<Sample> {
        let mut ranks: BTreeMap<_, f64> = BTreeMap::new();
        let mut samples: BTreeMap<_, f64> = BTreeMap::new();
        for (name, cluster) in &self.clusters {
            let latest = self.latest(cluster);
            if latest.is_some_and(|latest| latest.per_hour.is_some()) {
                let currencies = cluster.classes.iter().map(|(_, currency)| *currency);
                samples.extend(currencies.map(|currency| ((*name, currency), 0.0)));
            }
        }
        for incident in self.open() {
            let cluster = self.clusters.get(&incident.cluster);
            let latest = cluster.and_then(|cluster| self.latest(cluster));
            let per_hour = latest.and_then(|latest| latest.per_hour.as_ref());
            let Some((culprit, per_hour)) = culprit(incident).zip(per_hour) else {
                continue;
            };
            let its = per_hour.by_incident.iter();
            for ((_, currency), cost) in its.filter(|((id, _), _)| *id == incident.id) {
                let rank = (&incident.cluster, &culprit.node, culprit.rank, *currency);
                *ranks.entry(rank).or_default() += cost;
            }
        }
        for ((cluster, _, _, currency), cost) in ranks {
            let most = samples.entry((cluster, currency)).or_default();
            *most = most.max(cost);
        }
        let samples = samples.into_iter().map(|((cluster, currency), cost)| {
            let labels = vec![
                ("cluster", cluster.to_string()),
                ("currency", currency.to_string()),
            ];
            (labels, cost)
        });
        samples.collect()
    }

    /// Returns the cost per hour by rate class: zero without losses, omitted if unknown.
    fn per_hour(&self, name: &ClusterId, cluster: &Cluster) -> Vec<Sample> {
        let latest = self.latest(cluster);
        let Some(loss) = latest.and_then(|latest| latest.per_hour.as_ref()) else {
            return Vec::new();
        };
        let classes = cluster.classes.iter();
        let mut rates: BTreeMap<_, f64> = classes.map(|price| (*price, 0.0)).collect();
        rates.extend(&loss.money);
        let samples = rates
            .into_iter()
            .map(|((class, currency), rate)| (price_labels(name, class, currency), rate));
        samples.collect()
    }
}

fn total(name: &ClusterId, cluster: &Cluster) -> Vec<Sample> {
    let counted = cluster.counters.values().iter();
    let money = counted.filter_map(|(counted, total)| match counted {
        Quantity::Money(class, currency) => Some((price_labels(name, *class, *currency), *total)),
        Quantity::Allocated | Quantity::Lost => None,
    });
    money.collect()
}

fn price_labels(cluster: &ClusterId, class: RateClass, currency: Currency) -> Labels {
    vec![
        ("cluster", cluster.to_string()),
        ("rate_class", class.name().to_owned()),
        ("currency", currency.to_string()),
    ]
}
