//! The fields of a node, each of which has to be accounted for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::refusal::Refusal;

/// The fields of a node that nobody has looked at yet. A field that is left over is one that this guard does not know.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    what: &'a str,
    left: BTreeMap<&'a str, &'a Value>,
}

/// Field that says where in the text something stands.
const POSITION: &str = "query_location";

impl<'a> Fields<'a> {
    /// The fields of an object; `what` names it in refusals unless it has a type.
    pub(super) fn new(value: &'a Value, what: &'a str) -> Result<Self, Refusal> {
        let Value::Object(map) = value else {
            return Err(Refusal::unknown(what));
        };
        let fields = map.iter().map(|(name, value)| (name.as_str(), value));
        let left = fields.filter(|(name, _)| *name != POSITION).collect();
        let what = value.get("type").and_then(Value::as_str).unwrap_or(what);
        Ok(Self { what, left })
    }

    /// A field.
    pub(super) fn take(&mut self, name: &str) -> Result<&'a Value, Refusal> {
        let found = self.left.remove(name);
        found.ok_or_else(|| Refusal::unknown(format!("{} without {name}", self.what)))
    }

    /// A field that may be null.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<&'a Value>, Refusal> {
        Ok(Some(self.take(name)?).filter(|value| !value.is_null()))
    }

    /// A text.
    pub(super) fn text(&mut self, name: &str) -> Result<&'a str, Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_str);
        value.ok_or_else(unknown)
    }

    /// A list.
    pub(super) fn list(&mut self, name: &str) -> Result<&'a [Value], Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_array);
        value.map(Vec::as_slice).ok_or_else(unknown)
    }

    /// A flag.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        let unknown = || Refusal::unknown(format!("{name} of {}", self.what));
        let value = self.left.remove(name).and_then(Value::as_bool);
        value.ok_or_else(unknown)
    }

    /// A text out of a list; returns it.
    pub(super) fn one_of(&mut self, name: &str, known: &[&str]) -> Result<&'a str, Refusal> {
        let value = self.text(name)?;
        if known.contains(&value) {
            Ok(value)
        } else {
            Err(Refusal::unknown(format!("{value} of {}", self.what)))
        }
    }

    /// Fields that say nothing that could hurt.
    pub(super) fn ignore(&mut self, names: &[&str]) -> Result<(), Refusal> {
        for name in names {
            self.take(name)?;
        }
        Ok(())
    }

    /// Fields that have to be null, false or empty.
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

    /// Nothing may be left over.
    pub(super) fn finish(self) -> Result<(), Refusal> {
        match self.left.keys().next() {
            Some(name) => Err(Refusal::unknown(format!("{name} of {}", self.what))),
            None => Ok(()),
        }
    }
}
