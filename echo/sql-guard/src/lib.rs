//! Lets through what only reads the published views, and says of everything else why not and what to write instead.
//!
//! The engine's own parser gives the tree ([`PARSE`]), so there is no second grammar to differ from it. The tree is an
//! allow-list at every place: node types, fields of nodes, tables, functions, casts. Whatever is not known is refused,
//! also what a later version of the engine brings. What the parser, the binder and single calls of functions do cannot
//! be interrupted, so what they cost is bounded here: what the parser is given ([`text`]), the nodes, and how far columns,
//! expressions and strings can grow.

use serde_json::Value;

use crate::query::Walk;
use crate::refusal::Refusal;

pub mod functions;
pub mod limits;
pub mod refusal;
pub mod text;
pub mod views;

mod call;
mod casts;
mod collected;
mod constants;
mod expression;
mod fields;
mod from;
mod items;
mod patterns;
mod query;
mod size;
mod spent;

#[cfg(test)]
mod tests;

/// The statement that asks the engine for the tree of a text, which is its one parameter. It runs nothing.
pub const PARSE: &str = "SELECT json_serialize_sql(?::VARCHAR)";

/// A text that the guard has let through. Nothing else makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlySql {
    text: String,
    sorts_all: bool,
    collects: bool,
}

impl ReadOnlySql {
    /// The statement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it collects values into lists or strings, whose length is unknown until it has run.
    pub const fn collects(&self) -> bool {
        self.collects
    }

    /// The statement with a limit of `rows` rows, when it sorts all of them: keeping the first is much cheaper. It has to
    /// pass the guard again.
    pub fn shortened(&self, rows: usize) -> Option<String> {
        let text = self.text.trim_end().trim_end_matches(';');
        // On a line of its own it is not part of a comment.
        self.sorts_all.then(|| format!("{text}\nLIMIT {rows}"))
    }
}

/// Checks the tree that the engine's parser made of a text. A text that is no SQL is left to the caller: the parser says
/// what is wrong with it ([`syntax_error`]).
pub fn check(text: &str, tree: &Value) -> Result<ReadOnlySql, Refusal> {
    text::check(text)?;
    let mut walk = Walk::default();
    walk.document(tree)?;
    Ok(ReadOnlySql {
        text: text.to_owned(),
        sorts_all: walk.sorts_all,
        collects: walk.collected.is_seen(),
    })
}

/// What the parser says of a text that is no SQL: the message, and the place counted in bytes from 0.
pub fn syntax_error(tree: &Value) -> Option<(String, Option<usize>)> {
    if tree.get("error_type")?.as_str()? != "parser" {
        return None;
    }
    let message = tree.get("error_message")?.as_str()?.to_owned();
    let position = tree.get("position").and_then(Value::as_str);
    Some((message, position.and_then(|text| text.parse().ok())))
}
