#![expect(
    clippy::significant_drop_tightening,
    reason = "a store lives to the end of its test"
)]

mod beside_writer;
mod block_views;
mod callers;
mod corpus;
mod fuzz;
mod limits;
mod long;
mod made;

use std::fs;
use std::path::Path;
use std::time::Duration;

use echo_core::model::event::Reading;
use echo_sql_guard::PARSE;
use serde_json::Value;
use tempfile::TempDir;

use crate::EventStore;
use crate::contract::sample::{
    at, batch, gauge, incident, incidents, losses, lost, origin, policy, wait,
};
use crate::duckdb::connection_pool::Reader;
use crate::duckdb::engine::EngineResult;
use crate::duckdb::{DuckDbConfig, DuckDbStore};
use crate::limits::Amount;
use crate::sql::{SqlError, SqlQuery, SqlTable};

/// Deadline of statements in these tests: the default of a server.
const DEADLINE: Duration = Duration::from_secs(10);

/// Store with rows in every table, and a file beside it that statements must not read.
pub(super) struct Lab {
    /// Store.
    pub(super) store: DuckDbStore,
    /// Folder of the store.
    pub(super) folder: TempDir,
}

impl Lab {
    /// Creates the store.
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("canary")).unwrap();
        fs::write(folder.path().join("canary/secret.txt"), "a,b\n1,2\n").unwrap();
        let config = DuckDbConfig {
            memory_limit: Amount::Bytes(1_000_000_000),
            checkpoint_every: Duration::from_hours(1),
            ..DuckDbConfig::new(folder.path().join("echo.db"))
        };
        let clock = echo_core::clock::ManualClock::at(at(60_000));
        let store = DuckDbStore::open(&config, std::sync::Arc::new(clock)).unwrap();
        let events = (0..400).flat_map(|number| {
            let rank = origin("prod", &format!("node-{}", number % 8), number % 8);
            let period = Reading::Double(40.0);
            [
                wait(&rank, 1_000 + number),
                gauge(&rank, "fleet.rank.period_ms", 1_000 + number, period),
            ]
        });
        store.append(batch(1, events.collect())).await.unwrap();
        let found = incidents([incident(1, "prod", 1_000, 2_000)]);
        store.store_verdicts(found).await.unwrap();
        let lost = losses([lost(1, "prod", "node-1", (1_000, 2_000))]);
        store.store_verdicts(lost).await.unwrap();
        let policies = echo_core::model::detector_output::DetectorOutput {
            policies: vec![policy("prod", 1)],
            ..Default::default()
        };
        store.store_verdicts(policies).await.unwrap();
        Self { store, folder }
    }

    /// Runs a statement.
    pub(super) async fn run(&self, text: &str) -> Result<SqlTable, SqlError> {
        self.store.run_sql(query(text)).await
    }

    /// Contents of every table, the catalog, and the folder.
    pub(super) async fn state(&self) -> Vec<String> {
        let contents = self.store.readers.run("testing", contents).await;
        let mut state = contents.unwrap();
        state.extend(files(self.folder.path()));
        state
    }
}

/// Query with the limits of these tests.
pub(super) fn query(text: &str) -> SqlQuery {
    SqlQuery {
        text: text.to_owned(),
        max_rows: 200,
        max_bytes: 48 * 1024,
        deadline: DEADLINE,
    }
}

fn contents(reader: &Reader) -> EngineResult<Vec<String>> {
    let connection = &reader.connection;
    let texts = |sql: &str| -> EngineResult<Vec<String>> {
        let mut statement = connection.prepare(sql)?;
        statement.query_map([], |row| row.get(0))?.collect()
    };
    let mut state = texts(
        "SELECT concat_ws(' ', 'table', table_name, sql) FROM duckdb_tables()
         UNION ALL SELECT concat_ws(' ', 'view', view_name, sql, comment) FROM duckdb_views() WHERE NOT internal
         UNION ALL SELECT 'sequence ' || sequence_name FROM duckdb_sequences()
         UNION ALL SELECT 'macro ' || function_name FROM duckdb_functions() WHERE NOT internal
         UNION ALL SELECT 'type ' || type_name FROM duckdb_types() WHERE NOT internal
         UNION ALL SELECT 'database ' || database_name FROM duckdb_databases()
         UNION ALL SELECT concat_ws(' ', 'setting', name, value) FROM duckdb_settings()
         ORDER BY 1",
    )?;
    for table in texts("SELECT table_name FROM duckdb_tables() ORDER BY 1")? {
        let sql = format!(
            "SELECT concat_ws(' ', '{table}', count(*), sum(hash({table}::VARCHAR)::HUGEINT)) FROM {table}"
        );
        state.extend(texts(&sql)?);
    }
    Ok(state)
}

/// Names and contents of files in a folder; for the database only the name.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            // Temporary files of the engine disappear with the statement.
            if path.extension() != Some("tmp".as_ref()) {
                found.extend(files(&path));
            }
        } else if name.contains("canary") {
            found.push(format!("{name} {}", fs::read_to_string(&path).unwrap()));
        } else if !name.ends_with(".ballast") {
            // The ballast is removed when the disk is nearly full, whatever fills it.
            found.push(name);
        }
    }
    found.sort();
    found
}

impl Lab {
    /// First column of the result of a query that the guard would refuse.
    pub(super) async fn names(&self, sql: &'static str) -> Vec<String> {
        let read = move |reader: &Reader| {
            let mut statement = reader.connection.prepare(sql)?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        self.store.readers.run("testing", read).await.unwrap()
    }

    /// Tree that the engine's parser builds from a text.
    pub(super) async fn tree(&self, text: &str) -> Value {
        let text = text.to_owned();
        let read = move |reader: &Reader| {
            let tree = reader
                .connection
                .query_row(PARSE, [&text], |row| row.get(0));
            tree.map(|tree: String| serde_json::from_str(&tree).unwrap())
        };
        self.store.readers.run("testing", read).await.unwrap()
    }
}
