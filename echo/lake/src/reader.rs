//! What a store needs to read a lake in the place of own rows.

use std::path::Path;
use std::time::Duration;

use echo_store::duckdb::lake_source::LakeSource;

use crate::error::LakeError;
use crate::location::{Catalog, LakeConfig, Secrets, quoted};
use crate::session::{LAKE, NO_FOLDER, extension};

/// Name of the client in `PostgreSQL`.
const APPLICATION: &str = "fleet-echo-reader";

/// Interval at which newer rows are looked for.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// Reads the files with the catalog and the keys, and returns the statements that attach the lake
/// for reading.
pub fn source(config: &LakeConfig) -> Result<LakeSource, LakeError> {
    let (catalog, keys) = (config.catalog()?, config.keys()?);
    let data = config.data_path()?;
    let mut names = vec!["ducklake"];
    if matches!(catalog, Catalog::Postgres(_)) {
        names.push("postgres_scanner");
    }
    if config.is_remote() {
        names.push("httpfs");
    }
    let mut statements = vec![format!("SET GLOBAL secret_directory = '{NO_FOLDER}'")];
    for name in names {
        statements.push(load(&config.extensions, name)?);
    }
    if config.is_remote() {
        statements.push(keys.create(&data));
    }
    let (data, address) = (quoted(&data), quoted(&catalog.address(APPLICATION)));
    statements.push(format!("SET GLOBAL allowed_directories = [{data}]"));
    statements.push(format!(
        "ATTACH {address} AS {LAKE} (DATA_PATH {data}, READ_ONLY)"
    ));
    Ok(LakeSource {
        attach: statements.join(";\n"),
        secrets: Secrets::new(&catalog, &keys).into_texts(),
        refresh_every: REFRESH_EVERY,
    })
}

fn load(folder: &Path, name: &str) -> Result<String, LakeError> {
    let file = extension(folder, name)?;
    Ok(format!("LOAD {}", quoted(&file.display().to_string())))
}
