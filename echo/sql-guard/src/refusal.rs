//! Why a statement is not run.

/// Why a statement is not run, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Which rule it breaks.
    pub reason: String,
    /// What to write instead.
    pub hint: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: hint.into(),
        }
    }

    /// Something that this guard does not know.
    pub(super) fn unknown(what: impl AsRef<str>) -> Self {
        Self::new(
            format!("{} is not among what may be asked", what.as_ref()),
            "SELECT with joins, WITH, GROUP BY, QUALIFY, windows and set operations is; write it with these",
        )
    }
}
