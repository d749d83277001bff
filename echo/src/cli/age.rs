//! Ages of incidents: how long an open one has been open until now, how long a cleared one lasted.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::connection::ConnectionArgs;
use crate::cli::scope::ScopeArgs;
use crate::cli::view::{age, instant, text};
use crate::cli::{CliError, get_json};

/// Window that ends with the last event.
const ALL: &str = "all";

/// Adds to each incident of an answer how long it has been open or lasted.
pub(super) fn with_age(
    incidents: &[Value],
    answer: &Value,
    scope: &ScopeArgs,
    connection: &ConnectionArgs,
) -> Vec<Value> {
    let is_open = |row: &Value| text(row, "state") == "open";
    let end = instant(answer.get("window").unwrap_or(&Value::Null), "to");
    let now = if incidents.iter().any(is_open) {
        now(end, scope, connection)
    } else {
        end
    };
    let aged = incidents.iter().cloned().map(|mut row| {
        let age = age(&row, now);
        if let Some(fields) = row.as_object_mut() {
            fields.insert("for".to_owned(), json!(age));
        }
        row
    });
    aged.collect()
}

/// Returns the time on the clock of the server. A window ends then, unless it ends with the last
/// event or the caller gave an end: an answer about the past has the ages of then.
fn now(
    end: Option<Timestamp>,
    scope: &ScopeArgs,
    connection: &ConnectionArgs,
) -> Option<Timestamp> {
    if scope.window.as_deref() != Some(ALL) {
        return end;
    }
    let server_time = || -> Result<Option<Timestamp>, CliError> {
        let connection = connection.for_cluster(scope.cluster.as_deref())?;
        let (_, health) = get_json(&connection, "/api/v1/health")?;
        Ok(instant(&health, "now"))
    };
    // The clock of a sender may be ahead.
    server_time().ok().flatten().max(end)
}
