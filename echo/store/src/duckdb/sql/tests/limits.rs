//! Limits of results, deadlines, and JSON values.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Lab, query};
use crate::EventStore;
use crate::sql::{SqlError, SqlQuery, Truncation};

#[tokio::test(flavor = "multi_thread")]
async fn values_are_lossless_json() {
    let lab = Lab::new().await;
    for (sql, kind, value) in [
        ("1::TINYINT", "TINYINT", json!(1)),
        ("9007199254740993", "BIGINT", json!("9007199254740993")),
        (
            "18446744073709551615::UBIGINT",
            "UBIGINT",
            json!("18446744073709551615"),
        ),
        ("1::HUGEINT", "HUGEINT", json!("1")),
        (
            "170141183460469231731687303715884105727::HUGEINT",
            "HUGEINT",
            json!("170141183460469231731687303715884105727"),
        ),
        ("1.10::DECIMAL(4, 2)", "DECIMAL(4,2)", json!("1.10")),
        ("0.1::FLOAT", "FLOAT", json!(0.1)),
        ("1e300", "DOUBLE", json!(1e300)),
        ("'nan'::DOUBLE", "DOUBLE", json!("NaN")),
        ("'-inf'::DOUBLE", "DOUBLE", json!("-inf")),
        ("TRUE", "BOOLEAN", json!(true)),
        ("NULL", "INTEGER", Value::Null),
        ("NULL::VARCHAR", "VARCHAR", Value::Null),
        ("'ä\"'", "VARCHAR", json!("ä\"")),
        (
            "TIMESTAMP '2026-11-01 12:00:00.5'",
            "TIMESTAMP",
            json!("2026-11-01T12:00:00.5Z"),
        ),
        (
            "make_timestamp_ns(1793534400000000001)",
            "TIMESTAMP_NS",
            json!("2026-11-01T12:00:00.000000001Z"),
        ),
        (
            "'2026-11-01 12:00:00+00'::TIMESTAMPTZ",
            "TIMESTAMP WITH TIME ZONE",
            json!("2026-11-01T12:00:00Z"),
        ),
        ("DATE '2026-11-01'", "DATE", json!("2026-11-01")),
        ("[1, NULL]", "INTEGER[]", json!([1, null])),
        (
            "{'a': 1, 'b': 'x'}",
            "STRUCT(a INTEGER, b VARCHAR)",
            json!({"a": 1, "b": "x"}),
        ),
        (
            "'7d24b94c-7a4e-4b5e-8a3f-111111111111'::UUID",
            "UUID",
            json!("7d24b94c-7a4e-4b5e-8a3f-111111111111"),
        ),
    ] {
        let table = lab.run(&format!("SELECT {sql} AS v")).await.expect(sql);
        assert_eq!(table.columns[0].kind, kind, "{sql}");
        assert_eq!(table.rows, [[value]], "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_outside_of_the_calendar_are_strings() {
    let lab = Lab::new().await;
    for (sql, kind, value) in [
        ("'infinity'::TIMESTAMP", "TIMESTAMP", json!("infinity")),
        (
            "'-infinity'::TIMESTAMPTZ",
            "TIMESTAMP WITH TIME ZONE",
            json!("-infinity"),
        ),
        ("'-infinity'::DATE", "DATE", json!("-infinity")),
        ("'infinity'::DATE", "DATE", json!("infinity")),
        (
            "TIMESTAMP '290000-12-31'",
            "TIMESTAMP",
            json!("9089380396800000000"),
        ),
    ] {
        let table = lab.run(&format!("SELECT {sql} AS v")).await.expect(sql);
        assert_eq!(table.columns[0].kind, kind, "{sql}");
        assert_eq!(table.rows, [[value]], "{sql}");
    }
}

/// Independent of the time zone of the process.
#[tokio::test(flavor = "multi_thread")]
async fn timestamps_as_text_are_in_utc() {
    let lab = Lab::new().await;
    let noon = "SELECT '2026-11-01 12:00:00+00'::TIMESTAMPTZ::VARCHAR AS v";
    let table = lab.run(noon).await.unwrap();
    assert_eq!(table.rows, [[json!("2026-11-01 12:00:00+00")]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_argument_values_are_errors_of_the_statement() {
    let lab = Lab::new().await;
    for sql in [
        "'a' LIKE '%' ESCAPE '%'",
        "time_bucket(INTERVAL '0 seconds', now())",
        "1 % (SELECT count(*) FROM ranks WHERE FALSE)::DECIMAL(4, 2) + 'x'::INTEGER",
        "make_date(2026, 13, 1)",
        "'[' ~ '['",
    ] {
        let answer = lab.run(&format!("SELECT {sql}")).await;
        assert!(
            matches!(answer, Err(SqlError::Wrong { .. })),
            "{sql}: {answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_keep_their_names_and_order() {
    let lab = Lab::new().await;
    let table = lab.run("SELECT 1 AS a, 2 AS b, 3 AS a").await.unwrap();
    let names: Vec<&str> = table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "a"]);
    let sorted = lab.run("SELECT 1 AS a, 2 AS a ORDER BY 1").await.unwrap();
    assert_eq!(
        (&*sorted.columns[0].name, &*sorted.columns[1].name),
        ("a", "a")
    );
    let none = lab.run("SELECT rank FROM ranks WHERE FALSE").await.unwrap();
    assert_eq!(
        (none.columns.len(), none.rows.len(), none.cut),
        (1, 0, None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_truncated_by_rows_and_by_bytes() {
    let lab = Lab::new().await;
    let run = |text: &str, max_rows, max_bytes| {
        let query = SqlQuery {
            max_rows,
            max_bytes,
            ..query(text)
        };
        lab.store.run_sql(query)
    };
    let numbers = "SELECT * FROM range(1000) AS t(i)";
    let whole = run(numbers, 1000, 1 << 20).await.unwrap();
    assert_eq!((whole.rows.len(), whole.cut), (1000, None));
    let rows = run(numbers, 10, 1 << 20).await.unwrap();
    assert_eq!((rows.rows.len(), rows.cut), (10, Some(Truncation::Rows)));
    let bytes = run(numbers, 1000, 40).await.unwrap();
    assert_eq!((bytes.rows.len(), bytes.cut), (10, Some(Truncation::Bytes)));
    let none = run("SELECT 'a longer text'", 10, 4).await.unwrap();
    assert_eq!((none.rows.len(), none.cut), (0, Some(Truncation::Bytes)));
    // The last rows of a long table are never computed.
    let endless = "SELECT a.i FROM range(1000000) a(i), range(1000000) b, range(1000000) c";
    let endless = run(endless, 3, 1 << 20).await.unwrap();
    assert_eq!(
        (endless.rows.len(), endless.cut),
        (3, Some(Truncation::Rows))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_table_has_the_first_rows_in_sort_order() {
    let lab = Lab::new().await;
    for text in [
        "SELECT i FROM range(100000) AS t(i) ORDER BY i DESC",
        "SELECT i FROM range(100000) AS t(i) ORDER BY i DESC;",
        "SELECT i FROM range(100000) AS t(i) ORDER BY i DESC -- the last first",
        "SELECT i FROM range(100000) AS t(i) ORDER BY i DESC; -- the last first",
    ] {
        let table = lab.run(text).await.unwrap();
        assert_eq!(table.rows.first(), Some(&vec![json!(99_999)]), "{text}");
        assert_eq!(
            (table.rows.len(), table.cut),
            (200, Some(Truncation::Rows)),
            "{text}"
        );
    }
}

const LONG: &str = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_stopped_at_its_deadline() {
    let lab = Lab::new().await;
    let deadline = Duration::from_millis(100);
    let query = SqlQuery {
        deadline,
        ..query(LONG)
    };
    let error = lab.store.run_sql(query).await.unwrap_err();
    assert!(matches!(error, SqlError::Timeout { .. }), "{error:?}");
    assert_eq!(lab.run("SELECT 1").await.unwrap().rows, [[json!(1)]]);
}

/// Processes of statements that this process has started and that still run.
fn processes() -> usize {
    let own = std::process::id().to_string();
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = fs::read_to_string(entry.unwrap().path().join("stat")).ok()?;
        // The name is in brackets; state and parent follow.
        let after = stat.rsplit_once(") ")?.1.to_owned();
        let mut words = after.split(' ');
        let (state, parent) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((state, parent))
    });
    let running = stats.filter(|(state, parent)| *parent == own && state != "Z");
    running.count()
}

/// Waits until no process of a statement is left.
pub(super) async fn wait_for_no_process() {
    while processes() > 0 {
        tokio::task::yield_now().await;
    }
}

/// One row whose comparison takes for ever and cannot be interrupted.
fn endless_pattern() -> String {
    format!("SELECT '{}' LIKE '{}z'", "a".repeat(4_000), "%_".repeat(40))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_cannot_be_interrupted_is_stopped_at_its_deadline() {
    let lab = Lab::new().await;
    let query = SqlQuery {
        deadline: Duration::from_secs(2),
        ..query(&endless_pattern())
    };
    let error = lab.store.run_sql(query).await.unwrap_err();
    assert!(matches!(error, SqlError::Timeout { .. }), "{error:?}");
    wait_for_no_process().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_cannot_be_interrupted_leave_places_for_others() {
    let lab = Lab::new().await;
    let endless = || async {
        let query = SqlQuery {
            deadline: Duration::from_secs(5),
            ..query(&endless_pattern())
        };
        lab.store.run_sql(query).await
    };
    let others = async {
        for _ in 0..10 {
            assert_eq!(lab.run("SELECT 1").await.unwrap().rows, [[json!(1)]]);
        }
    };
    let ((), one, other) = tokio::join!(others, endless(), endless());
    for answer in [one, other] {
        assert!(
            matches!(answer, Err(SqlError::Timeout { .. })),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_without_a_caller_is_stopped() {
    let lab = Lab::new().await;
    let query = SqlQuery {
        deadline: Duration::from_hours(1),
        ..query(LONG)
    };
    let long = lab.store.run_sql(query);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), long)
            .await
            .is_err()
    );
    wait_for_no_process().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_long_statements_run_concurrently_and_a_fifth_is_refused() {
    let lab = Lab::new().await;
    let long = || {
        let query = SqlQuery {
            deadline: Duration::from_hours(1),
            ..query(LONG)
        };
        lab.store.run_sql(query)
    };
    let refused = tokio::select! {
        answer = long() => answer,
        answer = long() => answer,
        answer = long() => answer,
        answer = long() => answer,
        answer = long() => answer,
    };
    assert!(
        matches!(refused, Err(SqlError::Overloaded { most: 4 })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_much_memory_is_stopped_and_others_continue() {
    let lab = Lab::new().await;
    let greedy = "SELECT length(list(a.i)) FROM range(1000000) a(i), range(1000000) b";
    let query = SqlQuery {
        deadline: Duration::from_mins(1),
        ..query(greedy)
    };
    let error = lab.store.run_sql(query).await.unwrap_err();
    assert!(matches!(error, SqlError::TooMuchMemory), "{error:?}");
    assert_eq!(lab.run("SELECT 1").await.unwrap().rows, [[json!(1)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_statement_does_not_keep_the_store_open() {
    let lab = Lab::new().await;
    let query = SqlQuery {
        deadline: Duration::from_hours(1),
        ..query(LONG)
    };
    let closing = async {
        while processes() == 0 {
            tokio::task::yield_now().await;
        }
        lab.store.close().await
    };
    let (stopped, closed) = tokio::join!(lab.store.run_sql(query), closing);
    assert!(matches!(stopped, Err(SqlError::Store(_))), "{stopped:?}");
    closed.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_runs_no_statements() {
    let lab = Lab::new().await;
    lab.store.close().await.unwrap();
    let error = lab.run("SELECT 1").await.unwrap_err();
    assert!(matches!(error, SqlError::Store(_)), "{error:?}");
}
