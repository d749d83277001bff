//! Page of one incident. Its URL stays valid after the incident has cleared.

use echo_tools::ToolError;

use super::body::Body;
use super::client::{IncidentTimes, ToolClient};
use super::cluster;
use super::view_query::ViewQuery;
use super::window_query::WindowQuery;

/// Time before and after a past incident on its page, nanoseconds.
const AROUND_NANOS: i64 = 300_000_000_000;

/// Renders the page of an incident: that of its cluster in the last hour while it is open, or at the time of the
/// incident.
pub(super) async fn page(
    client: &ToolClient,
    (cluster, id): (&str, &str),
    view: &ViewQuery,
) -> Result<Body, ToolError> {
    let Some(found) = client.incident(cluster, id).await? else {
        return Err(ToolError::UnknownIncident { id: id.to_owned() });
    };
    let subject = cluster::Subject {
        cluster,
        window: &window(&found),
        incident: Some(id),
        query: view,
    };
    Box::pin(cluster::page(client, &subject)).await
}

/// Returns the window that contains an incident.
fn window(found: &IncidentTimes) -> WindowQuery {
    if found.is_current {
        return WindowQuery::last_hour();
    }
    WindowQuery {
        from: found.first_seen.offset(-AROUND_NANOS).to_string(),
        to: found.end.offset(AROUND_NANOS).to_string(),
        ..WindowQuery::default()
    }
}
