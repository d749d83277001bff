//! Checks of the text before it is parsed. The parser cannot be interrupted, and some short texts
//! keep it busy for hours.
//!
//! Keywords count anywhere, except in plain strings, quoted names and comments with certain
//! boundaries. Recognizing all of them would require a second grammar, and each difference from the
//! engine's grammar would be a vulnerability.

use std::borrow::Cow;

use crate::limits::{MAX_BRACKETS, MAX_TEXT_BYTES, MAX_WINDOW_BYTES};
use crate::refusal::Refusal;

/// Maximum length of the operand of a CASE, bytes.
const MAX_OPERAND_BYTES: usize = 128;

/// Checks a text before it is parsed.
pub fn check(text: &str) -> Result<(), Refusal> {
    check_length(text)?;
    let brackets = text.chars().filter(|char| "([{".contains(*char)).count();
    if brackets > MAX_BRACKETS {
        // The parsing time of some nested forms is quadratic in their depth.
        return Err(Refusal::new(
            format!("the text has {brackets} brackets; the limit is {MAX_BRACKETS}"),
            "split the statement",
        ));
    }
    let words = without_strings(text);
    if after_each(&words, "case").any(|after| !has_plain_operand(after)) {
        // The parser copies the operand into each comparison: nested operands double with each
        // level.
        return Err(Refusal::new(
            "CASE compares an expression other than a column (or the word is in a comment or a name)",
            "write CASE WHEN a = 1 THEN b END, or compute the value in a subquery and name it in CASE",
        ));
    }
    // The parser copies the definition of a window to each of its uses.
    let n_windows = after_each(&words, "over").count();
    let bytes = n_windows.saturating_mul(text.len());
    if after_each(&words, "window").next().is_some() && bytes > MAX_WINDOW_BYTES {
        return Err(Refusal::new(
            format!(
                "{n_windows} uses of windows with a WINDOW clause are too many in a text of this length"
            ),
            "use fewer windows in one statement",
        ));
    }
    Ok(())
}

fn check_length(text: &str) -> Result<(), Refusal> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Refusal::new(
            format!(
                "the text has {} bytes; the limit is {MAX_TEXT_BYTES}",
                text.len()
            ),
            "replace long lists by a join with a view",
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

/// Characters of operators.
const OPERATORS: &str = "+-*/<>=~!@#%^&|`?:";

/// Lexical context of a position in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Plain,
    String,
    Name,
    /// A comment to the end of its line.
    Line,
    Comment,
}

/// Replaces strings, comments and quoted names by blanks, if their boundaries are certain;
/// otherwise returns the text unchanged. A quoted name that is a plain word stays: it may be the
/// operand of a CASE.
///
/// Boundaries are uncertain with dollar quotes, prefixes of other kinds of strings, nested comments
/// and carriage returns. A doubled quote inside a string ends one string and begins the next.
fn without_strings(text: &str) -> Cow<'_, str> {
    blanked(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn blanked(text: &str) -> Option<String> {
    let mut words = String::with_capacity(text.len());
    let mut part = Part::Plain;
    let mut before = ' ';
    let mut name_at = 0;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let next = chars.peek().copied();
        match (part, char) {
            (_, '\r') | (Part::Plain, '$') => return None,
            (Part::Plain, '\'') if before.is_alphanumeric() || matches!(before, '_' | '&') => {
                return None;
            }
            (Part::Plain, '\'') => part = Part::String,
            // Like strings: U&"..." is another kind of name.
            (Part::Plain, '"') if before == '&' => return None,
            (Part::Plain, '"') => {
                part = Part::Name;
                name_at = words.len() + 1;
            }
            // The tokenizer might read it as the rest of an operator.
            (Part::Plain, '-' | '/')
                if begins_comment(char, next) && OPERATORS.contains(before) =>
            {
                return None;
            }
            (Part::Plain, '-') if next == Some('-') => part = Part::Line,
            (Part::Plain, '/') if next == Some('*') => {
                // Otherwise the star could be read as the beginning of the end.
                chars.next();
                words.push_str("  ");
                part = Part::Comment;
                before = ' ';
                continue;
            }
            (Part::String, '\'') | (Part::Line, '\n') => part = Part::Plain,
            (Part::Name, '"') => {
                part = Part::Plain;
                hide_unless_plain(&mut words, name_at);
            }
            (Part::Comment, '/') if next == Some('*') => return None,
            (Part::Comment, '/') if before == '*' => {
                part = Part::Plain;
                words.push(' ');
                before = ' ';
                continue;
            }
            _ => {}
        }
        words.push(if is_shown(part, char) { char } else { ' ' });
        before = char;
    }
    // A comment to the end of its line may also end with the text.
    matches!(part, Part::Plain | Part::Line).then_some(words)
}

fn begins_comment(char: char, next: Option<char>) -> bool {
    matches!((char, next), ('-', Some('-')) | ('/', Some('*')))
}

/// Blanks out the name that begins at `name_at`, unless it is a plain word.
fn hide_unless_plain(words: &mut String, name_at: usize) {
    let name = words.get(name_at..).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !name.bytes().all(is_plain) {
        let blanks = " ".repeat(name.len());
        words.truncate(name_at);
        words.push_str(&blanks);
    }
}

fn is_shown(part: Part, char: char) -> bool {
    match part {
        Part::Plain | Part::Name => true,
        Part::String => char == '\'',
        Part::Line | Part::Comment => false,
    }
}

/// Texts after each possible occurrence of the word, in any case. A position counts unless it is
/// certainly part of a longer name.
fn after_each<'a>(text: &'a str, word: &'static str) -> impl Iterator<Item = &'a str> {
    let is_inside =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let bytes = text.as_bytes();
    let places = bytes.windows(word.len()).enumerate();
    places.filter_map(move |(place, window)| {
        let before = place.checked_sub(1).and_then(|before| bytes.get(before));
        let end = place + word.len();
        let goes_on = bytes
            .get(end)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let is_word =
            window.eq_ignore_ascii_case(word.as_bytes()) && !is_inside(before) && !goes_on;
        is_word.then(|| text.get(end..))?
    })
}

/// Returns true if `WHEN` follows, with at most a name or a number in between.
fn has_plain_operand(after: &str) -> bool {
    let rest = after.trim_ascii_start();
    if rest.len() == after.len() {
        return false;
    }
    if starts_with_when(rest) {
        return true;
    }
    let is_of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.\"".contains(byte);
    let length = rest.bytes().take_while(is_of_a_name).count();
    let (operand, rest) = rest.split_at_checked(length).unwrap_or(("", rest));
    let follows = rest.trim_ascii_start();
    let is_apart = follows.len() < rest.len();
    (1..=MAX_OPERAND_BYTES).contains(&operand.len()) && is_apart && starts_with_when(follows)
}

fn starts_with_when(text: &str) -> bool {
    after_each(text, "when")
        .next()
        .is_some_and(|after| after.len() + 4 == text.len())
}

#[cfg(test)]
mod tests {
    use super::{MAX_BRACKETS, MAX_TEXT_BYTES, check};

    #[test]
    fn texts_that_the_parser_must_not_receive_are_refused() {
        for text in [
            "x".repeat(MAX_TEXT_BYTES + 1),
            "(".repeat(MAX_BRACKETS + 1),
            "SELECT 1\0".to_owned(),
            " \n".to_owned(),
        ] {
            assert!(check(&text).is_err());
        }
        assert!(check(&"(".repeat(MAX_BRACKETS)).is_ok());
    }

    #[test]
    fn case_compares_plain_columns_only() {
        for text in [
            "CASE WHEN a THEN 1 END",
            "case\n  when a THEN 1 END",
            "CASE op WHEN 'AllReduce' THEN 1 END",
            "CASE v.\"op\"\tWHEN 1 THEN 2 END",
            "CASE 1 WHEN 1 THEN 2 END",
            "lowercase, showcase_case, case1, a_case",
            "x = 'in case of (nothing)' OR y = 'it''s a case (of)'",
            "\"it's\" = 'case' OR \"isn't\" = 'in case'",
            "CASE op WHEN 'case (a)' THEN 1 END",
            "x = 'in case' -- of doubt",
            "x = 'in case' -- of doubt: it's the case (x)\n AND y = 'case (x)'",
            "x /* in case of (doubt) */ = 'in case'",
            "x /***/ = 1 /* case (x) **/ + 1",
            "\"a b case (x)\" = 1",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in [
            "CASE CASE x WHEN 1 THEN 2 END WHEN 1 THEN 2 END",
            "CASE (x) WHEN 1 THEN 2 END",
            "CASE f(x) WHEN 1 THEN 2 END",
            "CASE x + 1 WHEN 1 THEN 2 END",
            "CASE/**/(x) WHEN 1 THEN 2 END",
            "CASE /* */ /* x */(x) WHEN 1 THEN 2 END",
            "/* /* */ ' */ CASE (x) WHEN 1 THEN 2 END /* ' */",
            "/*/ ' */ ' || CASE (x) WHEN 1 THEN 2 END || ''",
            "1 @-- ' CASE (x) WHEN 1 THEN 2 END",
            "-- \r CASE (x) WHEN 1 THEN 2 END",
            "U&\"'\" UESCAPE '!' || CASE (x) WHEN 1 THEN 2 END",
            "CASE\u{a0}x WHEN 1 THEN 2 END",
            "CASE -- WHEN\n(x) WHEN 1 THEN 2 END",
            "1CASE(x)WHEN 1 THEN 2 END",
            "CASE",
            "CASE 'x' WHEN 1 THEN 2 END",
            "'a' || CASE (x) WHEN 1 THEN 2 END || 'b'",
            // If string boundaries are uncertain, the word counts.
            "E'\\' CASE (x) WHEN 1 THEN 2 END --'",
            "e'\\'' || CASE (x) WHEN 1 THEN 2 END || ''",
            "U&'\\' CASE (x) WHEN",
            "-- '\n CASE (x) WHEN 1 THEN 2 END -- '",
            "/* ' */ CASE (x) WHEN 1 THEN 2 END /* ' */",
            "$$ ' $$ || CASE (x) WHEN 1 THEN 2 END || $$ ' $$",
            "$a$ ' $a$ || CASE (x) WHEN 1 THEN 2 END || $a$ ' $a$",
            "\"'\" || CASE (x) WHEN 1 THEN 2 END || \"'\"",
            "' CASE (x) WHEN 1 THEN 2 END",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_named_window_is_not_copied_too_often() {
        let used = |times: usize| {
            let uses = vec!["sum(a) OVER w"; times].join(", ");
            format!("SELECT {uses} FROM t WINDOW w AS (ORDER BY a)")
        };
        assert_eq!(check(&used(20)), Ok(()));
        assert!(check(&used(200)).is_err());
        assert_eq!(check(&used(200).replace("WINDOW", "")), Ok(()));
    }
}
