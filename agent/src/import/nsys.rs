//! `SQLite` exports of Nsight Systems: the rows of kernels, read from a file that is not trusted.
//!
//! The database is opened for reading. Only plain tables are read, without views and virtual
//! tables, which could run expressions of the file. Rows and their sizes are bounded.

use std::collections::BTreeMap;
use std::path::Path;

use fleet_import::nsys::{FileKernels, Gpu, Kernel, communicating_names};
use fleet_import::trace::RankTrace;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const NAMES: &str = "StringIds";
const RANGES: &str = "NVTX_EVENTS";
/// Bits of the number of a thread that are those of its process.
const PROCESS_MASK: i64 = !0xff_ffff;
/// Maximum number of kernels; an hour of training has some millions.
const MAX_KERNELS: usize = 200_000_000;
/// Maximum number of names that are kept; there are some hundred kernels that communicate, and a name a step.
const MAX_NAMES: usize = 1_000_000;
/// Maximum size of a row or text, bytes.
const MAX_ROW: i32 = 1 << 20;

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum NsysError {
    /// The database is damaged or has other columns.
    #[error("invalid export: {0}")]
    Database(#[from] rusqlite::Error),
    /// The database is not an export, or one without kernels.
    #[error("no table {0}: export with CUDA traced, nsys export --type sqlite")]
    NoTable(&'static str),
    /// The export is larger than any.
    #[error("more than {0}, more than any export")]
    TooLarge(&'static str),
}

/// Reads the operations of each GPU of an export.
pub fn read(path: &Path) -> Result<Vec<RankTrace>, NsysError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    database.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_ROW)?;
    database.pragma_update(None, "cell_size_check", true)?;
    for table in [KERNELS, NAMES] {
        if !has_table(&database, table)? {
            return Err(NsysError::NoTable(table));
        }
    }
    let patterns: Vec<String> = communicating_names()
        .map(|part| format!("%{part}%"))
        .collect();
    let names = names(&database, &patterns)?;
    let mut file = FileKernels::default();
    let has_process = has_column(&database, KERNELS, "globalPid")?;
    let process = if has_process { "globalPid" } else { "NULL" };
    // The short name of a kernel of DeepEP does not tell that it communicates.
    let has_whole = has_column(&database, KERNELS, "demangledName")?;
    let name = if has_whole {
        "demangledName"
    } else {
        "shortName"
    };
    let mut query = database.prepare(&format!(
        "SELECT start, \"end\", deviceId, streamId, {name}, {process} FROM {KERNELS}"
    ))?;
    let mut rows = query.query([])?;
    let mut n_kernels = 0;
    while let Some(row) = rows.next()? {
        n_kernels += 1;
        if n_kernels > MAX_KERNELS || !file.add(&kernel(row, &names)?) {
            return Err(NsysError::TooLarge("200 million kernels"));
        }
    }
    add_ranges(&database, &mut file)?;
    let node = text(
        &database,
        "TARGET_INFO_SYSTEM_ENV",
        "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' LIMIT 1",
    )?;
    let gpu_model = text(
        &database,
        "TARGET_INFO_GPU",
        "SELECT name FROM TARGET_INFO_GPU LIMIT 1",
    )?;
    Ok(file.finish(node.as_deref(), gpu_model.as_deref()))
}

fn kernel<'n>(row: &Row<'_>, names: &'n BTreeMap<i64, String>) -> rusqlite::Result<Kernel<'n>> {
    let time = |index| {
        row.get::<_, i64>(index)
            .map(|ns| u64::try_from(ns).unwrap_or(0))
    };
    Ok(Kernel {
        gpu: Gpu {
            process: row.get::<_, Option<i64>>(5)?.unwrap_or(0),
            device: row.get(2)?,
        },
        stream: row.get(3)?,
        name: names.get(&row.get(4)?).map(String::as_str),
        start_ns: time(0)?,
        end_ns: time(1)?,
    })
}

/// Counts the steps among the ranges of NVTX, whose texts are in the row or in the table of names.
fn add_ranges(database: &Connection, file: &mut FileKernels) -> Result<(), NsysError> {
    if !has_table(database, RANGES)? {
        return Ok(());
    }
    let names = names(
        database,
        &["profilerstep%", "iter%", "step%"].map(str::to_owned),
    )?;
    let has_number = has_column(database, RANGES, "textId")?;
    let number = if has_number { "textId" } else { "NULL" };
    let mut query = database.prepare(&format!("SELECT globalTid, text, {number} FROM {RANGES}"))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let text = row.get_ref(1)?.as_str().ok();
        let number: Option<i64> = row.get(2)?;
        let name = text.or_else(|| names.get(&number?).map(String::as_str));
        if let (Some(name), Some(thread)) = (name, row.get::<_, Option<i64>>(0)?) {
            file.add_range(thread & PROCESS_MASK, name);
        }
    }
    Ok(())
}

/// Returns the names that match one of the patterns, by their numbers.
fn names(database: &Connection, patterns: &[String]) -> Result<BTreeMap<i64, String>, NsysError> {
    let mut names = BTreeMap::new();
    for pattern in patterns {
        let mut query = database.prepare("SELECT id, value FROM StringIds WHERE value LIKE ?1")?;
        let mut rows = query.query([pattern])?;
        while let Some(row) = rows.next()? {
            names.insert(row.get(0)?, row.get(1)?);
            if names.len() > MAX_NAMES {
                return Err(NsysError::TooLarge("a million names"));
            }
        }
    }
    Ok(names)
}

/// Returns the text of a query of one value; `None` without the table.
fn text(database: &Connection, table: &str, query: &str) -> Result<Option<String>, NsysError> {
    if !has_table(database, table)? {
        return Ok(None);
    }
    let value = database.query_row(query, [], |row| row.get::<_, Option<String>>(0));
    Ok(value.optional()?.flatten())
}

/// Returns whether the database has a plain table of this name.
fn has_table(database: &Connection, name: &str) -> rusqlite::Result<bool> {
    let query = "SELECT count(*) FROM sqlite_schema \
                 WHERE name = ?1 AND type = 'table' AND sql NOT LIKE '%virtual%table%'";
    let count: i64 = database.query_row(query, [name], |row| row.get(0))?;
    Ok(count == 1)
}

fn has_column(database: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    let query = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    let count: i64 = database.query_row(query, [table, column], |row| row.get(0))?;
    Ok(count == 1)
}

#[cfg(test)]
mod tests;
