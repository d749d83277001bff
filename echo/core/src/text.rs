//! Untrusted text and its invisible characters.

use std::borrow::Cow;

/// Returns true if a character is invisible or changes the display of others: control and format
/// characters, including those that change the writing direction (Unicode categories Cc, Cf, Zl and
/// Zp), and Hangul fillers.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text on one line, with hidden characters as `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A number with this many decimals. One that rounds to zero has no sign.
pub fn decimal(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|digit| matches!(digit, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{decimal, visible};

    #[test]
    fn a_number_that_rounds_to_zero_has_no_sign() {
        for (value, places, expected) in [
            (-0.0, 1, "0.0"),
            (-0.04, 1, "0.0"),
            (-0.06, 1, "-0.1"),
            (-0.4, 0, "0"),
            (-1.25, 2, "-1.25"),
            (f64::NEG_INFINITY, 1, "-inf"),
        ] {
            assert_eq!(decimal(value, places), expected);
        }
    }

    proptest! {
        #[test]
        fn a_minus_stands_only_before_another_digit_than_zero(
            value in any::<f64>(),
            places in 0..9_usize,
        ) {
            let text = decimal(value, places);
            let has_digit = text.contains(|c: char| ('1'..='9').contains(&c)) || value.is_infinite();
            prop_assert!(!text.starts_with('-') || has_digit, "{}", text);
            let plain = format!("{value:.places$}");
            prop_assert_eq!(text.trim_start_matches('-'), plain.trim_start_matches('-'));
        }
    }

    #[test]
    fn invisible_characters_are_escaped_and_others_stay() {
        for (text, expected) in [
            ("rack 7/größe-数据 <b> \"\\", "rack 7/größe-数据 <b> \"\\"),
            ("abc\u{202e}def", "abc\\u{202e}def"),
            ("a\nb\u{1b}[31m", "a\\nb\\u{1b}[31m"),
            (
                "\u{feff}a\u{200b}\u{2066}\u{e0041}",
                "\\u{feff}a\\u{200b}\\u{2066}\\u{e0041}",
            ),
        ] {
            assert_eq!(visible(text), expected);
            assert_eq!(visible(expected), expected, "once is enough");
        }
    }
}
