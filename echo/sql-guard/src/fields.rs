//! Fields of a node, each of which must be checked.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::refusal::Refusal;

/// Fields of a node that have not been checked yet. A remaining field is one that the guard does
/// not know.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    what: &'a str,
    left: BTreeMap<&'a str, &'a Value>,
}

/// Field with the position in the text.
const POSITION: &str = "query_location";

impl<'a> Fields<'a> {
    /// Fields of an object; `what` names it in refusals unless it has a type.
    pub(super) fn new(value: &'a Value, what: &'a str) -> Result<Self, Refusal> {
        let Value::Object(map) = value else {
            return Err(Refusal::unknown(what));
        };
        let fields = map.iter().map(|(name, value)| (name.as_str(), value));
        let left = fields.filter(|(name, _)| *name != POSITION).collect();
        let what = value.get("type").and_then(Value::as_str).unwrap_or(what);
        Ok(Self { what, left })
    }

    /// Takes a required field.
    pub(super) fn take(&mut self, name: &str) -> Result<&'a Value, Refusal> {
        let found = self.left.remove(name);
        found.ok_or_else(|| Refusal::unknown(format!("{} without {name}", self.what)))
    }

    /// Takes a field that may be null.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<&'a Value>, Refusal> {
        Ok(Some(self.take(name)?).filter(|value| !value.is_null()))
    }

    /// Takes a string.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_str);
        value.ok_or_else(unknown)
    }

    /// Takes a list.
    pub(super) fn list(&mut self, name: &str) -> Result<&'a [Value], Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_array);
        value.map(Vec::as_slice).ok_or_else(unknown)
    }

    /// Takes a boolean.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_bool);
        value.ok_or_else(unknown)
    }

    /// Takes a string that must be one of `known`, and returns it.
    pub(super) fn one_of(&mut self, name: &str, known: &[&str]) -> Result<&'a str, Refusal> {
        let value = self.text(name)?;
        if known.contains(&value) {
            Ok(value)
        } else {
            Err(Refusal::unknown(format!("{value} of {}", self.what)))
        }
    }

    /// Takes fields whose values are harmless.
    pub(super) fn ignore(&mut self, names: &[&str]) -> Result<(), Refusal> {
        for name in names {
            self.take(name)?;
        }
        Ok(())
    }

    /// Takes fields that must be null, false or empty.
    pub(super) fn empty(&mut self, names: &[&str]) -> Result<(), Refusal> {
        for name in names {
            let is_empty = match self.take(name)? {
                Value::Null | Value::Bool(false) => true,
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
            };
            if !is_empty {
                return Err(Refusal::unknown(format!("{name} of {}", self.what)));
            }
        }
        Ok(())
    }

    /// Refuses remaining fields.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        match self.left.keys().next() {
            Some(name) => Err(Refusal::unknown(format!("{name} of {}", self.what))),
            None => Ok(()),
        }
    }
}

/// Joins the non-empty parts of a name with dots.
pub(super) fn path(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(".")
}
