//! Cursor of a list that is recomputed for every page.

use std::fmt;
use std::str::FromStr;

use echo_core::units::{Nanos, Window};
use serde::{Deserialize, Deserializer};

/// Position in a list: the window, because relative windows move between two pages, and the number
/// of items on previous pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// Window of the list.
    pub window: Window,
    /// Number of items on previous pages.
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
        let parse = || {
            let mut parts = text.split('-');
            let mut instant = || Some(Nanos::new(i64::from_str_radix(parts.next()?, 16).ok()?));
            let window = Window::new(instant()?, instant()?)?;
            let offset = usize::from_str_radix(parts.next()?, 16).ok()?;
            parts.next().is_none().then_some(Self { window, offset })
        };
        parse().ok_or_else(|| "is not a next_cursor of an earlier answer".to_owned())
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
    fn a_cursor_round_trips_and_anything_else_is_rejected() {
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
