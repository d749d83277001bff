//! Connection to a lake: an engine in memory with the extensions and the credentials, whose
//! settings are locked before anything else runs on it.

use std::fmt;
use std::path::{Path, PathBuf};

use duckdb::{Config, Connection, Params};

use crate::error::LakeError;
use crate::location::{Catalog, LakeConfig, Secrets, quoted};

/// Name of the attached lake.
pub(crate) const LAKE: &str = "lake";

/// Name of the database with the tables of the catalog, as the extension calls it.
pub(crate) const CATALOG: &str = "__ducklake_metadata_lake";

/// Threads of the engine: detection and ingest need the others.
const THREADS: i64 = 2;

/// Folder that does not exist: keys that an account has stored for DuckDB are not used. Without any,
/// the extension for `PostgreSQL` does not connect.
pub(crate) const NO_FOLDER: &str = "/proc/self/no-secrets";

/// Whether rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads only.
    Read,
    /// Reads and writes.
    Write,
}

/// Connection to a lake.
pub(crate) struct Session {
    /// Connection.
    pub(crate) connection: Connection,
    secrets: Secrets,
    /// Whether the catalog is in `PostgreSQL`.
    pub(crate) is_postgres: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Connects; `application` is the name that `PostgreSQL` shows for the connection.
    pub(crate) fn open(
        config: &LakeConfig,
        application: &str,
        access: Access,
    ) -> Result<Self, LakeError> {
        let catalog = config.catalog()?;
        let keys = config.keys()?;
        let data = config.data_path()?;
        let is_postgres = matches!(catalog, Catalog::Postgres(_));
        let session = Self {
            connection: engine(config)?,
            secrets: Secrets::new(&catalog, &keys),
            is_postgres,
        };
        session.load(&config.extensions, "ducklake")?;
        if is_postgres {
            session.load(&config.extensions, "postgres_scanner")?;
        }
        if config.is_remote() {
            session.load(&config.extensions, "httpfs")?;
            session.run("reading the keys", &keys.create(&data))?;
        }
        let read_only = match access {
            Access::Read => ", READ_ONLY",
            Access::Write => "",
        };
        let attach = format!(
            "SET GLOBAL allowed_directories = [{data}];
             ATTACH {address} AS {LAKE} (DATA_PATH {data}, DATA_INLINING_ROW_LIMIT 0{read_only});
             SET GLOBAL enable_external_access = false;
             SET GLOBAL lock_configuration = true",
            data = quoted(&data),
            address = quoted(&catalog.address(application)),
        );
        session.run("connecting", &attach)?;
        Ok(session)
    }

    /// Runs statements; `doing` names them in errors.
    pub(crate) fn run(&self, doing: &'static str, sql: &str) -> Result<(), LakeError> {
        let done = self.connection.execute_batch(sql);
        done.map_err(|error| self.error(doing, &error))
    }

    /// Runs a statement and returns the number of changed rows.
    pub(crate) fn change(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
    ) -> Result<u64, LakeError> {
        let changed = self.connection.execute(sql, params);
        let changed = changed.map_err(|error| self.error(doing, &error))?;
        Ok(u64::try_from(changed).unwrap_or(u64::MAX))
    }

    /// Returns the rows of a query.
    pub(crate) fn rows<T>(
        &self,
        doing: &'static str,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&duckdb::Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>, LakeError> {
        let rows = || -> duckdb::Result<Vec<T>> {
            let mut statement = self.connection.prepare(sql)?;
            statement.query_map(params, read)?.collect()
        };
        rows().map_err(|error| self.error(doing, &error))
    }

    /// Returns what ends the statement that is running.
    pub(crate) fn interrupt(&self) -> impl Fn() + Send + use<> {
        let handle = self.connection.interrupt_handle();
        move || handle.interrupt()
    }

    /// Ends a transaction that a failed statement has left open.
    pub(crate) fn roll_back(&self) {
        // It fails if there is none.
        let _ended = self.connection.execute_batch("ROLLBACK");
    }

    /// Converts an error of the engine.
    pub(crate) fn error(&self, doing: &'static str, error: &duckdb::Error) -> LakeError {
        LakeError::Engine {
            doing,
            reason: self.secrets.hide(&error.to_string()),
        }
    }

    fn load(&self, folder: &Path, name: &str) -> Result<(), LakeError> {
        let file = extension(folder, name)?;
        let load = format!("LOAD {}", quoted(&file.display().to_string()));
        self.run("loading an extension", &load)
    }
}

/// Returns the file of an extension.
pub(crate) fn extension(folder: &Path, name: &str) -> Result<PathBuf, LakeError> {
    let file = folder.join(format!("{name}.duckdb_extension"));
    if file.is_file() {
        return Ok(file);
    }
    Err(LakeError::Setting(format!(
        "no extension {}: `echo/get-duckdb --extensions` prints a folder with it, for --duckdb-extensions",
        file.display()
    )))
}

/// Opens an engine without a file, which fetches nothing by itself.
#[expect(
    clippy::disallowed_methods,
    reason = "an engine of its own, so that SQL of users sees neither lake nor credentials"
)]
fn engine(config: &LakeConfig) -> Result<Connection, LakeError> {
    let open = || -> duckdb::Result<Connection> {
        let scratch = config.scratch.as_deref().map(Path::to_string_lossy);
        let memory = format!("{}B", config.memory_bytes);
        let settings = Config::default()
            .with("autoinstall_known_extensions", "false")?
            .with("autoload_known_extensions", "false")?
            .with("secret_directory", NO_FOLDER)?
            .with("memory_limit", memory)?
            .with("temp_directory", scratch.as_deref().unwrap_or_default())?
            .threads(THREADS)?;
        Connection::open_in_memory_with_flags(settings)
    };
    open().map_err(|error| LakeError::Engine {
        doing: "starting the engine",
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::thread;

    use super::*;
    use crate::location::CatalogSource;
    use crate::stop::Stop;

    #[test]
    fn a_statement_that_is_running_ends_with_its_thread() {
        let config = LakeConfig {
            catalog: CatalogSource::Text(String::new()),
            data: String::new(),
            keys: None,
            extensions: PathBuf::new(),
            scratch: None,
            memory_bytes: 1 << 28,
        };
        let session = Session {
            connection: engine(&config).unwrap(),
            secrets: Secrets::default(),
            is_postgres: false,
        };
        let stop = Stop::default();
        stop.set_interrupt(session.interrupt());
        let ending = stop.clone();
        let thread = thread::spawn(move || {
            let endless =
                "SELECT sum(a.range * b.range) FROM range(1000000000) a, range(1000000000) b";
            let interrupted = session.run("merging", endless);
            ending.end();
            interrupted
        });
        assert!(stop.interrupt_until_end(600));
        let error = thread.join().unwrap().unwrap_err().to_string();
        assert!(error.to_lowercase().contains("interrupt"), "{error}");
    }
}
