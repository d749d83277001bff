//! Texts of others for a log or a terminal.

/// The text in one line, cut after so many characters. What a terminal would obey, and what turns around the direction of
/// writing, is escaped.
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

/// Marks without a shape of their own: joiners, byte order marks, and those of the direction of writing.
fn is_format(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn ordinary_text_stays_as_it_is_in_one_line() {
        assert_eq!(printable("größer als\n  4 MiB", 100), "größer als 4 MiB");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(
            printable("\u{1b}[2J\u{7}a\u{202e}b", 100),
            "\\u{1b}[2J\\u{7}a\\u{202e}b"
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(printable(&"x".repeat(3_000_000), 5), "xxxxx (cut off)");
    }
}
