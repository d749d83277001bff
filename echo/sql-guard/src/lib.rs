//! Guard for SQL statements: accepts those that only read the published views, and refuses others
//! with a reason and a hint.
//!
//! The engine's own parser builds the tree ([`PARSE`]), so there is no second grammar that could
//! differ. Every part of the tree is checked against an allow-list: node types, fields of nodes,
//! tables, functions, casts. Everything unknown is refused, including additions of later versions
//! of the engine. What a statement costs is not judged here: it runs in a process with limits on
//! time and memory.

use serde_json::Value;

use crate::refusal::Refusal;

pub mod functions;
pub mod refusal;
pub mod text;
pub mod views;

mod call;
mod casts;
mod constants;
mod expression;
mod fields;
mod from;
mod query;
mod sample;

#[cfg(test)]
mod tests;

/// Statement with which the engine parses a text, its only parameter, to a tree. It does not run
/// the text.
pub const PARSE: &str = "SELECT json_serialize_sql(?::VARCHAR)";

/// Statement accepted by the guard. Only the guard creates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlySql {
    text: String,
    sorts_all: bool,
}

impl ReadOnlySql {
    /// Text of the statement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statement with a limit of `rows` rows, if it sorts all of them: keeping only the first
    /// rows is much cheaper. It must be checked again.
    pub fn shortened(&self, rows: usize) -> Option<String> {
        let text = self.text.trim_end().trim_end_matches(';');
        // On a separate line it is not part of a comment.
        self.sorts_all.then(|| format!("{text}\nLIMIT {rows}"))
    }
}

/// Checks the tree that the engine's parser built from a text. The caller handles a text that is
/// not SQL: [`syntax_error`] returns the parser's message.
pub fn check(text: &str, tree: &Value) -> Result<ReadOnlySql, Refusal> {
    text::check(text)?;
    let sorts_all = query::document(tree)?;
    Ok(ReadOnlySql {
        text: text.to_owned(),
        sorts_all,
    })
}

/// Returns the parser's message for a text that is not SQL, and the position in bytes from 0.
pub fn syntax_error(tree: &Value) -> Option<(String, Option<usize>)> {
    if tree.get("error_type")?.as_str()? != "parser" {
        return None;
    }
    let message = tree.get("error_message")?.as_str()?.to_owned();
    let position = tree.get("position").and_then(Value::as_str);
    Some((message, position.and_then(|text| text.parse().ok())))
}
