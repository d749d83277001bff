//! Opens the engine: inspects the file before changing it, and locks the settings before other
//! connections exist.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use duckdb::{AccessMode, Config, Connection};
use echo_core::clock::Clock;

use crate::StoreError;
use crate::duckdb::acknowledged::Acknowledged;
use crate::duckdb::engine::{EngineResult, engine, unreadable};
use crate::duckdb::fatal::{OpenFailure, first_line};
use crate::duckdb::lock::beside;
use crate::duckdb::migrations::Migration;
use crate::duckdb::rows::{identity, schema};
use crate::duckdb::{DuckDbConfig, lake_source, memory, migrate};
use crate::limits::Amount;

/// WAL size at which a commit checkpoints by itself; the timer should always be earlier.
const CHECKPOINT_THRESHOLD: &str = "1GB";

/// Maximum number of merges per table in a checkpoint: writes are blocked meanwhile.
const MERGES: &str = "1";

/// Error of the engine for a file that another process has open.
const LOCKED_BY_OTHER: &str = "Could not set lock on file";

/// Maximum size of temporary files for sorts and joins.
const SPILL: &str = "1GB";

/// Formats timestamps in UTC wherever the process runs. Only an engine without time zones lacks the
/// setting.
const UTC: &str = "SET GLOBAL TimeZone = 'UTC'";

/// Open database.
#[derive(Debug)]
pub(super) struct Opened {
    /// Connection that the others are cloned from.
    pub(super) connection: Connection,
    /// Memory limit of the engine, bytes.
    pub(super) memory: u64,
    /// Record of the last acknowledged event.
    pub(super) acknowledged: Acknowledged,
}

/// What a database was before anything changed it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inspected {
    /// Version of its schema; 0 if it is absent or empty.
    pub(super) version: i64,
    /// Number of its last event; `None` with an older schema, which may lack the tables that tell it.
    last_event: Option<u64>,
}

/// Opens the database for reading and writing and migrates its schema. The caller holds the lock.
pub(super) fn open(
    path: &Path,
    config: &DuckDbConfig,
    migrations: &[Migration],
    clock: &dyn Clock,
) -> Result<Opened, StoreError> {
    // A database of a later version must not be changed, and opening it for writing would replay
    // its WAL into it.
    let Inspected {
        version,
        last_event,
    } = inspect(path, migrations)?;
    // Before the engine opens it for writing: then a log that was cut off would be gone.
    let acknowledged = Acknowledged::open(path, last_event)?;
    let unreadable = |error: duckdb::Error| unreadable(path, error.to_string());
    let memory = memory(config.memory_limit)?;
    let settings = settings(config, memory).map_err(unreadable)?;
    let mut connection = connect(path, settings)?;
    let _known = connection.execute_batch(UTC);
    migrate::apply(&mut connection, version, migrations, clock)?;
    if let Some(source) = &config.lake {
        lake_source::attach(&connection, source)?;
    }
    close_off(&connection).map_err(unreadable)?;
    Ok(Opened {
        connection,
        memory,
        acknowledged,
    })
}

/// Opens a database for reading while another process writes it, with a limit on memory, bytes. The caller has made
/// sure that the file is not changed meanwhile and that locks of files are refused. `attach` attaches a lake.
pub(super) fn beside_writer(
    path: &Path,
    memory: u64,
    attach: Option<&str>,
) -> Result<Connection, StoreError> {
    let unreadable = |error: duckdb::Error| unreadable(path, error.to_string());
    // The server that writes needs the other cores. A server that only reads a lake leaves all of them to statements.
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = attach.map_or(1, |_lake| cores());
    let settings = offline(Config::default())
        .and_then(|settings| settings.access_mode(AccessMode::ReadOnly))
        .and_then(|settings| settings.max_memory(&format!("{memory} bytes")))
        .and_then(|settings| settings.with("threads", threads.to_string()))
        .and_then(|settings| settings.with("temp_directory", ""));
    let connection = connect(path, settings.map_err(unreadable)?)?;
    let _known = connection.execute_batch(UTC);
    if let Some(attach) = attach {
        let attached = connection.execute_batch(attach);
        attached.map_err(engine("attaching the lake"))?;
    }
    close_off(&connection).map_err(unreadable)?;
    Ok(connection)
}

/// Has the engine open no other files and keep its settings.
fn close_off(connection: &Connection) -> EngineResult<()> {
    connection.execute_batch("SET enable_external_access = false; SET lock_configuration = true")
}

/// Memory limit of the engine, bytes.
fn memory(limit: Amount) -> Result<u64, StoreError> {
    if let Amount::Bytes(bytes) = limit {
        return Ok(bytes);
    }
    let total = memory::total().ok_or_else(|| StoreError::Engine {
        doing: "reading the memory size",
        reason: "the system does not report it; set the limit in bytes, such as 2GB".to_owned(),
    })?;
    Ok(limit.bytes_of(total))
}

/// Checks without writing that the database is absent, empty or has a supported schema.
pub(super) fn inspect(path: &Path, migrations: &[Migration]) -> Result<Inspected, StoreError> {
    if fs::symlink_metadata(path).is_err() {
        // The engine would delete a WAL without database, and with it everything not checkpointed.
        return match fs::symlink_metadata(beside(path, ".wal")) {
            Ok(_) => Err(unreadable(
                path,
                "it is missing, but its write-ahead log exists; restore both or remove the log"
                    .to_owned(),
            )),
            Err(_absent) => Ok(Inspected {
                version: 0,
                last_event: Some(0),
            }),
        };
    }
    let connection = read_only(path)?;
    let version = migrate::version(&connection, path, migrations)?;
    let last_event = match version {
        0 => Some(0),
        _ => identity::last_event(&connection).ok(),
    };
    Ok(Inspected {
        version,
        last_event,
    })
}

/// Opens the database for reading. Its log is read, too, and left unchanged.
pub(super) fn read_only(path: &Path) -> Result<Connection, StoreError> {
    let unreadable = |error: duckdb::Error| unreadable(path, error.to_string());
    let settings = offline(Config::default())
        .and_then(|settings| settings.access_mode(AccessMode::ReadOnly))
        .map_err(unreadable)?;
    connect(path, settings)
}

/// Replays the log of a copy into the copy.
pub(super) fn fold_log(copy: &Path) -> Result<(), StoreError> {
    let failed = |error: duckdb::Error| unreadable(copy, error.to_string());
    let connection = connect(copy, offline(Config::default()).map_err(failed)?)?;
    connection.execute_batch(schema::CHECKPOINT).map_err(failed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the database is opened, under its lock"
)]
fn connect(path: &Path, settings: Config) -> Result<Connection, StoreError> {
    Connection::open_with_flags(path, settings).map_err(|error| {
        let reason = error.to_string();
        // Other programs do not use Echo's lock, and the engine has no error code for this.
        if reason.contains(LOCKED_BY_OTHER) {
            return StoreError::Locked {
                path: path.display().to_string(),
                holder: format!("another program ({})", reason.trim()),
            };
        }
        match OpenFailure::from_message(&reason) {
            OpenFailure::NoSpace => StoreError::Fatal {
                reason: first_line(&reason),
            },
            OpenFailure::Log => StoreError::DamagedLog {
                path: path.display().to_string(),
                reason: first_line(&reason),
            },
            OpenFailure::Other => unreadable(path, first_line(&reason)),
        }
    })
}

fn settings(config: &DuckDbConfig, memory: u64) -> duckdb::Result<Config> {
    // One core is left to the writer and to decoding. A second thread on two cores was measured to
    // cost ingest a seventh.
    let threads = config.threads.unwrap_or_else(|| {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        cores.saturating_sub(1).max(1)
    });
    offline(Config::default())?
        .access_mode(AccessMode::ReadWrite)?
        .max_memory(&format!("{memory} bytes"))?
        .with("threads", threads.to_string())?
        .with("checkpoint_threshold", CHECKPOINT_THRESHOLD)?
        .with("max_vacuum_tasks", MERGES)?
        // Memory used by a query is returned to the system within seconds: by the allocator, and by
        // idle threads where there are any.
        .with("allocator_background_threads", "true")?
        .with("allocator_flush_threshold", "1MB")?
        .with("max_temp_directory_size", SPILL)
}

/// Disables downloads: the extensions that Echo needs are linked in.
fn offline(settings: Config) -> duckdb::Result<Config> {
    settings.enable_autoload_extension(false)
}
