//! Sets where programs find DuckDB when they start: in `../lib/fleet-echo` relative to their own
//! folder, on every machine. Programs in the target folder find it by a link.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes the environment to a build script"
)]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// File name of the library.
const LIBRARY: &str = "libduckdb.so";

/// Folder of the library, relative to the parent of the folder with the program.
const FOLDER: &str = "lib/fleet-echo";

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/../{FOLDER}");
    if let Err(reason) = library().and_then(|library| link_all(&library)) {
        println!("cargo::error={reason}: run `make`, or set DUCKDB_LIB_DIR=$(echo/get-duckdb)");
    }
}

fn library() -> Result<PathBuf, String> {
    let folder =
        env::var("DUCKDB_LIB_DIR").map_err(|_unset| "DUCKDB_LIB_DIR is not set".to_owned())?;
    let library = Path::new(&folder).join(LIBRARY);
    if library.is_file() {
        Ok(library)
    } else {
        Err(format!("no {LIBRARY} in DUCKDB_LIB_DIR={folder}"))
    }
}

/// Links the library for the programs of this profile, which are in its folder, and for its tests
/// and benchmarks, which are in a folder below.
fn link_all(library: &Path) -> Result<(), String> {
    let output = env::var("OUT_DIR").map_err(|_unset| "OUT_DIR is not set".to_owned())?;
    // The output folder is PROFILE/build/PACKAGE/out.
    let parents = Path::new(&output).ancestors().skip(3).take(2);
    for parent in parents {
        let link = parent.join(FOLDER).join(LIBRARY);
        println!("cargo::rerun-if-changed={}", link.display());
        let package = env::var_os("CARGO_PKG_NAME").unwrap_or_default();
        replace_link(&link, library, &package)
            .map_err(|error| format!("{}: {error}", link.display()))?;
    }
    Ok(())
}

/// Replaces the link at once, because the scripts of several packages run at a time.
fn replace_link(link: &Path, library: &Path, package: &OsStr) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|target| target == library) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = link.with_file_name(package);
    if fs::symlink_metadata(&new).is_ok() {
        fs::remove_file(&new)?;
    }
    symlink(library, &new)?;
    fs::rename(new, link)
}
