//! Where a page of a list ended that every answer puts in order anew.

use std::fmt;
use std::str::FromStr;

use echo_core::units::{Nanos, Window};
use serde::{Deserialize, Deserializer};

/// The window that the list is of, because relative windows move between two pages, and how many items went before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// The window.
    pub window: Window,
    /// Items on the pages before.
    pub offset: usize,
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.window.from().value(), self.window.to().value());
        write!(f, "{from:x}-{to:x}-{:x}", self.offset)
    }
}

impl FromStr for ListCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let mut parts = text.split('-');
            let mut instant = || Some(Nanos::new(i64::from_str_radix(parts.next()?, 16).ok()?));
            let window = Window::new(instant()?, instant()?)?;
            let offset = usize::from_str_radix(parts.next()?, 16).ok()?;
            parts.next().is_none().then_some(Self { window, offset })
        };
        read().ok_or_else(|| "is not the next_cursor of an answer".to_owned())
    }
}

impl<'de> Deserialize<'de> for ListCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use echo_core::units::{Nanos, Window};

    use super::ListCursor;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is() {
        let cursor = ListCursor {
            window: Window::new(Nanos::new(17), Nanos::new(1_780_272_000_000_000_000)).unwrap(),
            offset: 40,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in [
            "", "1", "1-2", "2-1-0", "1-2-x", "1-2-3-4", "1-2--3", "1-2-+3 ",
        ] {
            assert!(text.parse::<ListCursor>().is_err(), "{text}");
        }
    }
}
