//! Query builder: statements are built from constants; every value is bound.

use duckdb::types::Value;

/// Statement under construction, with the values for its placeholders.
#[derive(Debug)]
pub(in crate::duckdb) struct Query {
    /// Text.
    pub(in crate::duckdb) sql: String,
    /// Values, in order of their placeholders.
    pub(in crate::duckdb) values: Vec<Value>,
}

impl Query {
    /// Starts with a text without placeholders.
    pub(super) fn new(sql: &'static str) -> Self {
        Self {
            sql: sql.to_owned(),
            values: Vec::new(),
        }
    }

    /// Appends a text without placeholders.
    pub(super) fn then(mut self, sql: &'static str) -> Self {
        self.sql.push(' ');
        self.sql.push_str(sql);
        self
    }

    /// Appends a text with one placeholder, and its value.
    pub(super) fn bind(mut self, sql: &'static str, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self.then(sql)
    }

    /// Appends a text with one placeholder if there is a value for it.
    pub(super) fn bind_some(self, sql: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.bind(sql, value),
            None => self,
        }
    }

    /// Appends another statement, with its values.
    pub(super) fn append(mut self, other: Self) -> Self {
        self.sql.push(' ');
        self.sql.push_str(&other.sql);
        self.values.extend(other.values);
        self
    }

    /// Appends `column IN (...)`; nothing matches if there are no values.
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
