//! What stragglers cost, per hour and counted.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_tools::get_cost::by_cluster::HourlyLoss;
use echo_tools::rates::{Currency, RateClass};

use crate::http::metrics::verdicts::Cluster;
use crate::http::metrics::verdicts::counters::Counted;
use crate::http::metrics::verdicts::samples::{Family, Labels, Sample, Seen, counter, gauge};

impl Seen<'_> {
    /// Everything about cost.
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
                    "Money lost to stragglers per hour, if it goes on like the five minutes before the last event",
                ),
                per_hour.collect(),
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
        let counted =
            |counted: &Counted| self.each(|cluster| cluster.counters.shown().get(counted).copied());
        let lately = |value: fn(&HourlyLoss) -> f64| {
            self.of_latest(|loss| Some(value(loss.per_hour.as_ref()?)))
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
                counted(&Counted::Lost),
            ),
            counter(
                (
                    "cluster_allocated_gpu_seconds",
                    "GPU time from each rank's first to its last event, counted as the money is",
                ),
                counted(&Counted::Allocated),
            ),
        ]
    }

    /// By how it is paid for: zero for GPUs that lost nothing, left out while it is not known.
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
            .map(|(price, rate)| (paid_for(name, price), rate));
        samples.collect()
    }
}

fn total(name: &ClusterId, cluster: &Cluster) -> Vec<Sample> {
    let counted = cluster.counters.shown().iter();
    let money = counted.filter_map(|(counted, total)| match counted {
        Counted::Money(class, currency) => Some((paid_for(name, (*class, *currency)), *total)),
        Counted::Allocated | Counted::Lost => None,
    });
    money.collect()
}

fn paid_for(cluster: &ClusterId, (class, currency): (RateClass, Currency)) -> Labels {
    vec![
        ("cluster", cluster.to_string()),
        ("rate_class", class.name().to_owned()),
        ("currency", currency.to_string()),
    ]
}
