//! Names with `*` for any number of characters. There are no other wildcards.

use std::str::FromStr;

use crate::ids::MAX_NAME_BYTES;

/// A name, or all names that match a pattern with `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(String);

/// Error of a text that is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no name of 1 to {MAX_NAME_BYTES} bytes without control characters")]
pub struct NoName;

impl Pattern {
    /// The pattern of all names.
    pub fn everything() -> Self {
        Self("*".to_owned())
    }

    /// Returns true if every name matches.
    pub fn is_everything(&self) -> bool {
        self.0.bytes().all(|byte| byte == b'*')
    }

    /// Returns true if it has no wildcard.
    pub fn is_one_name(&self) -> bool {
        !self.0.contains('*')
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pattern for names in which underscores stand for dots.
    #[must_use]
    pub fn without_dots(&self) -> Self {
        Self(without_dots(&self.0))
    }

    /// Returns true if the name matches. Each part is matched at its first possible position, so
    /// the time is linear in both lengths.
    pub fn matches(&self, name: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut name) = name.strip_prefix(head) else {
            return false;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            match name.split_once(part) {
                Some((_, after)) => name = after,
                None => return false,
            }
        }
        name.ends_with(tail)
    }
}

impl FromStr for Pattern {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        checked_name(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// Returns the text if it is safe to log.
pub fn checked_name(text: &str) -> Result<&str, NoName> {
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len());
    if !fits || text.chars().any(char::is_control) {
        return Err(NoName);
    }
    Ok(text)
}

/// Returns the name of a tool for clients that do not allow dots in names.
pub fn without_dots(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(name)
    }

    #[test]
    fn a_star_stands_for_any_characters_and_everything_else_for_itself() {
        for (pattern, name) in [
            ("prod", "prod"),
            ("*", ""),
            ("**", "anything"),
            ("prod-*", "prod-"),
            ("prod-*", "prod-eu-1"),
            ("*-eu", "a-eu-eu"),
            ("a*b*c", "aXbbYc"),
            ("a*b*b", "abb"),
            ("a.*", "a.b"),
        ] {
            assert!(matches(pattern, name), "{pattern} does not match {name}");
        }
        for (pattern, name) in [
            ("prod", "prod2"),
            ("prod", "Prod"),
            ("prod-*", "prod"),
            ("*-eu", "a-eu-2"),
            ("a*a", "a"),
            ("a*b*b", "ab"),
            ("a*b*c", "acb"),
            ("a.*", "aXb"),
            ("p?od", "prod"),
            ("[p]rod", "prod"),
        ] {
            assert!(!matches(pattern, name), "{pattern} matches {name}");
        }
    }

    #[test]
    fn text_that_would_corrupt_logs_is_refused() {
        for text in ["", "a\nb", "\u{0}", &"x".repeat(257)] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?} was accepted");
        }
    }
}
