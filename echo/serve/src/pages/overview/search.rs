//! Search and order of the clusters on the overview.

use maud::{Markup, html};
use serde::Deserialize;

use super::encoded;
use crate::pages::client::Inventory;
use crate::pages::view_query::{Fold, ViewQuery};

/// Order of the clusters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::pages) enum Order {
    /// Most severe incident first, then most cost.
    #[default]
    Urgency,
    /// Most cost per hour first, then most cost of today.
    Cost,
    /// By name.
    Name,
}

impl Order {
    const ALL: [Self; 3] = [Self::Urgency, Self::Cost, Self::Name];

    const fn name(self) -> &'static str {
        match self {
            Self::Urgency => "urgency",
            Self::Cost => "cost",
            Self::Name => "name",
        }
    }
}

/// Search and order, from the query of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Parameters")]
pub(in crate::pages) struct OverviewQuery {
    /// Text that is searched for; empty for all clusters.
    text: String,
    order: Order,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    q: String,
    sort: String,
}

impl From<Parameters> for OverviewQuery {
    fn from(given: Parameters) -> Self {
        let order = Order::ALL.into_iter().find(|one| one.name() == given.sort);
        Self {
            text: given.q.trim().to_owned(),
            order: order.unwrap_or_default(),
        }
    }
}

impl OverviewQuery {
    /// Returns the order.
    pub(super) const fn order(&self) -> Order {
        self.order
    }

    /// Returns whether only some clusters are shown.
    pub(super) const fn is_search(&self) -> bool {
        !self.text.is_empty()
    }

    /// Returns whether the name of a cluster, or one of its jobs or GPU models, contains the text, in upper or lower
    /// case.
    pub(super) fn matches(&self, cluster: &str, inventory: Option<&Inventory>) -> bool {
        let wanted = self.text.to_lowercase();
        let reported = inventory.into_iter();
        let reported = reported.flat_map(|all| all.jobs.iter().chain(&all.gpu_models));
        let mut names = std::iter::once(cluster).chain(reported.map(String::as_str));
        names.any(|name| name.to_lowercase().contains(&wanted))
    }

    /// Returns this query as the end of a query string, with another order.
    fn in_order(&self, order: Order) -> String {
        let text = self.is_search();
        let text = text.then(|| format!("&q={}", encoded(&self.text)));
        let order = (order != Order::default()).then(|| format!("&sort={}", order.name()));
        format!("{}{}", text.unwrap_or_default(), order.unwrap_or_default())
    }

    /// Renders the search and the links to other orders. While the form is open, the page is not loaded again.
    pub(super) fn controls(&self, view: &ViewQuery) -> Markup {
        let all = Self {
            text: String::new(),
            ..self.clone()
        };
        html! {
            div.controls {
                (view.toggle(Fold::Search, ("/", &self.in_order(self.order)), "Search"))
                span.quiet {
                    "Order: "
                    @for one in Order::ALL {
                        @if one == self.order { b { (one.name()) } " " }
                        @else { a href=(view.stay("/", &self.in_order(one))) { (one.name()) } " " }
                    }
                }
            }
            @if view.is_open(Fold::Search) { (self.form(view)) }
            @if self.is_search() {
                p {
                    "Clusters with \u{201c}" (self.text) "\u{201d} in the name, a job or a GPU model of the last hour. "
                    a href=(view.stay("/", &all.in_order(self.order))) { "Show all clusters" }
                }
            }
        }
    }

    fn form(&self, view: &ViewQuery) -> Markup {
        html! {
            form.row role="search" method="get" action="/" {
                label for="q" { "Cluster, job or GPU" }
                input id="q" type="search" name="q" value=(self.text) autofocus;
                @if self.order != Order::default() { input type="hidden" name="sort" value=(self.order.name()); }
                (view.hidden_fields())
                button type="submit" { "Search" }
            }
        }
    }
}
