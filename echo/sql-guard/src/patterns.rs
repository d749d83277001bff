//! Arguments that decide how long a search takes: one call on two thousand rows cannot be interrupted.

use serde_json::Value;

use crate::constants;
use crate::functions::Kind;
use crate::limits::{COLUMN_BYTES, MAX_PATTERN_BYTES, MAX_SEARCHED_BYTES, SHORT};
use crate::refusal::Refusal;
use crate::size::Size;

/// Parts of a step. What is looked for without choices takes one for each byte of both, a regular expression all of them.
const PARTS: u64 = 8;

/// Parts for LIKE with something that stands for any letter: then every place is compared by itself.
const WILDCARD_PARTS: u64 = 4;

/// How much longer it takes to know which part of a text a regular expression matches than whether it does.
const CAPTURE_FACTOR: u64 = 4;

/// What leaves open how a regular expression goes on, and how often it may before it is taken for a slow one: there are
/// about two to the power of that many states to be in. Up to here they are kept, beyond all are followed at each byte.
const OPEN: &[u8] = b".[\\|?";
const MAX_OPEN: usize = 8;
const MANY_STATES_FACTOR: u64 = 32;

/// Checks what is searched in, and what for. Returns how many steps a row takes.
pub(super) fn check(name: &str, kind: Kind, arguments: &[(&Value, Size)]) -> Result<u64, Refusal> {
    let Some((_, searched)) = arguments.first() else {
        return Ok(0);
    };
    let steps = match kind {
        Kind::Found => check_needle(name, arguments.get(1).map(|(_, size)| *size))?,
        Kind::Like => like_steps(check_pattern(name, arguments.get(1), |_| None)?),
        Kind::Regex => regex_steps(check_pattern(name, arguments.get(1), heavy)?),
        Kind::RegexPart | Kind::RegexReplaced => {
            regex_steps(check_pattern(name, arguments.get(1), heavy)?).saturating_mul(CAPTURE_FACTOR)
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
                "{name} would search in {} bytes, at most {MAX_SEARCHED_BYTES} are taken",
                searched.bytes
            ),
            "search in a column, not in what was put together of many",
        ));
    }
    Ok(steps
        .saturating_mul(searched.bytes.max(SHORT))
        .div_ceil(PARTS))
}

/// Steps that a byte of LIKE takes for each byte that is searched, with `_` and without.
fn like_steps(pattern: &str) -> u64 {
    let is_plain = !pattern.contains(['_', '?', '[', '\\']);
    let length = pattern.len() as u64;
    if is_plain {
        length
    } else {
        length * WILDCARD_PARTS
    }
}

/// Steps that a regular expression takes for each byte that is searched.
fn regex_steps(pattern: &str) -> u64 {
    let n_open = pattern.bytes().filter(|byte| OPEN.contains(byte)).count();
    let weight = if n_open > MAX_OPEN { MANY_STATES_FACTOR } else { 1 };
    pattern.len() as u64 * PARTS * weight
}

fn check_needle(name: &str, needle: Option<Size>) -> Result<u64, Refusal> {
    let bytes = needle.map_or(0, |size| size.bytes);
    if bytes > COLUMN_BYTES {
        return Err(Refusal::new(
            format!("{name} looks for a text of more than {COLUMN_BYTES} bytes"),
            "look for less",
        ));
    }
    Ok(bytes)
}

/// What in a regular expression takes longer than its length says.
fn heavy(pattern: &str) -> Option<&'static str> {
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
    heavy: impl Fn(&str) -> Option<&'static str>,
) -> Result<&'a str, Refusal> {
    let text = pattern.and_then(|(value, _)| constants::text(value));
    let Some(text) = text else {
        return Err(Refusal::new(
            format!("the pattern of {name} is not a text in quotes"),
            "write the pattern out, or compare with starts_with and contains",
        ));
    };
    if text.len() > MAX_PATTERN_BYTES {
        return Err(Refusal::new(
            format!(
                "the pattern of {name} has {} bytes, at most {MAX_PATTERN_BYTES} are taken",
                text.len()
            ),
            "use IN for many texts, or several conditions",
        ));
    }
    match heavy(text) {
        Some(what) => Err(Refusal::new(
            format!("{what} is not among what may be asked"),
            "write it out with *, + and ?, or with classes such as [0-9]",
        )),
        None => Ok(text),
    }
}

/// The field that a path names, if it names one of the outermost; there is no other way to write it among these.
pub(super) fn field(path: &str) -> Option<&str> {
    let name = path.strip_prefix("$.").unwrap_or(path);
    let is_of_a_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    // Without `$.` everything is the name, also dots.
    let may_have_dots = name == path;
    let is_plain = |byte: u8| is_of_a_name(byte) || (may_have_dots && byte == b'.');
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
    (begins_well && name.bytes().all(is_plain)).then_some(name)
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
        format!("the path of {name} is not a short text in quotes without *"),
        "name one field: attrs->>'$.key'",
    ))
}
