//! Arguments that determine the duration of a search: one call on two thousand rows cannot be
//! interrupted.

use serde_json::Value;

use crate::constants;
use crate::functions::Kind;
use crate::limits::{COLUMN_BYTES, MAX_PATTERN_BYTES, MAX_SEARCHED_BYTES, SHORT};
use crate::refusal::Refusal;
use crate::size::Size;

/// Number of parts in a search step. A search without alternatives costs one part for each byte of
/// text and pattern, a regular expression a whole step.
const PARTS: u64 = 8;

/// Parts for LIKE with a single-letter wildcard: then every position is compared separately.
const WILDCARD_PARTS: u64 = 4;

/// Cost factor for finding the matched part of a text, compared with a test for a match.
const CAPTURE_FACTOR: u64 = 4;

/// Ambiguous constructs of a regular expression, and the number from which it counts as slow: it
/// has about two to the power of this number of states. Up to this number the engine caches states,
/// beyond it all states are followed at each byte.
const AMBIGUOUS: &[u8] = b".[\\|?";
const MAX_AMBIGUOUS: usize = 8;
const MANY_STATES_FACTOR: u64 = 32;

/// Checks the text and the pattern of a search. Returns the number of steps per row.
pub(super) fn check(name: &str, kind: Kind, arguments: &[(&Value, Size)]) -> Result<u64, Refusal> {
    let Some((_, searched)) = arguments.first() else {
        return Ok(0);
    };
    let steps = match kind {
        Kind::Found => check_needle(name, arguments.get(1).map(|(_, size)| *size))?,
        Kind::Like => like_steps(check_pattern(name, arguments.get(1), |_| None)?),
        Kind::Regex => regex_steps(check_pattern(name, arguments.get(1), slow_construct)?),
        Kind::RegexPart | Kind::RegexReplaced => {
            regex_steps(check_pattern(name, arguments.get(1), slow_construct)?)
                .saturating_mul(CAPTURE_FACTOR)
        }
        Kind::Json | Kind::JsonKeys => {
            check_path(name, arguments.get(1))?;
            return Ok(0);
        }
        Kind::Short
        | Kind::AsLong
        | Kind::Start
        | Kind::Macro
        | Kind::Joined
        | Kind::Separated
        | Kind::Collected
        | Kind::Split
        | Kind::SplitPart
        | Kind::Replaced
        | Kind::Formatted => return Ok(0),
    };
    if searched.bytes > MAX_SEARCHED_BYTES {
        return Err(Refusal::new(
            format!(
                "{name} would search {} bytes; the limit is {MAX_SEARCHED_BYTES}",
                searched.bytes
            ),
            "search a column, not a concatenation of many",
        ));
    }
    Ok(steps
        .saturating_mul(searched.bytes.max(SHORT))
        .div_ceil(PARTS))
}

/// Steps per searched byte of LIKE, with `_` and without.
fn like_steps(pattern: &str) -> u64 {
    let is_plain = !pattern.contains(['_', '?', '[', '\\']);
    let length = pattern.len() as u64;
    if is_plain {
        length
    } else {
        let n_compared = contained(pattern).map_or(length, comparisons_per_byte);
        n_compared.min(length) * WILDCARD_PARTS
    }
}

/// Returns the text of a pattern `%text%` whose only other wildcards are `_`.
fn contained(pattern: &str) -> Option<&str> {
    let text = pattern.strip_prefix('%')?.strip_suffix('%')?;
    let is_plain = text.is_ascii() && !text.contains(['%', '?', '[', '*', '\\']);
    is_plain.then_some(text)
}

/// Maximum number of comparisons per byte of the searched text, when the pattern is compared at
/// every position. A comparison goes beyond the first letter only where the text has that letter.
/// So comparisons overlap at a byte as often as the pattern has the letter, or `_`, which may be
/// it.
fn comparisons_per_byte(text: &str) -> u64 {
    let mut letters = text.bytes();
    let Some(first) = letters.next() else {
        return 1;
    };
    if first == b'_' {
        return text.len() as u64;
    }
    let may_be_first = |letter: &u8| letter.eq_ignore_ascii_case(&first) || *letter == b'_';
    2 + letters.filter(may_be_first).count() as u64
}

/// Steps per searched byte of a regular expression.
fn regex_steps(pattern: &str) -> u64 {
    let n_ambiguous = pattern
        .bytes()
        .filter(|byte| AMBIGUOUS.contains(byte))
        .count();
    let weight = if n_ambiguous > MAX_AMBIGUOUS {
        MANY_STATES_FACTOR
    } else {
        1
    };
    pattern.len() as u64 * PARTS * weight
}

fn check_needle(name: &str, needle: Option<Size>) -> Result<u64, Refusal> {
    let bytes = needle.map_or(0, |size| size.bytes);
    if bytes > COLUMN_BYTES {
        return Err(Refusal::new(
            format!("{name} searches for a text of more than {COLUMN_BYTES} bytes"),
            "search for a shorter text",
        ));
    }
    Ok(bytes)
}

/// Construct of a regular expression that takes longer than its length suggests.
fn slow_construct(pattern: &str) -> Option<&'static str> {
    if pattern.contains('{') {
        Some("{ in a regular expression")
    } else if pattern.contains("\\p") || pattern.contains("\\P") {
        Some("\\p in a regular expression")
    } else {
        None
    }
}

fn check_pattern<'a>(
    name: &str,
    pattern: Option<&(&'a Value, Size)>,
    slow_construct: impl Fn(&str) -> Option<&'static str>,
) -> Result<&'a str, Refusal> {
    let text = pattern.and_then(|(value, _)| constants::text(value));
    let Some(text) = text else {
        return Err(Refusal::new(
            format!("the pattern of {name} is not a quoted string"),
            "write a literal pattern, or use starts_with and contains",
        ));
    };
    if text.len() > MAX_PATTERN_BYTES {
        return Err(Refusal::new(
            format!(
                "the pattern of {name} has {} bytes; the limit is {MAX_PATTERN_BYTES}",
                text.len()
            ),
            "use IN for many values, or several conditions",
        ));
    }
    match slow_construct(text) {
        Some(what) => Err(Refusal::new(
            format!("{what} is not allowed"),
            "use *, + and ?, or classes such as [0-9]",
        )),
        None => Ok(text),
    }
}

/// Returns the field that a path names, if it is a top-level one. Such paths have no other
/// notation.
pub(super) fn field(path: &str) -> Option<&str> {
    let name = path.strip_prefix("$.").unwrap_or(path);
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    // Without `$.` the whole text is the name, including dots.
    let may_have_dots = name == path;
    let is_plain = |byte: u8| is_of_a_name(byte) || (may_have_dots && byte == b'.');
    let starts_with_letter = name.starts_with(|first: char| first.is_ascii_alphabetic());
    (starts_with_letter && name.bytes().all(is_plain)).then_some(name)
}

fn check_path(name: &str, path: Option<&(&Value, Size)>) -> Result<(), Refusal> {
    let Some((value, _)) = path else {
        return Ok(());
    };
    let is_number = constants::whole(value).is_some();
    let text = constants::text(value);
    let is_plain = text.is_some_and(|text| text.len() <= MAX_PATTERN_BYTES && !text.contains('*'));
    if is_number || is_plain {
        return Ok(());
    }
    Err(Refusal::new(
        format!("the path of {name} must be a short quoted string without *"),
        "name one field: attrs->>'$.key'",
    ))
}
