//! Short texts without control characters.

use std::sync::Arc;

use echo_core::ids::MAX_NAME_BYTES;

/// The text as a label, if it is printable.
pub(super) fn label(text: &str) -> Option<Arc<str>> {
    printable(text).map(Arc::from)
}

/// The text if it is short and without control characters, as names are.
pub(super) fn printable(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)).then_some(text)
}
