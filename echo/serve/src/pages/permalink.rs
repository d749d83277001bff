//! Links to incidents that stay valid after the incident has cleared, and to the trace of a rank.

use maud::{Markup, html};

use super::overview::{encoded, path};
use super::view_query::ViewQuery;

/// Returns the path of the page of an incident.
pub(super) fn incident_path(cluster: &str, id: &str) -> String {
    format!("{}/incidents/{}", path(cluster), encoded(id))
}

/// Renders the link to an incident, and that to everything known of it.
pub(super) fn permalink(view: &ViewQuery, cluster: &str, id: &str) -> Markup {
    html! {
        a href=(view.link(&incident_path(cluster, id), "")) { "Link to this incident" }
        " "
        a href={ "/api/v1/incident.tar.gz?cluster=" (encoded(cluster)) "&incident=" (encoded(id)) } download { "Download all about it" }
    }
}

/// Returns the URL of the trace of a rank; `query` holds its job and the window.
pub(super) fn trace_path(cluster: &str, rank: u32, query: &str) -> String {
    let cluster = encoded(cluster);
    format!("/api/v1/trace.json?cluster={cluster}&rank={rank}{query}")
}

/// Renders the link to the trace of a rank. The page itself requests nothing from the viewer.
pub(super) fn trace_link(href: &str) -> Markup {
    html! {
        a href=(href) download { "Download the trace" } " (open it in ui.perfetto.dev) "
    }
}
