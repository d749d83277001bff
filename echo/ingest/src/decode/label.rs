//! Parser of short printable texts: names, and labels, which may be empty.

use std::str::FromStr;
use std::sync::Arc;

use echo_core::ids::MAX_NAME_BYTES;
use echo_core::text::is_hidden;

/// Returns the text as a label, if it is printable.
pub(super) fn label(text: &str) -> Option<Arc<str>> {
    printable(text).map(Arc::from)
}

/// Returns the text if it is short and has no control or format characters.
pub(super) fn printable(text: &str) -> Option<&str> {
    (text.len() <= MAX_NAME_BYTES && !text.contains(is_hidden)).then_some(text)
}

/// Parses a name, if it is printable and not blank. Names that were stored before this rule may
/// violate it.
pub(super) fn identity<T: FromStr>(text: &str) -> Option<T> {
    let name = printable(text).filter(|text| !text.trim().is_empty())?;
    name.parse().ok()
}
