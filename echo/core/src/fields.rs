//! Fields of an operator's file, read one by one. Mistakes are collected with their path and
//! reading continues, so that one run shows all of them.

use std::fmt;
use std::str::FromStr;

use serde_norway::{Mapping, Value};

/// Fields of one mapping. Fields that were not read are mistakes as well:
/// [`Fields::report_unknown_fields`].
#[derive(Debug)]
pub struct Fields<'a> {
    path: String,
    mapping: Mapping,
    mistakes: &'a mut Vec<String>,
}

impl<'a> Fields<'a> {
    /// Creates the fields of `value` if it is a mapping. The path of a whole file is empty.
    pub fn from_value(path: &str, value: Value, mistakes: &'a mut Vec<String>) -> Option<Self> {
        let Value::Mapping(mapping) = value else {
            let named = if path.is_empty() { "the file" } else { path };
            mistakes.push(format!("{named}: is not a mapping of fields"));
            return None;
        };
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("{path}.")
        };
        Some(Self {
            path,
            mapping,
            mistakes,
        })
    }

    /// Path of a field, as used in mistakes.
    pub fn path(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// Records a mistake in a field.
    pub fn mistake(&mut self, field: &str, what: &str) {
        self.mistakes.push(format!("{}{field}: {what}", self.path));
    }

    /// Reports a field as missing, unless it was present and has been reported as wrong.
    pub fn require(&mut self, field: &str, is_missing: bool) {
        let path = self.path(field);
        let is_reported = |known: &String| {
            let rest = known.strip_prefix(&path);
            rest.is_some_and(|rest| rest.starts_with([':', '.', '[']))
        };
        if is_missing && !self.mistakes.iter().any(is_reported) {
            self.mistake(field, "is missing");
        }
    }

    /// Removes and returns a field; `None` when it is absent or null.
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

    /// Text parsed as `T`.
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

    /// Boolean.
    pub fn flag(&mut self, field: &str) -> Option<bool> {
        let flag = self.take(field)?.as_bool();
        if flag.is_none() {
            self.mistake(field, "is neither true nor false");
        }
        flag
    }

    /// Entries of a list, each with its path.
    pub fn list(&mut self, field: &str) -> Option<Vec<(String, Value)>> {
        let Value::Sequence(entries) = self.take(field)? else {
            self.mistake(field, "is not a list");
            return None;
        };
        let path = self.path(field);
        let numbered = entries.into_iter().enumerate();
        Some(
            numbered
                .map(|(index, entry)| (format!("{path}[{index}]"), entry))
                .collect(),
        )
    }

    /// Texts of a list, each parsed as `T`.
    pub fn all_parsed<T: FromStr<Err: fmt::Display>>(&mut self, field: &str) -> Option<Vec<T>> {
        let mut all = Vec::new();
        let entries = self.list(field)?;
        let expected = entries.len();
        for (path, entry) in entries {
            let text = entry.as_str().ok_or_else(|| "is not a text".to_owned());
            match text.and_then(|text| text.parse().map_err(|why: T::Err| why.to_string())) {
                Ok(value) => all.push(value),
                Err(why) => self.mistakes.push(format!("{path}: {why}")),
            }
        }
        if expected == 0 {
            self.mistake(field, "is empty");
        }
        (expected > 0 && all.len() == expected).then_some(all)
    }

    /// Fields of a nested mapping.
    pub fn nested(&mut self, field: &str) -> Option<Fields<'_>> {
        let value = self.take(field)?;
        let path = self.path(field);
        Fields::from_value(&path, value, self.mistakes)
    }

    /// Collected mistakes, for entries with a path of their own.
    pub fn mistakes(&mut self) -> &mut Vec<String> {
        self.mistakes
    }

    /// Reports every field that was not read.
    pub fn report_unknown_fields(self) {
        for key in self.mapping.keys() {
            let name = key.as_str().unwrap_or("a key that is no text");
            self.mistakes
                .push(format!("{}{name}: is not a known field", self.path));
        }
    }
}
