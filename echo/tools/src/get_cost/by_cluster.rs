//! Losses of every cluster, from rows that are read once for all of them: the scalar values of
//! `get_cost` without its lists.

use std::collections::BTreeMap;

use echo_analysis::hours;
use echo_core::ids::{ClusterId, IncidentId};
use echo_core::model::cost::ReportSpan;
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::{GpuTime, Window};
use echo_store::Coverage;

use super::bill::{Bill, LineItem, Sum, money};
use super::losses::latest_losses;
use super::run_rate::{RunRate, RunRateHorizon};
use crate::quality::{DataQuality, Presence};
use crate::rates::{Currency, RateClass};
use crate::{ToolContext, ToolError};

/// Money by rate class and currency.
pub type Money = BTreeMap<(RateClass, Currency), f64>;

/// Losses of one cluster in a window, and per hour at its end.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterLoss {
    /// Quality of the data.
    pub quality: DataQuality,
    /// Allocated GPU time: from the first to the last event of each rank, one GPU per rank.
    pub allocated: GpuTime,
    /// GPU time lost, with a price and without.
    pub lost: GpuTime,
    /// Cost of the lost GPU time.
    pub money: Money,
    /// Loss per hour at the end of the window; `None` when too few ranks report, or none recently.
    pub per_hour: Option<HourlyLoss>,
}

/// Loss per hour if the open incidents continue.
#[derive(Debug, Clone, PartialEq)]
pub struct HourlyLoss {
    /// GPU-hours, with a price and without.
    pub gpu_hours: f64,
    /// Part of the GPU-hours that has no price.
    pub unpriced_gpu_hours: f64,
    /// Cost of the priced GPU-hours.
    pub money: Money,
    /// Cost of the priced GPU-hours by incident and currency.
    pub by_incident: BTreeMap<(IncidentId, Currency), f64>,
}

/// Returns the losses of each cluster that reported or lost time in the window.
pub async fn losses_by_cluster(
    context: &ToolContext,
    window: Window,
) -> Result<BTreeMap<ClusterId, ClusterLoss>, ToolError> {
    let mut clusters: BTreeMap<ClusterId, (Vec<Coverage>, Vec<LostTime>)> = BTreeMap::new();
    for row in context.store.coverage(None, window).await? {
        let cluster = clusters.entry(row.origin.cluster.clone()).or_default();
        cluster.0.push(row);
    }
    let (rows, incidents) = latest_losses(context, None, window).await?;
    for row in rows {
        clusters.entry(row.cluster.clone()).or_default().1.push(row);
    }
    let losses = clusters.into_iter().map(|(name, (seen, lost))| {
        let loss = ClusterLoss::new(context, window, seen, (&lost, &incidents));
        (name, loss)
    });
    Ok(losses.collect())
}

impl ClusterLoss {
    fn new(
        context: &ToolContext,
        window: Window,
        rows: Vec<Coverage>,
        (lost, incidents): (&[LostTime], &BTreeMap<IncidentId, Incident>),
    ) -> Self {
        let seen = rows.iter().map(ReportSpan::from);
        let allocated = hours::allocated(window, &seen.collect::<Vec<_>>());
        let presence = Presence::from_rows(rows);
        let bill = Bill::new(lost, window, &context.rates);
        let at = window.to().min(context.clock.now());
        let horizon = RunRateHorizon::from_presence(&presence, window, at, &context.limits);
        let horizon = horizon.filter(|horizon| !horizon.is_stale(context, window));
        let run_rate = horizon.and_then(|horizon| horizon.run_rate(context, lost, incidents));
        Self {
            allocated,
            lost: bill.time(),
            money: priced(bill.sum_by(class)),
            per_hour: run_rate.as_ref().map(HourlyLoss::from_run_rate),
            quality: presence.quality(context, window),
        }
    }
}

impl HourlyLoss {
    fn from_run_rate(run_rate: &RunRate<'_>) -> Self {
        let sums = run_rate.sum_by(class);
        let by_incident = run_rate.sum_by(|item| item.loss.incident).into_iter();
        let by_incident = by_incident
            .filter_map(|((id, currency), sum)| Some(((id, currency?), money(sum.cost))));
        Self {
            by_incident: by_incident.collect(),
            gpu_hours: run_rate.gpu_hours_per_hour(),
            unpriced_gpu_hours: sums.get(&(None, None)).map_or(0.0, |sum| sum.time.hours()),
            money: priced(sums),
        }
    }
}

fn class(item: &LineItem<'_>) -> Option<RateClass> {
    item.rate.map(|rate| rate.class)
}

fn priced(sums: BTreeMap<(Option<RateClass>, Option<Currency>), Sum>) -> Money {
    let priced = sums.into_iter().filter_map(|((class, currency), sum)| {
        let price = class.zip(currency)?;
        Some((price, money(sum.cost)))
    });
    priced.collect()
}
