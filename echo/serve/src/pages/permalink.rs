//! Links to incidents that stay valid after the incident has cleared, and to the trace of a rank.

use echo_tools::ToolError;
use maud::{Markup, html};

use super::client::{IncidentTimes, ToolClient};
use super::overview::{encoded, path};

/// Time before and after an incident on the page that its link leads to, nanoseconds.
const AROUND_NANOS: i64 = 300_000_000_000;

/// Renders the link to an incident, and that to everything known of it.
pub(super) fn permalink(cluster: &str, id: &str) -> Markup {
    html! {
        a href={ (path(cluster)) "/incidents/" (encoded(id)) } { "Link to this incident" }
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
        a href=(href) download { "Download the trace" } " (open it in ui.perfetto.dev)"
    }
}

/// Returns the URL of the page that shows an incident: that of its cluster while it is open, or at
/// the time of the incident.
pub(super) async fn target(
    client: &ToolClient,
    cluster: &str,
    id: &str,
) -> Result<String, ToolError> {
    let Some(found) = client.incident(cluster, id).await? else {
        return Err(ToolError::UnknownIncident { id: id.to_owned() });
    };
    let IncidentTimes {
        first_seen,
        end,
        is_current,
    } = found;
    let anchor = format!("#incident-{}", encoded(id));
    if is_current {
        return Ok(format!("{}{anchor}", path(cluster)));
    }
    let (from, to) = (first_seen.offset(-AROUND_NANOS), end.offset(AROUND_NANOS));
    Ok(format!(
        "{}?from={}&to={}{anchor}",
        path(cluster),
        encoded(&from.to_string()),
        encoded(&to.to_string())
    ))
}
