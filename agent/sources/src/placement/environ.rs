//! Variables of an untrusted environment.

use std::collections::BTreeMap;

/// Requested variables with their values as bytes.
#[derive(Debug)]
pub(super) struct Environ<'a>(BTreeMap<&'static str, &'a [u8]>);

impl<'a> Environ<'a> {
    /// Keeps the variables of `names`. Of duplicates the first counts, as for the process itself.
    pub(super) fn new(bytes: &'a [u8], names: &[&'static str]) -> Self {
        let mut found = BTreeMap::new();
        for variable in bytes.split(|byte| *byte == 0) {
            let Some(at) = variable.iter().position(|byte| *byte == b'=') else {
                continue;
            };
            let (name, value) = variable.split_at(at);
            if let Some(name) = names.iter().find(|known| known.as_bytes() == name) {
                found.entry(*name).or_insert_with(|| value.split_at(1).1);
            }
        }
        Self(found)
    }

    /// Returns the first of `names` that is set to a number.
    pub(super) fn number(&self, names: &[&str]) -> Option<u32> {
        let value = |name: &&str| self.0.get(name).copied();
        names.iter().filter_map(value).find_map(number)
    }

    /// Returns the first of `names` with a non-empty value, truncated to `max` bytes and without
    /// control characters.
    pub(super) fn text(&self, names: &[&str], max: usize) -> Option<String> {
        let value = |name: &&str| self.0.get(name).copied();
        let mut values = names.iter().filter_map(value);
        values.find_map(|value| text(value, max))
    }
}

/// Parses a number that consists of digits only: no sign, no inner blanks, no suffix.
fn number(value: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn text(value: &[u8], max: usize) -> Option<String> {
    // Later bytes matter only after as many control characters.
    let value = value.get(..4 * max).unwrap_or(value);
    let mut kept = String::new();
    for letter in String::from_utf8_lossy(value).chars() {
        if kept.len() + letter.len_utf8() > max {
            break;
        }
        if !letter.is_control() {
            kept.push(letter);
        }
    }
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_owned())
}
