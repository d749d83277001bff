//! Errors after which the engine does nothing any more: a full or broken disk in the middle of a commit.
//!
//! The engine then refuses every statement until it is opened again, so the process has to end. Whoever meets such an
//! error reports it here; the application waits for it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::store::StoreError;

/// What the engine says once it is of no use any more.
const SIGNS: [&str; 2] = ["FATAL", "database has been invalidated"];

/// What it says when the disk is full. A question that needed room for itself survives that; opening does not.
const NO_SPACE: &str = "No space left on device";

/// Remembers the first fatal error. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Fatal(Arc<watch::Sender<Option<String>>>);

impl Default for Fatal {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Fatal {
    /// Looks at an error of the engine.
    pub(super) fn note(&self, error: &str) {
        if is_fatal(error) {
            self.0.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert_with(|| first_line(error));
                is_first
            });
        }
    }

    /// The first fatal error, if there was one.
    pub(super) fn met(&self) -> Option<String> {
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

/// An error of opening, told from a defect when the disk is at fault.
pub(super) fn or_fatal(error: StoreError) -> StoreError {
    match error {
        StoreError::Engine { reason, .. } if is_fatal(&reason) || reason.contains(NO_SPACE) => {
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

/// Of all that the engine says, the line that names the cause.
fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::Fatal;

    #[tokio::test]
    async fn the_first_fatal_error_is_remembered_and_others_are_not() {
        let fatal = Fatal::default();
        fatal.note("Constraint Error: no");
        fatal.note("FATAL Error: Could not write file: No space left on device\nStack Trace");
        fatal.note("FATAL Error: database has been invalidated because of a previous fatal error");
        let met = fatal.wait().await.to_string();
        assert!(met.contains("No space left"), "{met}");
        assert!(!met.contains("Stack"), "{met}");
        assert!(!met.contains("Constraint"), "{met}");
    }
}
