//! Short texts that can be seen: names, and labels that may also be empty.

use std::str::FromStr;
use std::sync::Arc;

use echo_core::ids::MAX_NAME_BYTES;
use echo_core::text::is_hidden;

/// The text as a label, if it is printable.
pub(super) fn label(text: &str) -> Option<Arc<str>> {
    printable(text).map(Arc::from)
}

/// The text if it is short and all of it can be seen.
pub(super) fn printable(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.contains(is_hidden)).then_some(text)
}

/// The identity that the text names, if it is a name that can be seen. Stored ones may be older
/// than this rule.
pub(super) fn identity<T: FromStr>(text: &str) -> Option<T> {
    let name = printable(text).filter(|text| !text.trim().is_empty())?;
    name.parse().ok()
}
