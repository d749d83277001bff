//! Errors after which nothing can be stored any more: a full or broken disk in the middle of a
//! commit, a lost file.
//!
//! The engine then refuses every statement until it is opened again, or writes to a lost
//! file, so the process has to exit. Components report such an error here; the
//! application waits for it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::StoreError;

/// Messages of the engine after a permanent failure.
const SIGNS: [&str; 2] = ["FATAL", "database has been invalidated"];

/// Messages of the engine when disk or memory is exhausted. A query survives that; opening does
/// not.
const NO_SPACE: [&str; 3] = [
    "No space left on device",
    "Disk quota exceeded",
    "Out of Memory Error",
];

/// Text of the engine's messages that mention a log, whatever the cause.
const LOG_REFUSED: &str = "WAL file";

/// Prefix of system errors, which can affect an intact log, and the messages about the content of a
/// log that have the same prefix.
const SYSTEM: &str = "IO Error";
const OTHER_LOG: [&str; 3] = [
    "Corrupt WAL file",
    "WAL does not match database file",
    "This WAL was created for this database file",
];

/// Cause of a failure to open a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenFailure {
    /// Full disk or too little memory: nothing is damaged.
    NoSpace,
    /// Content of the log.
    Log,
    /// Anything else: the system, or the file.
    Other,
}

impl OpenFailure {
    /// Classifies an error of opening. The engine also mentions the log in errors that it did not
    /// cause.
    pub(super) fn from_message(error: &str) -> Self {
        let mentions = |signs: &[&str]| signs.iter().any(|sign| error.contains(sign));
        if mentions(&NO_SPACE) {
            Self::NoSpace
        } else if mentions(&[LOG_REFUSED]) && (!mentions(&[SYSTEM]) || mentions(&OTHER_LOG)) {
            Self::Log
        } else {
            Self::Other
        }
    }
}

/// First fatal error. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Fatal(Arc<watch::Sender<Option<String>>>);

impl Default for Fatal {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Fatal {
    /// Records an error of the engine if it is fatal.
    pub(super) fn record(&self, error: &str) {
        if is_fatal(error) {
            let cause = first_line(error);
            self.set(format!("{cause}; acknowledged data is on the disk"));
        }
    }

    /// Sets the reason why nothing can be stored any more, unless one is set.
    pub(super) fn set(&self, reason: String) {
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(reason);
            is_first
        });
    }

    /// Reason of the first fatal error, if any.
    pub(super) fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits for the first fatal error.
    pub(super) async fn wait(&self) -> StoreError {
        let mut met = self.0.subscribe();
        let reason = match met.wait_for(Option::is_some).await {
            Ok(met) => met.clone().unwrap_or_default(),
            // This holds a sender, so the channel is open.
            Err(_closed) => String::new(),
        };
        StoreError::Fatal { reason }
    }
}

/// Converts an error of opening to a fatal one if the disk caused it.
pub(super) fn or_fatal(error: StoreError) -> StoreError {
    match error {
        StoreError::Engine { reason, .. }
            if is_fatal(&reason) || OpenFailure::from_message(&reason) == OpenFailure::NoSpace =>
        {
            StoreError::Fatal {
                reason: first_line(&reason),
            }
        }
        other => other,
    }
}

fn is_fatal(error: &str) -> bool {
    SIGNS.iter().any(|sign| error.contains(sign))
}

/// Returns the line of an engine message that names the cause.
pub(super) fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Fatal, OpenFailure};

    #[tokio::test]
    async fn only_the_first_fatal_error_is_recorded() {
        let fatal = Fatal::default();
        fatal.record("Constraint Error: no");
        fatal.record("FATAL Error: Could not write file: No space left on device\nStack Trace");
        fatal
            .record("FATAL Error: database has been invalidated because of a previous fatal error");
        let met = fatal.wait().await.to_string();
        assert!(met.contains("No space left"), "{met}");
        assert!(!met.contains("Stack"), "{met}");
        assert!(!met.contains("Constraint"), "{met}");
    }

    #[test]
    fn a_log_is_damaged_by_its_content_and_not_by_system_errors() {
        let replaying = |kind: &str, cause: &str| {
            format!("{kind} Error: Failure while replaying WAL file \"/db/echo.db.wal\": {cause}")
        };
        for (kind, cause, expected) in [
            ("IO", "Corrupt WAL file: entry at 7", OpenFailure::Log),
            ("INTERNAL", "Attempted to access index 3", OpenFailure::Log),
            (
                "Catalog",
                "Table with name names does not exist",
                OpenFailure::Log,
            ),
            ("IO", "WAL does not match database file.", OpenFailure::Log),
            (
                "IO",
                "Could not write file \"/db/echo.db\": No space left on device",
                OpenFailure::NoSpace,
            ),
            (
                "Out of Memory",
                "could not allocate block of size 256.0 KiB",
                OpenFailure::NoSpace,
            ),
            (
                "IO",
                "Could not read from file \"/db/echo.db\": Input/output error",
                OpenFailure::Other,
            ),
            (
                "IO",
                "Cannot open file \"/db/echo.db.wal\": Permission denied",
                OpenFailure::Other,
            ),
        ] {
            let error = replaying(kind, cause);
            assert_eq!(OpenFailure::from_message(&error), expected, "{error}");
        }
        let elsewhere = "IO Error: Cannot open file \"/db/echo.db.wal\": Permission denied";
        assert_eq!(OpenFailure::from_message(elsewhere), OpenFailure::Other);
    }
}
