//! Cost section of a cluster page: cost per day, by job and by rate class.

use echo_tools::ToolError;
use echo_tools::get_cost::answer::{Amount, Cost, JobCost, RateClassCost};
use maud::{Markup, html};

use crate::pages::answer::{Answer, late};
use crate::pages::bars::bar;
use crate::pages::client::ToolClient;
use crate::pages::format;
use crate::pages::overview::{DAY_NANOS, midnight};
use crate::pages::window_query::WindowQuery;

/// Days in the table, including today.
const N_DAYS: i64 = 7;

/// Cost of each of the last days, latest first.
pub(super) struct Days(Vec<(String, Cost)>);

impl Days {
    /// Queries the cost of each day.
    pub(super) async fn fetch(client: &ToolClient, cluster: &str) -> Result<Self, ToolError> {
        let today = midnight(client.now());
        let mut days = Vec::new();
        for back in 0..N_DAYS {
            let from = today.offset(-back * DAY_NANOS);
            let to = (back > 0).then(|| from.offset(DAY_NANOS).to_string());
            let window = WindowQuery {
                from: from.to_string(),
                to: to.unwrap_or_default(),
                ..WindowQuery::default()
            };
            let Some(cost) = client.cost(cluster, &window).await? else {
                break;
            };
            days.push((from.to_string(), cost));
        }
        // Nothing is known about the days before the first event.
        while days.len() > 1 && days.last().is_some_and(|(_, cost)| cost.as_of.is_none()) {
            days.pop();
        }
        Ok(Self(days))
    }

    fn most_gpu_hours(&self) -> f64 {
        let hours = self.0.iter().map(|(_, cost)| cost.lost_gpu_hours);
        hours.fold(0.0, f64::max)
    }
}

/// Renders the section.
pub(super) fn section(cost: &Answer<Cost>, days: &Answer<Days>) -> Markup {
    if matches!(cost, Answer::Hidden) {
        return html! {};
    }
    html! {
        section aria-labelledby="cost" {
            h2 id="cost" { "Cost" }
            @match cost.known() {
                Some(cost) => {
                    p {
                        "GPU time that ranks lost by waiting for others, priced: " b { (format::total(cost)) } " in the window."
                    }
                }
                None => { (late()) }
            }
            @match days.known() {
                Some(days) => { (by_day(days)) }
                None => { (late()) }
            }
            @if let Some(cost) = cost.known() { (parts(cost)) }
        }
    }
}

/// Renders the cost of the window by job and by rate class.
fn parts(cost: &Cost) -> Markup {
    html! {
        @if !cost.by_job.is_empty() { (by_job(&cost.by_job)) }
        @if !cost.by_rate_class.is_empty() { (by_rate_class(&cost.by_rate_class)) }
        @if cost.unpriced_gpu_hours > 0.0 {
            p.caveat {
                (format::gpu_hours(cost.unpriced_gpu_hours)) " have no price. Add one for their GPU model to the file given with "
                code { "--rates" } "."
            }
        }
    }
}

fn by_day(days: &Days) -> Markup {
    let most = days.most_gpu_hours();
    html! {
        table.days {
            caption { "Cost per day, in UTC" }
            thead {
                tr {
                    th scope="col" { "Day" } th.number scope="col" { "Cost" } th.number scope="col" { "GPU time lost" }
                    td.wide aria-hidden="true" {}
                }
            }
            tbody {
                @for (from, cost) in &days.0 {
                    tr {
                        th scope="row" { (day(from)) }
                        td.number { (format::total(cost)) }
                        td.number { (format::gpu_hours(cost.lost_gpu_hours)) }
                        td.wide aria-hidden="true" { @if most > 0.0 { (bar(cost.lost_gpu_hours / most)) } }
                    }
                }
            }
        }
    }
}

fn day(from: &str) -> Markup {
    let (day, _) = from.split_once('T').unwrap_or((from, ""));
    html! { time datetime=(day) { (day) } }
}

fn by_job(jobs: &[JobCost]) -> Markup {
    let name = |name: Option<&str>| name.map_or_else(|| format::UNKNOWN.to_owned(), str::to_owned);
    html! {
        div.scroll role="region" aria-labelledby="by-job" tabindex="0" {
            table.rates {
                caption id="by-job" { "Cost of the window by job" }
                thead {
                    tr {
                        th scope="col" { "Job" } th scope="col" { "Namespace" }
                        th.number scope="col" { "GPU time lost" } th.number scope="col" { "Cost" }
                    }
                }
                tbody {
                    @for one in jobs {
                        tr {
                            th scope="row" { (name(one.job.as_deref())) } td { (name(one.namespace.as_deref())) }
                            td.number { (format::gpu_hours(one.amount.lost_gpu_hours)) }
                            td.number { (money(&one.amount, one.amount.cost)) }
                        }
                    }
                }
            }
        }
    }
}

/// Renders money in the currency of an amount.
fn money(amount: &Amount, money: Option<f64>) -> String {
    let priced = money.zip(amount.currency.as_deref());
    priced.map_or_else(
        || format::UNKNOWN.to_owned(),
        |(money, currency)| format::money(money, currency),
    )
}

fn by_rate_class(classes: &[RateClassCost]) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby="by-rate" tabindex="0" {
            table.rates {
                caption id="by-rate" { "Cost of the window by rate class" }
                thead {
                    tr {
                        th scope="col" { "Rate class" } th.number scope="col" { "Price per GPU-hour" }
                        th.number scope="col" { "GPU time lost" } th.number scope="col" { "Cost" }
                    }
                }
                tbody { @for class in classes { (rate_class(class)) } }
            }
        }
    }
}

fn rate_class(class: &RateClassCost) -> Markup {
    html! {
        tr {
            th scope="row" { (class.rate_class.map_or_else(|| "without a price".to_owned(), format::plain)) }
            td.number { (money(&class.amount, class.rate_per_gpu_hour)) }
            td.number { (format::gpu_hours(class.amount.lost_gpu_hours)) }
            td.number { (money(&class.amount, class.amount.cost)) }
        }
    }
}
