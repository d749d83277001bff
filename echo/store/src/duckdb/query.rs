//! Statements are put together from constants; every value is bound.

use duckdb::types::Value;

/// A statement in the making, with the values for its question marks.
#[derive(Debug)]
pub(in crate::duckdb) struct Query {
    /// The text.
    pub(in crate::duckdb) sql: String,
    /// The values, in the order of their question marks.
    pub(in crate::duckdb) values: Vec<Value>,
}

impl Query {
    /// Begins with a text without question marks.
    pub(super) fn new(sql: &'static str) -> Self {
        Self {
            sql: sql.to_owned(),
            values: Vec::new(),
        }
    }

    /// Adds a text without question marks.
    pub(super) fn then(mut self, sql: &'static str) -> Self {
        self.sql.push(' ');
        self.sql.push_str(sql);
        self
    }

    /// Adds a text with one question mark, and its value.
    pub(super) fn bind(mut self, sql: &'static str, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self.then(sql)
    }

    /// Adds a text with one question mark if there is a value for it.
    pub(super) fn bind_some(self, sql: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.bind(sql, value),
            None => self,
        }
    }

    /// Adds `column IN (...)`; nothing passes when there are no values.
    pub(super) fn one_of(
        mut self,
        sql: &'static str,
        values: impl Iterator<Item = impl Into<Value>>,
    ) -> Self {
        self = self.then(sql).then("IN (NULL");
        for value in values {
            self = self.bind(", ?", value);
        }
        self.then(")")
    }
}
