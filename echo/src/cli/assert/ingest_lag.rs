//! Whether Echo has judged what it has stored: before that no stragglers are not known, which looks like none.

use std::time::Duration;

use echo_core::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::{CliError, get_json};

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until what was stored at the beginning has been judged, for as long as for an answer. Says so when it has not.
/// Who may see one cluster only is not told; for them it is a matter of seconds all the same.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing else is done meanwhile, and no signal comes from another process"
)]
pub(super) fn wait_until_processed(
    connection: &ConnectionArgs,
) -> Result<Option<String>, CliError> {
    let clock = SystemClock;
    let begin = clock.now();
    let mut stored = None;
    loop {
        let (_, health) = get_json(connection, "/api/v1/health")?;
        let count = |name: &str| health.get(name).and_then(Value::as_u64);
        let (Some(committed), Some(judged)) = (count("events_committed"), count("events_judged"))
        else {
            return Ok(None);
        };
        let stored = *stored.get_or_insert(committed);
        if judged >= stored {
            return Ok(None);
        }
        if clock.now().millis_since(begin) > connection.timeout.as_secs_f64() * 1e3 {
            return Ok(Some(format!(
                "Echo has judged {judged} of {stored} events that it has stored; ask again, or raise --timeout"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
