//! Sanitizing of untrusted text for logs and terminals.

/// Returns the text in one line, truncated to `max_chars` characters. Control characters and
/// characters that change the writing direction are escaped.
pub fn printable(text: &str, max_chars: usize) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::new();
    for (index, letter) in words.chars().enumerate() {
        if index == max_chars {
            escaped.push_str(" (cut off)");
            break;
        }
        if letter.is_control() || is_format(letter) {
            escaped.extend(letter.escape_unicode());
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// Returns whether a character is invisible: joiners, byte order marks and direction marks.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn ordinary_text_is_kept_in_one_line() {
        assert_eq!(printable("größer als\n  4 MiB", 100), "größer als 4 MiB");
    }

    #[test]
    fn terminal_control_sequences_are_escaped() {
        assert_eq!(
            printable("\u{1b}[2J\u{7}a\u{202e}b", 100),
            "\\u{1b}[2J\\u{7}a\\u{202e}b"
        );
    }

    #[test]
    fn long_text_is_truncated() {
        assert_eq!(printable(&"x".repeat(3_000_000), 5), "xxxxx (cut off)");
    }
}
