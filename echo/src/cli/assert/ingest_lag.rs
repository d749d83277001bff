//! Wait for the detector: until it has processed the stored events, missing stragglers look like
//! none.

use std::time::Duration;

use echo_core::clock::{Clock, SystemClock};
use serde_json::Value;

use crate::cli::connection::ConnectionArgs;
use crate::cli::{CliError, get_json};

/// Time between two requests.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the detector has processed the events that were accepted at the time of the call, up
/// to the request timeout. Returns a reason if it has not. A token for single clusters cannot see
/// the counts; the wait is skipped then, since the lag is a matter of seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing else runs in the meantime, and another process sends no signal"
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
        let queued = count("events_queued").unwrap_or(0);
        let stored = *stored.get_or_insert(committed + queued);
        if judged >= stored {
            return Ok(None);
        }
        if clock.now().millis_since(begin) > connection.timeout.as_secs_f64() * 1e3 {
            return Ok(Some(format!(
                "the detector has processed {judged} of {stored} stored events: retry, or raise --timeout"
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
