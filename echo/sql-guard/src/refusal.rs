//! Refusal of a statement.

/// Reason for refusing a statement, with a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// Rule that the statement breaks.
    pub reason: String,
    /// Alternative.
    pub hint: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: hint.into(),
        }
    }

    /// Refusal of a part that the guard does not know.
    pub(super) fn unknown(what: impl AsRef<str>) -> Self {
        Self::new(
            format!("{} is not allowed", what.as_ref()),
            "use SELECT with joins, WITH, GROUP BY, QUALIFY, windows and set operations",
        )
    }
}
