//! Tells the linker where the programs find DuckDB when they start: beside themselves where they are installed, else in
//! the folder that they were linked from.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by the environment"
)]

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    match library_folder() {
        Ok(folder) => {
            println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib/fleet-echo");
            println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
        }
        Err(reason) => {
            println!("cargo::error={reason}: run `make`, or set DUCKDB_LIB_DIR=$(echo/get-duckdb)");
        }
    }
}

fn library_folder() -> Result<String, String> {
    let folder =
        env::var("DUCKDB_LIB_DIR").map_err(|_unset| "DUCKDB_LIB_DIR is not set".to_owned())?;
    if Path::new(&folder).join("libduckdb.so").is_file() {
        Ok(folder)
    } else {
        Err(format!("no libduckdb.so in DUCKDB_LIB_DIR={folder}"))
    }
}
