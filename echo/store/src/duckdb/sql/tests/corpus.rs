//! Statements that must be answered, and statements that must be refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use echo_core::error::{Code, Coded};
use echo_sql_guard;
use echo_sql_guard::functions;
use echo_sql_guard::views::{PRIVATE, PUBLISHED, is_private};
use serde_json::{Map, Value};

use super::fuzz::{CpuWaits, LATEST_STOP};
use super::{Lab, long, query};
use crate::EventStore;
use crate::sql::{SqlError, SqlQuery};

/// Statements of a file, each with its family.
pub(super) fn statements(file: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/sql");
    let text = fs::read_to_string(path.join(file)).unwrap();
    let mut family = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("-- ") {
            name.clone_into(&mut family);
        } else {
            found.push((family.clone(), line.to_owned()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_analysts_are_answered() {
    let lab = Lab::new().await;
    let mut unanswered = Vec::new();
    for (_, text) in statements("queries.sql") {
        match lab.run(&text).await {
            Ok(table) => assert!(!table.columns.is_empty(), "{text}"),
            Err(SqlError::Refused(refusal)) => {
                unanswered.push(format!("{text}\n    {refusal}: {}", refusal.hint));
            }
            Err(error) => unanswered.push(format!("{text}\n    {error}")),
        }
    }
    assert!(unanswered.is_empty(), "\n{}", unanswered.join("\n"));
}

/// Deadline of attacks: many run until then.
const SHORT: Duration = Duration::from_millis(500);

/// Families of statements that may run: they harm by what they cost only, which the limits of their process bound.
const COSTLY: [&str; 6] = [
    "series of WITH",
    "much of little",
    "patterns",
    "windows",
    "collected values",
    "more memory than a statement may take",
];

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::disallowed_methods,
    reason = "it is promised that an answer is there a second after the deadline"
)]
async fn attacks_are_refused_or_stopped_and_change_nothing() {
    let lab = Lab::new().await;
    let before = lab.state().await;
    let all = statements("attacks.sql").into_iter().map(|(family, text)| {
        let is_costly = COSTLY.contains(&family.as_str());
        (family, text, is_costly)
    });
    let long = long::attacks()
        .into_iter()
        .map(|(family, text)| (family, text, true));
    let attacks: Vec<_> = all.chain(long).collect();
    assert!(attacks.len() >= 120, "{}", attacks.len());
    let (mut answered, mut recent) = (Vec::new(), Vec::new());
    for (family, text, is_costly) in attacks {
        let start: String = text.chars().take(200).collect();
        let (started, waits) = (Instant::now(), CpuWaits::now());
        let query = SqlQuery {
            deadline: SHORT,
            ..query(&text)
        };
        let answer = lab.store.run_sql(query).await;
        let took = started.elapsed();
        let error = match answer {
            Ok(_) if is_costly => continue,
            Ok(_) => {
                answered.push(start);
                continue;
            }
            Err(error) => error,
        };
        assert!(
            took < SHORT + LATEST_STOP + waits.longest_since(),
            "{family}: {took:?} {start}"
        );
        match error {
            SqlError::Refused(refusal) => {
                assert!(
                    !refusal.reason.is_empty() && !refusal.hint.is_empty(),
                    "{start}"
                );
            }
            // A text that is not SQL is reported as such.
            SqlError::Wrong { message } => assert!(!message.is_empty(), "{start}"),
            // A valid statement that takes too much is stopped.
            SqlError::TooMuchMemory | SqlError::Timeout { .. } => {}
            other => panic!("{family}: {other:?} {start}"),
        }
        recent.push(start);
        // Comparing everything takes longer than refusing.
        if recent.len() >= 25 {
            assert_eq!(lab.state().await, before, "one of {recent:#?}");
            recent.clear();
        }
    }
    assert_eq!(lab.state().await, before, "one of {recent:#?}");
    assert_eq!(answered, Vec::<String>::new());
}

/// Adds an unknown field to every object of a tree, one at a time, and returns those that the guard
/// accepts.
fn let_through(
    text: &str,
    tree: &Value,
    change: impl Fn(&mut Map<String, Value>) -> bool,
) -> Vec<String> {
    let mut pointers = vec![String::new()];
    let mut found = Vec::new();
    while let Some(pointer) = pointers.pop() {
        match tree.pointer(&pointer).unwrap() {
            Value::Object(fields) => {
                pointers.extend(fields.keys().map(|name| format!("{pointer}/{name}")));
                let mut changed = tree.clone();
                let object = changed
                    .pointer_mut(&pointer)
                    .unwrap()
                    .as_object_mut()
                    .unwrap();
                if change(object) && echo_sql_guard::check(text, &changed).is_ok() {
                    found.push(format!("{text} at {pointer}"));
                }
            }
            Value::Array(items) => {
                pointers.extend((0..items.len()).map(|item| format!("{pointer}/{item}")));
            }
            _ => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_of_a_later_parser_are_refused() {
    let lab = Lab::new().await;
    let mut accepted = Vec::new();
    for (_, text) in statements("queries.sql") {
        let tree = lab.tree(&text).await;
        echo_sql_guard::check(&text, &tree).expect(&text);
        accepted.extend(let_through(&text, &tree, |fields| {
            fields.insert("of_a_later_version".to_owned(), Value::Null);
            true
        }));
        accepted.extend(let_through(&text, &tree, |fields| {
            let has_class = fields.get("class").is_some_and(Value::is_string);
            let name = if has_class { "class" } else { "type" };
            let is_named = fields.get(name).is_some_and(Value::is_string);
            if is_named {
                fields.insert(name.to_owned(), Value::from("OF_A_LATER_VERSION"));
            }
            is_named
        }));
    }
    assert!(
        accepted.is_empty(),
        "{}\n{}",
        accepted.len(),
        accepted.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_explain_how_to_correct_the_statement() {
    let lab = Lab::new().await;
    for (text, code, part) in [
        ("SELECT lag FROM verdicts", Code::Invalid, "lag_ms"),
        (
            "SELECT rank FROM verdict",
            Code::Refused,
            "verdict is not a published view",
        ),
        ("SELECT rank FORM verdicts", Code::Invalid, "at byte"),
        (
            "SELECT sum(node_id) FROM ranks",
            Code::Invalid,
            "sum(VARCHAR)",
        ),
        ("SELECT 'a'::INTEGER", Code::Invalid, "Could not convert"),
        ("SELECT repeat('x', 10)", Code::Refused, "function repeat"),
        ("DELETE FROM series", Code::Refused, "only SELECT"),
        ("SELECT 1; SELECT 2", Code::Refused, "2 statements"),
        (
            "SELECT 9223372036854775807 + 1",
            Code::Invalid,
            "Out of Range",
        ),
    ] {
        let error = lab.run(text).await.unwrap_err();
        assert_eq!(error.code(), code, "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[tokio::test]
async fn every_column_of_every_published_view_is_documented() {
    let lab = Lab::new().await;
    let views = lab.store.views().await.unwrap();
    assert_eq!(views.len(), PUBLISHED.len());
    for view in views {
        assert!(!view.comment.is_empty(), "{}", view.name);
        assert!(!view.columns.is_empty(), "{}", view.name);
        for column in view.columns {
            assert!(!column.comment.is_empty(), "{}.{}", view.name, column.name);
        }
    }
}

#[tokio::test]
async fn all_objects_in_the_database_are_published_or_private() {
    let lab = Lab::new().await;
    let names: Vec<String> = lab
        .names("SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal")
        .await;
    let known: BTreeSet<String> = PUBLISHED
        .iter()
        .map(|view| view.name.to_owned())
        .chain(PRIVATE.map(str::to_owned))
        .collect();
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), known);
    let of_the_engine = lab
        .names("SELECT view_name FROM duckdb_views() WHERE internal AND schema_name = 'main'")
        .await;
    for name in of_the_engine {
        assert!(
            is_private(&name),
            "{name} could be taken for a name of WITH"
        );
    }
}

/// A later version of the engine has other functions. Before accepting a new list, review the added
/// functions: none of them may be called unless it is added to the guard's own list.
#[tokio::test]
async fn the_functions_of_the_engine_match_the_reviewed_list() {
    let lab = Lab::new().await;
    let functions = lab
        .names("SELECT DISTINCT concat(function_type, ' ', function_name) FROM duckdb_functions() ORDER BY 1")
        .await;
    insta::assert_snapshot!(functions.join("\n"));
    let known: BTreeSet<&str> = functions
        .iter()
        .filter_map(|function| function.split_once(' '))
        .map(|(_, name)| name)
        .collect();
    // Some operators become functions in the binder, and windows in the grammar.
    let without: Vec<&str> = functions::names()
        .filter(|name| !known.contains(name))
        .collect();
    assert_eq!(without, Vec::<&str>::new());
}
