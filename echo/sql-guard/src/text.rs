//! Checks of the text before it is parsed.

use crate::refusal::Refusal;

/// Maximum length of a text, bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Maximum number of opening brackets, anywhere in the text: the parser needs stack for each.
const MAX_BRACKETS: usize = 400;

/// Checks a text before it is parsed.
pub fn check(text: &str) -> Result<(), Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::new(
            format!(
                "the text has {} bytes; the limit is {MAX_BYTES}",
                text.len()
            ),
            "replace long lists by a join with a view",
        ));
    }
    let brackets = text.chars().filter(|char| "([{".contains(*char)).count();
    if brackets > MAX_BRACKETS {
        return Err(Refusal::new(
            format!("the text has {brackets} brackets; the limit is {MAX_BRACKETS}"),
            "split the statement",
        ));
    }
    if text.contains('\0') {
        return Err(Refusal::new(
            "the text contains a zero byte",
            "send plain text",
        ));
    }
    if text.trim().is_empty() {
        return Err(Refusal::new(
            "the text has no statement",
            "write one SELECT, such as SELECT * FROM verdicts",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MAX_BRACKETS, MAX_BYTES, check};

    #[test]
    fn long_nested_and_empty_texts_are_refused() {
        assert!(check(&"x".repeat(MAX_BYTES)).is_ok());
        assert!(check(&"x".repeat(MAX_BYTES + 1)).is_err());
        assert!(check(&"([{".repeat(MAX_BRACKETS / 3)).is_ok());
        assert!(check(&"(".repeat(MAX_BRACKETS + 1)).is_err());
        assert!(check("SELECT 1\0").is_err());
        assert!(check(" \n").is_err());
    }
}
