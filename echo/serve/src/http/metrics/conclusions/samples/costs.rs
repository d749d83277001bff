//! What stragglers cost, per hour and counted.

use std::collections::BTreeMap;

use echo_core::ids::ClusterId;
use echo_tools::get_cost::answer::Cost;

use crate::http::metrics::conclusions::Cluster;
use crate::http::metrics::conclusions::account::Counted;
use crate::http::metrics::conclusions::samples::{Family, Labels, Sample, Seen, counter, gauge};

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
            |counted: &Counted| self.each(|cluster| cluster.account.shown().get(counted).copied());
        vec![
            gauge(
                (
                    "straggler_lost_gpu_hours_per_hour",
                    "GPU-hours lost to stragglers per hour, with a price and without",
                ),
                self.of_latest(|cost| cost.lost_gpu_hours_per_hour.filter(|_| !cost.stale)),
            ),
            gauge(
                (
                    "straggler_unpriced_gpu_hours_per_hour",
                    "The part of the GPU-hours lost per hour that has no price in the rates file",
                ),
                self.of_latest(|cost| unpriced(cost).filter(|_| !cost.stale)),
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
        let latest = self.latest(cluster).filter(|cost| !cost.stale);
        let Some(cost) = latest.filter(|cost| cost.lost_gpu_hours_per_hour.is_some()) else {
            return Vec::new();
        };
        let classes = cluster.classes.iter();
        let mut rates: BTreeMap<Labels, f64> = classes
            .map(|(class, currency)| (paid_for(name, class.name(), &currency.to_string()), 0.0))
            .collect();
        for row in &cost.by_rate_class {
            let price = row.rate_class.zip(row.amount.currency.as_deref());
            if let Some(((class, currency), rate)) = price.zip(row.run_rate_per_hour) {
                *rates.entry(paid_for(name, class, currency)).or_default() += rate;
            }
        }
        rates.into_iter().collect()
    }
}

fn total(name: &ClusterId, cluster: &Cluster) -> Vec<Sample> {
    let counted = cluster.account.shown().iter();
    let money = counted.filter_map(|(counted, total)| match counted {
        Counted::Money {
            rate_class,
            currency,
        } => Some((paid_for(name, rate_class, currency), *total)),
        Counted::Allocated | Counted::Lost => None,
    });
    money.collect()
}

fn paid_for(cluster: &ClusterId, rate_class: &str, currency: &str) -> Labels {
    vec![
        ("cluster", cluster.to_string()),
        ("rate_class", rate_class.to_owned()),
        ("currency", currency.to_owned()),
    ]
}

/// GPU-hours without a price that are lost per hour.
fn unpriced(cost: &Cost) -> Option<f64> {
    cost.lost_gpu_hours_per_hour?;
    let rows = cost.by_rate_class.iter();
    let unpriced = rows.filter(|row| row.rate_class.is_none());
    Some(unpriced.filter_map(|row| row.lost_gpu_hours_per_hour).sum())
}
