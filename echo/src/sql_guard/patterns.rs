//! Arguments that decide how long a search takes: one call on two thousand rows cannot be interrupted.

use serde_json::Value;

use crate::sql_guard::functions::Kind;
use crate::sql_guard::limits::{COLUMN_BYTES, MAX_PATTERN_BYTES, MAX_SEARCHED_BYTES};
use crate::sql_guard::refusal::Refusal;
use crate::sql_guard::size::Size;

/// The text of a constant; nothing when the expression is something else.
pub(super) fn constant(expression: &Value) -> Option<&str> {
    let literal = expression.get("literal")?;
    let is_text = literal.get("kind")?.as_str()? == "STRING";
    literal.get("text")?.as_str().filter(|_| is_text)
}

/// Checks what is searched in, and what for.
pub(super) fn check(name: &str, kind: Kind, arguments: &[(&Value, Size)]) -> Result<(), Refusal> {
    let Some((_, searched)) = arguments.first() else {
        return Ok(());
    };
    match kind {
        Kind::Found => check_needle(name, arguments.get(1).map(|(_, size)| *size))?,
        Kind::Like => {
            check_pattern(name, arguments.get(1), |_| None)?;
        }
        Kind::Regex | Kind::RegexReplaced => {
            check_pattern(name, arguments.get(1), heavy)?;
        }
        Kind::Json => {
            check_path(name, arguments.get(1))?;
            return Ok(());
        }
        Kind::Short
        | Kind::AsLong
        | Kind::Macro
        | Kind::Joined
        | Kind::Collected
        | Kind::Replaced
        | Kind::Formatted => return Ok(()),
    }
    if searched.bytes > MAX_SEARCHED_BYTES {
        return Err(Refusal::new(
            format!(
                "{name} would search in {} bytes, at most {MAX_SEARCHED_BYTES} are taken",
                searched.bytes
            ),
            "search in a column, not in what was put together of many",
        ));
    }
    Ok(())
}

fn check_needle(name: &str, needle: Option<Size>) -> Result<(), Refusal> {
    match needle {
        Some(size) if size.bytes > COLUMN_BYTES => Err(Refusal::new(
            format!("{name} looks for a text of more than {COLUMN_BYTES} bytes"),
            "look for less",
        )),
        Some(_) | None => Ok(()),
    }
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

fn check_pattern(
    name: &str,
    pattern: Option<&(&Value, Size)>,
    heavy: impl Fn(&str) -> Option<&'static str>,
) -> Result<(), Refusal> {
    let text = pattern.and_then(|(value, _)| constant(value));
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
        None => Ok(()),
    }
}

fn check_path(name: &str, path: Option<&(&Value, Size)>) -> Result<(), Refusal> {
    let Some((value, _)) = path else {
        return Ok(());
    };
    let is_number = value
        .pointer("/literal/kind")
        .is_some_and(|kind| kind == "INTEGER");
    let text = constant(value);
    let is_plain = text.is_some_and(|text| text.len() <= MAX_PATTERN_BYTES && !text.contains('*'));
    if is_number || is_plain {
        return Ok(());
    }
    Err(Refusal::new(
        format!("the path of {name} is not a short text in quotes without *"),
        "name one field: attrs->>'$.key'",
    ))
}
