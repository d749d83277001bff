//! Page of one rank: who it is, its incidents, its lag over time, and how its host differs.

use echo_tools::ToolError;
use echo_tools::explain_rank::communicators::CommunicatorLags;
use echo_tools::explain_rank::subject::RankIdentity;
use echo_tools::explain_rank::{ExplainRank, Explanation};
use echo_tools::outlier::Evidence;
use echo_tools::picture::Picture;
use echo_tools::tool::Tool;
use maud::{Markup, PreEscaped, html};

use super::client::{RankInCluster, ToolClient};
use super::format;
use super::overview::{encoded, figure, path};
use super::permalink::{trace_link, trace_path};
use super::view_query::ViewQuery;
use super::window_query::WindowQuery;

mod host;

/// Renders the page.
pub(super) async fn page(
    client: &ToolClient,
    subject: &RankInCluster<'_>,
    window: &WindowQuery,
    view: &ViewQuery,
) -> Result<Markup, ToolError> {
    let window = &window.or_last_hour();
    let (found, picture) = client.explanation(subject, window).await?;
    let query = query(subject, window);
    Ok(html! {
        nav.crumbs aria-label="Breadcrumb" {
            a href=(view.link("/", "")) { "Clusters" } " / "
            a href=(view.link(&path(subject.cluster), "")) { (subject.cluster) }
        }
        h1 { "Rank " (found.who.rank) " on " (found.who.node_id) }
        (identity(&found.who))
        section aria-labelledby="plot" {
            h2 id="plot" { "Lag over time" }
            (plot(&found, picture.as_ref()))
            p { (found.summary) }
        }
        (evidence(&found.evidence))
        (host::reports(&found.host))
        (communicators(&found.lag_series.communicators))
        p.links {
            a href=(tool(subject, &query, "&format=json")) { "All of it as JSON" }
            @if client.may_trace() { (trace_link(&trace_path(subject.cluster, subject.rank, &query))) }
        }
    })
}

fn query(subject: &RankInCluster<'_>, window: &WindowQuery) -> String {
    let job = subject.job.map(|job| ("job", job));
    let parameters = job.into_iter().chain(window.given());
    let parameters: Vec<String> = parameters
        .map(|(name, value)| format!("&{name}={}", encoded(value)))
        .collect();
    parameters.concat()
}

fn tool(subject: &RankInCluster<'_>, query: &str, format: &str) -> String {
    format!(
        "/api/v1/tools/{}?cluster={}&rank={}{query}{format}",
        ExplainRank::NAME,
        encoded(subject.cluster),
        subject.rank
    )
}

fn identity(who: &RankIdentity) -> Markup {
    let gpu = [who.gpu_model.as_deref(), who.gpu_uuid.as_deref()];
    let gpu: Vec<&str> = gpu.into_iter().flatten().collect();
    let pod = [who.namespace.as_deref(), who.pod.as_deref()];
    let pod: Vec<&str> = pod.into_iter().flatten().collect();
    html! {
        dl.figures {
            @if !gpu.is_empty() { (figure("GPU", &gpu.join(", "))) }
            @if who.pod.is_some() { (figure("Pod", &pod.join("/"))) }
            @if let Some(job) = &who.job { (figure("Job", job)) }
        }
    }
}

/// Renders the plot as a part of the page, so that values are shown where a reader points.
fn plot(found: &Explanation, picture: Option<&Picture>) -> Markup {
    // Every text in it is escaped where it is drawn.
    let svg = picture.map(|picture| String::from_utf8_lossy(&picture.bytes));
    let svg = svg.map(|svg| svg.replacen("<svg ", "<svg class=\"plot\" ", 1));
    html! {
        @if found.lag_series.points.is_empty() {
            p { "The rank could not be compared with its peers in this window." }
        } @else {
            @if let Some(svg) = svg { (PreEscaped(svg)) }
            @if let Some(note) = &found.lag_series.note { p.quiet { (note) } }
        }
    }
}

fn evidence(facts: &[Evidence]) -> Markup {
    let number = |value: Option<f64>| {
        value.map_or_else(
            || format::UNKNOWN.to_owned(),
            |value| {
                format!(
                    "{value:.digits$}",
                    digits = if value.abs() < 1_000.0 { 2 } else { 0 }
                )
            },
        )
    };
    html! {
        @if !facts.is_empty() {
            section aria-labelledby="host" {
                h2 id="host" { "Host compared with its peers" }
                div.scroll role="region" aria-labelledby="host" tabindex="0" {
                    table {
                        caption.visually-hidden { "Host metrics of the rank and the median of its peers" }
                        thead {
                            tr {
                                th scope="col" { "Metric" } th.number scope="col" { "Rank" }
                                th.number scope="col" { "Peers" } th scope="col" { "Unit" }
                            }
                        }
                        tbody {
                            @for fact in facts {
                                tr {
                                    th scope="row" { (format::capitalized(&fact.meaning)) }
                                    td.number { (number(fact.own)) } td.number { (number(fact.peers)) } td { (fact.unit) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn communicators(all: &[CommunicatorLags]) -> Markup {
    html! {
        @if !all.is_empty() {
            section aria-labelledby="communicators" {
                h2 id="communicators" { "Communicators" }
                p.quiet { "Lag measured on the GPUs, largest first." }
                div.scroll role="region" aria-labelledby="communicators" tabindex="0" {
                    table {
                        caption.visually-hidden { "Lag per communicator and operation" }
                        thead { tr { th scope="col" { "Communicator" } th scope="col" { "Operation" } th.number scope="col" { "Lag" } } }
                        tbody {
                            @for one in all {
                                tr {
                                    th scope="row" { code { (one.communicator) } }
                                    td { (one.op.as_deref().unwrap_or(format::UNKNOWN)) }
                                    td.number { (format::millis(one.lag_ms)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
