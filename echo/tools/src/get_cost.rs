//! Cost of stragglers: a total over a window, and a rate per hour at its end. The two numbers have
//! two names and are never combined.

use std::collections::BTreeMap;

use answer::{
    ClusterCost, Contributor, Cost, CurrencyCost, JobCost, KindCost, ModelCost, NodeCost,
    RateClassCost,
};
use bill::{Bill, amount, largest_first, money};
use chargeback::Chargeback;
use contributor::{IncidentBills, contributors, kind};
use echo_analysis::cost::{peer_waits, savings};
use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{Incident, LostTime};
use echo_core::units::GpuTime;
use losses::losses;
use run_rate::{RunRate, RunRateHorizon};
use schemars::JsonSchema;
use serde::Deserialize;
use subject::Subject;

use crate::quality::{JobKey, Presence};
use crate::rates::Currency;
use crate::schemas::ClusterName;
use crate::scope::{Scope, ScopeRequest};
use crate::time::{TimeArg, TimeRange, WindowArg};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

mod allocation;
pub mod answer;
mod bill;
pub mod by_cluster;
mod chargeback;
mod contributor;
mod headline;
mod losses;
mod run_rate;
mod subject;

const DEFAULT_LIMIT: usize = 50;

/// Cluster and time range.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GetCost {
    /// Cluster name. Default: all clusters.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Start: RFC 3339, date, Unix ms, or `now-15m`. Default: 1h before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    pub to: Option<TimeArg>,
    /// Instead of `from`, `to`: `all`, or a duration like `15m`.
    pub window: Option<WindowArg>,
    /// Only this job.
    pub job: Option<String>,
    /// Maximum number of entries. Default: 50.
    #[schemars(range(min = 1, max = 2000))]
    pub limit: Option<usize>,
}

impl Tool for GetCost {
    const NAME: &'static str = "fleet.cluster.get_cost";
    const TITLE: &'static str = "Get cost";
    const DESCRIPTION: &'static str = "Prices the GPU time lost to stragglers: window_total in the window, \
        run_rate_per_hour at its end; by cluster, node, job, GPU model, rate class and incident. GPU-hours \
        without a price are in unpriced_gpu_hours.";
    type Answer = Cost;

    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest {
            cluster: self.cluster.clone(),
            time: TimeRange {
                from: self.from,
                to: self.to,
                window: self.window,
            },
            page_window: None,
        }
    }

    fn headline(answer: &Cost) -> Option<String> {
        Some(headline::headline(answer))
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Cost, ToolError> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        let subject = Subject::find(scope, self.job.as_deref()).await?;
        let (rows, incidents) = losses(scope, subject.job()).await?;
        let presence = subject.presence().await?;
        let limits = &scope.context.limits;
        let horizon =
            RunRateHorizon::from_presence(presence, scope.window, scope.present(), limits);
        let breakdown = CostBreakdown::new(scope, &rows, horizon.as_ref(), incidents);
        let currency = breakdown.only_currency(scope.context);
        let lost = breakdown.bill.time();
        let allocated = subject.allocated().await?;
        let stale = horizon
            .as_ref()
            .is_none_or(|horizon| horizon.is_stale(scope.context, scope.window));
        let (contributors, n_omitted) = breakdown.contributors(limit, stale, presence);
        let (by_cluster, omits_clusters) = truncate_rows(breakdown.by_cluster(), limit);
        let (by_node, omits_nodes) = truncate_rows(breakdown.by_node(), limit);
        let (by_job, omits_jobs) = truncate_rows(breakdown.by_job(presence), limit);
        Ok(Cost {
            cluster: subject.cluster().map(ToString::to_string),
            job: self.job.clone(),
            window: scope.window.into(),
            as_of: horizon.as_ref().map(|horizon| horizon.as_of.to_string()),
            currency: currency.map(|currency| currency.to_string()),
            window_total: horizon
                .as_ref()
                .and_then(|_| breakdown.window_total(currency)),
            run_rate_per_hour: breakdown.run_rate_per_hour(currency),
            lower_bound: breakdown.is_lower_bound(),
            horizon_s: horizon
                .as_ref()
                .map(|horizon| horizon.window.millis() / 1e3),
            stale,
            lost_gpu_hours: lost.hours(),
            lost_gpu_hours_per_hour: breakdown.run_rate.as_ref().map(RunRate::gpu_hours_per_hour),
            unpriced_gpu_hours: breakdown.unpriced().hours(),
            peer_wait_total: breakdown.peer_wait_total(currency),
            peer_wait_gpu_hours: breakdown
                .peer_waits
                .as_ref()
                .map(|bill| bill.time().hours()),
            allocated_gpu_hours: allocated.hours(),
            lost_ratio: (allocated > GpuTime::ZERO).then(|| lost.hours() / allocated.hours()),
            data_quality: subject.quality().await?,
            by_currency: breakdown.by_currency(),
            by_kind: breakdown.by_kind(),
            by_cluster,
            by_node,
            by_job,
            by_gpu_model: breakdown.by_gpu_model(),
            by_rate_class: breakdown.by_rate_class(),
            contributors,
            contributors_left_out: n_omitted,
            truncated: n_omitted > 0 || omits_clusters || omits_nodes || omits_jobs,
        })
    }
}

/// Job that an incident is about.
fn job(incident: &Incident) -> JobKey {
    (incident.cluster.clone(), incident.job.clone())
}

/// Priced losses from which the answer is built.
struct CostBreakdown<'a> {
    bill: Bill<'a>,
    /// Time that healthy GPUs waited; `None` unless every rank reported it.
    peer_waits: Option<Bill<'a>>,
    /// Savings had one culprit alone been healthy.
    savings: Bill<'a>,
    run_rate: Option<RunRate<'a>>,
    incidents: BTreeMap<IncidentId, Incident>,
}

impl<'a> CostBreakdown<'a> {
    fn new(
        scope: &Scope<'a>,
        rows: &[LostTime],
        horizon: Option<&RunRateHorizon>,
        incidents: BTreeMap<IncidentId, Incident>,
    ) -> Self {
        let context = scope.context;
        let bill = |rows: &[LostTime]| Bill::new(rows, scope.window, &context.rates);
        Self {
            bill: bill(rows),
            peer_waits: peer_waits(rows).map(|rows| bill(&rows)),
            savings: bill(&savings(rows)),
            run_rate: horizon.and_then(|horizon| horizon.run_rate(context, rows, &incidents)),
            incidents,
        }
    }
}

impl CostBreakdown<'_> {
    /// Currency of the losses, or of the rates file when nothing with a price was lost.
    fn only_currency(&self, context: &ToolContext) -> Option<Currency> {
        let mut found = self.bill.by_currency().into_keys().flatten();
        match (found.next(), found.next()) {
            (None, _) => context.rates.only_currency(),
            (Some(only), None) => Some(only),
            (Some(_), Some(_)) => None,
        }
    }

    /// True if the loss of an incident is a lower bound.
    fn is_lower_bound(&self) -> bool {
        self.bill.has_lower_bound(&self.incidents)
    }

    fn window_total(&self, currency: Option<Currency>) -> Option<f64> {
        total(&self.bill, currency)
    }

    fn peer_wait_total(&self, currency: Option<Currency>) -> Option<f64> {
        total(self.peer_waits.as_ref()?, currency)
    }

    fn run_rate_per_hour(&self, currency: Option<Currency>) -> Option<f64> {
        self.run_rate.as_ref()?.per_hour(currency?)
    }

    fn unpriced(&self) -> GpuTime {
        self.bill
            .by_currency()
            .get(&None)
            .map_or(GpuTime::ZERO, |sum| sum.time)
    }

    fn by_currency(&self) -> Vec<CurrencyCost> {
        let sums = self.bill.by_currency().into_iter();
        let priced = sums.filter_map(|(currency, sum)| Some((currency?, sum)));
        priced
            .map(|(currency, sum)| CurrencyCost {
                currency: currency.to_string(),
                window_total: money(sum.cost),
                run_rate_per_hour: self.run_rate_per_hour(Some(currency)),
                lost_gpu_hours: sum.time.hours(),
            })
            .collect()
    }

    fn by_kind(&self) -> Vec<KindCost> {
        let kind_of = |item: &bill::LineItem<'_>| self.incidents.get(&item.loss.incident).map(kind);
        let sums = self.bill.sum_by(kind_of).into_iter();
        sums.map(|((kind, currency), sum)| KindCost {
            kind,
            amount: amount(currency, sum),
        })
        .collect()
    }

    fn by_cluster(&self) -> Vec<ClusterCost> {
        let sums = self.bill.sum_by(|item| item.loss.cluster.clone());
        largest_first(sums)
            .map(|((cluster, currency), sum)| ClusterCost {
                cluster: cluster.to_string(),
                amount: amount(currency, sum),
            })
            .collect()
    }

    fn by_node(&self) -> Vec<NodeCost> {
        let node = |item: &bill::LineItem<'_>| (item.loss.cluster.clone(), item.loss.node.clone());
        let sums = self.bill.sum_by(node);
        largest_first(sums)
            .map(|(((cluster, node), currency), sum)| NodeCost {
                cluster: cluster.to_string(),
                node_id: node.to_string(),
                amount: amount(currency, sum),
            })
            .collect()
    }

    fn by_job(&self, presence: &Presence) -> Vec<JobCost> {
        Chargeback::new(&self.incidents, presence).by_job(&self.bill)
    }

    fn by_gpu_model(&self) -> Vec<ModelCost> {
        let sums = self
            .bill
            .sum_by(|item| item.loss.gpu_model.clone())
            .into_iter();
        sums.map(|((gpu_model, currency), sum)| ModelCost {
            gpu_model: gpu_model.as_deref().map(str::to_owned),
            amount: amount(currency, sum),
        })
        .collect()
    }

    fn by_rate_class(&self) -> Vec<RateClassCost> {
        let price =
            |item: &bill::LineItem<'_>| item.rate.map(|rate| (rate.class, rate.per_gpu_hour));
        let mut sums = self.bill.sum_by(price);
        let recent = self
            .run_rate
            .as_ref()
            .map(|run_rate| run_rate.sum_by(price));
        for price in recent.iter().flat_map(BTreeMap::keys) {
            sums.entry(*price).or_default();
        }
        let recent_sum = |price| Some(recent.as_ref()?.get(price).copied().unwrap_or_default());
        sums.iter()
            .map(|(price, sum)| RateClassCost {
                rate_class: price.0.map(|(class, _)| class.name()),
                rate_per_gpu_hour: price.0.map(|(_, rate)| money(rate)),
                run_rate_per_hour: price.1.and_then(|_| Some(money(recent_sum(price)?.cost))),
                lost_gpu_hours_per_hour: recent_sum(price).map(|sum| sum.time.hours()),
                amount: amount(price.1, *sum),
            })
            .collect()
    }

    /// Contributors, largest first, and the number omitted. A stale run rate is unknown.
    fn contributors(
        &self,
        limit: usize,
        is_stale: bool,
        presence: &Presence,
    ) -> (Vec<Contributor>, u64) {
        let contributors = contributors(&IncidentBills {
            lost: &self.bill,
            saved: &self.savings,
            per_hour: self.run_rate.as_ref().filter(|_| !is_stale),
            incidents: &self.incidents,
            presence,
        });
        let n_omitted = contributors.len().saturating_sub(limit);
        let (contributors, _) = truncate_rows(contributors, limit);
        (contributors, u64::try_from(n_omitted).unwrap_or(u64::MAX))
    }
}

/// Total of a bill in one currency; `None` when the bill has items, but none in this currency.
fn total(bill: &Bill<'_>, currency: Option<Currency>) -> Option<f64> {
    let sums = bill.by_currency();
    match sums.get(&Some(currency?)) {
        Some(sum) => Some(money(sum.cost)),
        None => sums.is_empty().then_some(0.0),
    }
}

/// Returns the first `limit` rows, and true if rows were omitted.
fn truncate_rows<T>(mut rows: Vec<T>, limit: usize) -> (Vec<T>, bool) {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    (rows, has_more)
}

#[cfg(test)]
mod tests;
