use std::time::Duration;

use echo_core::error::{Code, Coded};
use echo_sql_guard::refusal::Refusal;
use echo_sql_guard::views::PUBLISHED;
use echo_store::StoreError;
use echo_store::sql::{SqlColumn, SqlError, SqlTable, Truncation};
use serde_json::{Value, json};

use super::{Analysis, RowLimits, RunAnalysis};
use crate::registry::Registry;
use crate::tool::Tool;
use crate::{ToolError, fixture};

fn table(cut: Option<Truncation>) -> SqlTable {
    SqlTable {
        columns: vec![SqlColumn {
            name: "rank".to_owned(),
            kind: "UINTEGER".to_owned(),
        }],
        rows: vec![vec![json!(1)], vec![Value::Null]],
        cut,
        elapsed: Duration::from_micros(1_234),
    }
}

fn limits(max_rows: usize, max_bytes: usize) -> RowLimits {
    RowLimits {
        max_rows,
        max_bytes,
    }
}

#[test]
fn a_truncated_answer_has_a_note_on_how_to_get_the_rest() {
    let whole = Analysis::from_table(table(None), limits(200, 1024));
    assert_eq!(
        serde_json::to_value(&whole).unwrap(),
        json!({
            "columns": [{ "name": "rank", "type": "UINTEGER" }],
            "rows": [[1], [null]],
            "row_count": 2,
            "truncated": false,
            "elapsed_ms": 1.234,
            "note": null,
        })
    );
    for (cut, limits, part) in [
        (Truncation::Rows, limits(2, 1024), "raise max_rows"),
        (
            Truncation::Rows,
            limits(10_000, 1024),
            "WHERE key > the last key",
        ),
        (Truncation::Bytes, limits(2, 1024), "raise max_bytes"),
        (
            Truncation::Bytes,
            limits(2, 4 << 20),
            "select fewer columns",
        ),
    ] {
        let answer = Analysis::from_table(table(Some(cut)), limits);
        let note = answer.note.unwrap();
        assert!(answer.truncated && note.contains(part), "{note}");
    }
}

#[test]
fn every_published_view_is_named_in_the_description() {
    for view in PUBLISHED {
        assert!(
            RunAnalysis::DESCRIPTION.contains(view.name),
            "{}",
            view.name
        );
    }
}

#[tokio::test]
async fn limits_outside_of_their_range_are_invalid() {
    let context = fixture::context().await;
    for (name, value) in [
        ("max_rows", 0),
        ("max_rows", 10_001),
        ("max_bytes", 10),
        ("max_bytes", 5 << 20),
    ] {
        let input = json!({ "sql": "SELECT 1", name: value });
        let answer = Registry::standard()
            .dispatch(&context, RunAnalysis::NAME, input)
            .await;
        let error = answer.unwrap_err();
        assert_eq!(error.code(), Code::Invalid, "{name} {value}");
        let pointer = &error.body()["error"]["details"][0]["pointer"];
        assert_eq!(pointer, &json!(format!("/{name}")));
    }
}

#[test]
fn every_sql_error_maps_to_its_code() {
    let deadline = Duration::from_secs(10);
    let failed = StoreError::Engine {
        doing: "running SQL",
        reason: "secret".to_owned(),
    };
    for (error, code) in [
        (SqlError::Refused(Refusal::new("a", "b")), Code::Refused),
        (SqlError::TooMuchMemory, Code::Refused),
        (
            SqlError::Wrong {
                message: "x".to_owned(),
            },
            Code::Invalid,
        ),
        (SqlError::Overloaded { most: 2 }, Code::Busy),
        (SqlError::Overtaken, Code::Busy),
        (SqlError::Timeout { deadline }, Code::Timeout),
        (SqlError::Store(failed), Code::Internal),
    ] {
        let kind = error.code();
        let error = ToolError::from(error);
        assert_eq!((kind, error.code()), (code, code), "{error}");
        assert!(!error.body().to_string().contains("secret"));
    }
}
