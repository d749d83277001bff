//! Causal chains and the top stack of the process of a rank.

use echo_core::text::decimal;
use echo_tools::explain_rank::chains::HostReports;
use echo_tools::host::causal_chains::ProcessChain;
use maud::{Markup, html};

use crate::pages::format;

/// Renders the sections; nothing without reports.
pub(super) fn reports(found: &HostReports) -> Markup {
    html! {
        @if !found.chains.is_empty() {
            section aria-labelledby="chains" {
                h2 id="chains" { "What its process loses time to" }
                @for one in &found.chains { (chain(one)) }
            }
        }
        @if let Some(top) = &found.top_stack {
            section aria-labelledby="stack" {
                h2 id="stack" {
                    @if found.top_stack_peer_share.is_some() { "Where it is more often than its peers" }
                    @else { "Where it is most often" }
                }
                p.quiet {
                    (percent(top.share)) " of the samples of its program: " (top.samples)
                    @if let Some(share) = found.top_stack_peer_share { ", of its peers " (percent(share)) }
                    @if let Some(function) = &top.function { ", in " code { (function) } }
                }
                (lines(&top.stack))
            }
        }
    }
}

fn chain(chain: &ProcessChain) -> Markup {
    let peers = chain.peers.as_ref().and_then(|peers| peers.median_share);
    html! {
        h3 { (format::capitalized(&chain.cause.replace('_', " "))) }
        p {
            (format::capitalized(&chain.summary)) "."
            @if let Some(share) = chain.share { " It loses " (percent(share)) " of its time" }
            @if let Some(share) = peers { ", its peers " (percent(share)) }
            @if chain.share.is_some() { "." }
        }
        p.quiet {
            @if let Some(severity) = &chain.severity { "Severity " (severity) ", " }
            (chain.state) ", since " time datetime=(chain.since) { (chain.since) }
        }
        @if !chain.links.is_empty() { p { (chain.links.join(" \u{2192} ")) } }
        @if !chain.stack.is_empty() { (lines(&chain.stack)) }
        @for advice in &chain.advice { p { "Do: " code { (advice) } } }
    }
}

fn lines(frames: &[String]) -> Markup {
    html! { pre tabindex="0" { (frames.join("\n")) } }
}

fn percent(share: f64) -> String {
    format!("{} %", decimal(share * 100.0, 1))
}
