//! The fields of an operator's file, taken one by one. What is wrong with one is told with its place, and reading goes
//! on, so that one run shows all mistakes.

use std::fmt;
use std::str::FromStr;

use serde_norway::{Mapping, Value};

/// The fields of one mapping. What nobody took is a mistake, too: [`Fields::report_unknown_fields`].
#[derive(Debug)]
pub struct Fields<'a> {
    place: String,
    mapping: Mapping,
    mistakes: &'a mut Vec<String>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, if it has any. The place of a whole file is empty.
    pub fn from_value(place: &str, value: Value, mistakes: &'a mut Vec<String>) -> Option<Self> {
        let Value::Mapping(mapping) = value else {
            let named = if place.is_empty() { "the file" } else { place };
            mistakes.push(format!("{named}: is not a mapping of fields"));
            return None;
        };
        let place = if place.is_empty() {
            String::new()
        } else {
            format!("{place}.")
        };
        Some(Self {
            place,
            mapping,
            mistakes,
        })
    }

    /// Where a field stands, as mistakes name it.
    pub fn place(&self, field: &str) -> String {
        format!("{}{field}", self.place)
    }

    /// Reports what is wrong with a field.
    pub fn mistake(&mut self, field: &str, what: &str) {
        self.mistakes.push(format!("{}{field}: {what}", self.place));
    }

    /// Reports a field as missing, unless it was there and has been reported as wrong.
    pub fn require(&mut self, field: &str, is_missing: bool) {
        let place = self.place(field);
        let is_told = |known: &String| {
            let rest = known.strip_prefix(&place);
            rest.is_some_and(|rest| rest.starts_with([':', '.', '[']))
        };
        if is_missing && !self.mistakes.iter().any(is_told) {
            self.mistake(field, "is missing");
        }
    }

    /// A field as it stands; nothing when it is absent or null.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.mapping.remove(field).filter(|value| !value.is_null())
    }

    /// A text that is not blank.
    pub fn text(&mut self, field: &str) -> Option<String> {
        match self.take(field)? {
            Value::String(text) if !text.trim().is_empty() => Some(text),
            _ => {
                self.mistake(field, "is not a text");
                None
            }
        }
    }

    /// A text that says what `T` reads.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, field: &str) -> Option<T> {
        let text = self.text(field)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(why) => {
                self.mistake(field, &why.to_string());
                None
            }
        }
    }

    /// Yes or no.
    pub fn flag(&mut self, field: &str) -> Option<bool> {
        let flag = self.take(field)?.as_bool();
        if flag.is_none() {
            self.mistake(field, "is neither true nor false");
        }
        flag
    }

    /// The entries of a list, each with its place.
    pub fn list(&mut self, field: &str) -> Option<Vec<(String, Value)>> {
        let Value::Sequence(entries) = self.take(field)? else {
            self.mistake(field, "is not a list");
            return None;
        };
        let place = self.place(field);
        let numbered = entries.into_iter().enumerate();
        Some(
            numbered
                .map(|(index, entry)| (format!("{place}[{index}]"), entry))
                .collect(),
        )
    }

    /// The texts of a list, each of which says what `T` reads.
    pub fn all_parsed<T: FromStr<Err: fmt::Display>>(&mut self, field: &str) -> Option<Vec<T>> {
        let mut all = Vec::new();
        let entries = self.list(field)?;
        let expected = entries.len();
        for (place, entry) in entries {
            let text = entry.as_str().ok_or_else(|| "is not a text".to_owned());
            match text.and_then(|text| text.parse().map_err(|why: T::Err| why.to_string())) {
                Ok(value) => all.push(value),
                Err(why) => self.mistakes.push(format!("{place}: {why}")),
            }
        }
        if expected == 0 {
            self.mistake(field, "is empty");
        }
        (expected > 0 && all.len() == expected).then_some(all)
    }

    /// The fields of a mapping inside.
    pub fn nested(&mut self, field: &str) -> Option<Fields<'_>> {
        let value = self.take(field)?;
        let place = self.place(field);
        Fields::from_value(&place, value, self.mistakes)
    }

    /// Where mistakes of entries go that have a place of their own.
    pub fn mistakes(&mut self) -> &mut Vec<String> {
        self.mistakes
    }

    /// Reports every field that nobody took.
    pub fn report_unknown_fields(self) {
        for key in self.mapping.keys() {
            let name = key.as_str().unwrap_or("a key that is no text");
            self.mistakes
                .push(format!("{}{name}: is not a known field", self.place));
        }
    }
}
