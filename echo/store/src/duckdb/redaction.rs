//! Credentials that messages must not contain.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::StoreError;

/// Text in their place.
const HIDDEN: &str = "(hidden)";

/// Texts that messages must not contain.
#[derive(Clone, Default)]
pub(super) struct Hidden(Arc<[String]>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hidden").finish_non_exhaustive()
    }
}

impl Hidden {
    /// Hides these texts.
    pub(super) fn new(texts: &[String]) -> Self {
        let mut texts: Vec<String> = texts
            .iter()
            .filter(|text| !text.is_empty())
            .cloned()
            .collect();
        // A longer one may contain a shorter one.
        texts.sort_by_key(|text| Reverse(text.len()));
        Self(texts.into())
    }

    /// Returns the message without them.
    pub(super) fn in_text(&self, message: &str) -> String {
        let hide = |message: String, text: &String| message.replace(text, HIDDEN);
        self.0.iter().fold(message.to_owned(), hide)
    }

    /// Returns the error without them.
    pub(super) fn in_error(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Engine { doing, reason } => StoreError::Engine {
                doing,
                reason: self.in_text(&reason),
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Hidden;

    #[test]
    fn messages_contain_no_credentials() {
        let texts = ["pa55", "host=db password=pa55", ""].map(str::to_owned);
        let message = "cannot connect to host=db password=pa55 port=1: pa55 is wrong";
        let hidden = Hidden::new(&texts).in_text(message);
        assert_eq!(
            hidden,
            "cannot connect to (hidden) port=1: (hidden) is wrong"
        );
    }
}
