//! Ends connections that an earlier process left to the catalog: one may still be committing, and
//! which slice was the last is known only when it has ended.

use std::time::Duration;

use crate::error::LakeError;
use crate::location::quoted;
use crate::session::{CATALOG, Session};
use crate::stop::Stop;

/// Longest wait for them: `PostgreSQL` ends a session after the statement that it is running.
const ATTEMPTS: u32 = 100;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Name of the client of one process and attempt. `PostgreSQL` keeps 63 characters.
pub(crate) fn application(instance: &str, attempt: u64) -> String {
    format!("{}{:08x}", prefix(instance), attempt & 0xffff_ffff)
}

fn prefix(instance: &str) -> String {
    format!("fleet-echo-{}-", instance.replace('-', ""))
}

/// Ends the other connections of the instance and waits until none is left.
pub(crate) fn fence(
    session: &Session,
    instance: &str,
    application: &str,
    stop: &Stop,
) -> Result<(), LakeError> {
    if !session.is_postgres {
        // One process at a time has the file of a catalog open.
        return Ok(());
    }
    let doing = "ending earlier connections";
    let end = format!(
        "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
         WHERE usename = current_user AND starts_with(application_name, {}) AND application_name <> {}",
        quoted(&prefix(instance)),
        quoted(application),
    );
    let end = format!(
        "SELECT count(*)::UBIGINT FROM postgres_query({}, {})",
        quoted(CATALOG),
        quoted(&end)
    );
    for _ in 0..ATTEMPTS {
        let left: Vec<u64> = session.rows(doing, &end, [], |row| row.get(0))?;
        if left == [0] || stop.wait(PAUSE) {
            return Ok(());
        }
        tracing::info!("waiting for an earlier connection to the lake to end");
    }
    Err(LakeError::Engine {
        doing,
        reason: "one is still open".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::application;

    #[test]
    fn postgres_does_not_cut_the_name_of_the_client() {
        let name = application("0195f3c1-7a2b-4c5d-8e9f-001122334455", u64::MAX);
        assert_eq!(name, "fleet-echo-0195f3c17a2b4c5d8e9f001122334455-ffffffff");
        assert!(name.len() < 64);
    }
}
