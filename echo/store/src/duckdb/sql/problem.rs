//! Error messages for authors of statements.

use std::cmp::Reverse;
use std::path::Path;

use echo_sql_guard::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::duckdb::redaction::Hidden;
use crate::sql::SqlError;

/// Reason why a statement has no table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Problem {
    /// The guard refused it.
    Refused {
        /// Rule that it breaks.
        reason: String,
        /// Alternative.
        hint: String,
    },
    /// It is invalid, or a value in it cannot be processed.
    Wrong {
        /// Message of the engine.
        message: String,
    },
    /// It needs more memory than allowed.
    TooMuchMemory,
    /// The database file has changed while the statement read it.
    Overtaken,
    /// The database cannot be read.
    Failed {
        /// Message of the engine.
        reason: String,
    },
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { reason, hint } = refusal;
        Self::Refused { reason, hint }
    }
}

impl From<Problem> for SqlError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Refused { reason, hint } => Self::Refused(Refusal::new(reason, hint)),
            Problem::Wrong { message } => Self::Wrong { message },
            Problem::TooMuchMemory => Self::TooMuchMemory,
            Problem::Overtaken => Self::Overtaken,
            Problem::Failed { reason } => failed(reason),
        }
    }
}

/// The error of a statement that could not be run.
pub(super) fn failed(reason: impl Into<String>) -> SqlError {
    SqlError::Store(StoreError::Engine {
        doing: "running SQL",
        reason: reason.into(),
    })
}

/// Errors caused by the statement or its values. The engine's messages explain how to fix them.
const MISTAKES: [&str; 12] = [
    "Binder Error",
    "Catalog Error",
    "Conversion Error",
    "Decimal Error",
    "Divide by Zero Error",
    "Invalid Input Error",
    "Invalid Type Error",
    "Mismatch Type Error",
    "Not implemented Error",
    "Out of Range Error",
    "Parser Error",
    "Syntax Error",
];

/// Errors of a statement that reached the memory limit of the engine or of its process.
const OUT_OF_MEMORY: [&str; 2] = ["Out of Memory Error", "std::bad_alloc"];

/// Beginning of the engine's advice to install an extension. None can be installed.
const INSTALL_ADVICE: &str = "Please try installing";

/// Exception of the engine, as it describes those in its streams of rows.
#[derive(Debug, Deserialize)]
struct Exception {
    exception_type: String,
    exception_message: String,
}

/// Converts an engine error of a statement.
pub(super) fn from_engine(error: duckdb::Error) -> Problem {
    from_message(error.to_string())
}

fn from_message(message: String) -> Problem {
    let message = match serde_json::from_str(&message) {
        Ok(Exception {
            exception_type: kind,
            exception_message: message,
        }) => format!("{kind} Error: {message}"),
        Err(_text) => message,
    };
    if MISTAKES.iter().any(|kind| message.starts_with(kind)) {
        return Problem::Wrong {
            message: without_paths(&message),
        };
    }
    if OUT_OF_MEMORY.iter().any(|kind| message.starts_with(kind)) {
        return Problem::TooMuchMemory;
    }
    Problem::Failed { reason: message }
}

/// Message of the parser, with the text at its position.
pub(super) fn with_position(message: &str, text: &str, position: Option<usize>) -> String {
    let rest = position.and_then(|position| text.get(position..));
    let near: Option<String> = rest.map(|rest| rest.chars().take(40).collect());
    match near.filter(|near| !near.is_empty()) {
        Some(near) => format!("{message}, at byte {}: {near}", position.unwrap_or(0)),
        None => message.to_owned(),
    }
}

/// Texts that no message may contain: the location of the database.
#[derive(Debug)]
pub(super) struct RedactedPaths(Vec<String>);

impl RedactedPaths {
    /// Redacts the path of this file, its folder and their canonical forms.
    pub(super) fn new(path: &Path) -> Self {
        let full = path.canonicalize().ok();
        let files = [Some(path), full.as_deref()].into_iter().flatten();
        let both = files.flat_map(|file| [Some(file), file.parent()]);
        let texts = both.flatten().map(|path| path.display().to_string());
        // A short path may be part of other words.
        let mut texts: Vec<String> = texts
            .filter(|text| text.contains('/') && text.len() > 1)
            .collect();
        texts.sort_by_key(|text| Reverse(text.len()));
        Self(texts)
    }

    /// Returns the error with redacted paths and credentials.
    pub(super) fn redact(&self, error: SqlError, secrets: &Hidden) -> SqlError {
        match error {
            SqlError::Wrong { message } => SqlError::Wrong {
                message: self
                    .0
                    .iter()
                    .fold(secrets.in_text(&message), |message, text| {
                        message.replace(text, "(path)")
                    }),
            },
            SqlError::Store(error) => SqlError::Store(secrets.in_error(error)),
            other => other,
        }
    }
}

/// Redacts every word that begins with a slash: file locations are not disclosed.
fn without_paths(message: &str) -> String {
    let is_path = |word: &str| {
        let bare = word.trim_end().trim_start_matches(['"', '\'', '(']);
        bare.len() > 1 && bare.starts_with('/') && !bare.starts_with("//")
    };
    let mut kept = String::with_capacity(message.len());
    let message = message.split(INSTALL_ADVICE).next().unwrap_or(message);
    for word in message.trim().split_inclusive([' ', '\n']) {
        if is_path(word) {
            kept.push_str("(path) ");
        } else {
            kept.push_str(word);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        Hidden, Problem, RedactedPaths, SqlError, from_message, with_position, without_paths,
    };

    #[test]
    fn paths_are_redacted_and_other_text_is_kept() {
        let message =
            "Binder Error: no \"/var/lib/echo/fleet.duckdb\" here\nLINE 1: SELECT a / b, c // d";
        let kept = "Binder Error: no (path) here\nLINE 1: SELECT a / b, c // d";
        assert_eq!(without_paths(message), kept);
    }

    #[test]
    fn exceptions_in_streams_of_rows_are_those_of_statements() {
        let exception = |kind| format!(r#"{{"exception_type":"{kind}","exception_message":"x"}}"#);
        assert!(matches!(
            from_message(exception("Out of Memory")),
            Problem::TooMuchMemory
        ));
        let wrong = from_message(exception("Conversion"));
        assert!(matches!(wrong, Problem::Wrong { message } if message == "Conversion Error: x"));
    }

    #[test]
    fn the_database_path_is_redacted_inside_words() {
        let hidden = RedactedPaths::new(Path::new("/var/lib/my data/fleet.duckdb"));
        let message = "no a=/var/lib/my data/fleet.duckdb.wal,b=/var/lib/my data/x or c/d";
        let message = message.to_owned();
        let error = hidden.redact(SqlError::Wrong { message }, &Hidden::default());
        assert_eq!(error.to_string(), "no a=(path).wal,b=(path)/x or c/d");
    }

    #[test]
    fn syntax_errors_show_their_position() {
        assert_eq!(
            with_position("syntax error", "select ä from", Some(7)),
            "syntax error, at byte 7: ä from"
        );
        assert_eq!(with_position("syntax error", "ä", Some(1)), "syntax error");
        assert_eq!(with_position("syntax error", "", None), "syntax error");
    }
}
