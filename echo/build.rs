//! Links the DuckDB that `echo/build-duckdb` compiled, unless the feature `bundled` compiles one inside cargo.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by the environment"
)]

use std::env;
use std::path::Path;

/// Static extensions register themselves in constructors that nothing refers to, so the linker must keep this whole.
const AUTOREGISTER: &str = "duckdb_static_extension_autoregister";

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    println!("cargo::rerun-if-env-changed=DUCKDB_STATIC");
    let on = |feature| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if !on("DUCKDB") || on("BUNDLED") {
        return;
    }
    match library_folder() {
        Ok(folder) => link(&folder),
        Err(reason) => println!(
            "cargo::error={reason}: run `make`, which compiles DuckDB once and links it, or add `--features bundled`"
        ),
    }
}

fn library_folder() -> Result<String, String> {
    let Ok(folder) = env::var("DUCKDB_LIB_DIR") else {
        return Err("DUCKDB_LIB_DIR is not set".to_owned());
    };
    let library = Path::new(&folder).join(format!("lib{AUTOREGISTER}.a"));
    if !library.is_file() {
        return Err(format!("no static DuckDB in DUCKDB_LIB_DIR={folder}"));
    }
    if env::var("DUCKDB_STATIC").is_ok_and(|value| value != "0") {
        Ok(folder)
    } else {
        Err("DUCKDB_LIB_DIR is set without DUCKDB_STATIC=1".to_owned())
    }
}

fn link(folder: &str) {
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=static:+whole-archive={AUTOREGISTER}");
    // A linker that reads archives once, in order, meets the constructors late: give it DuckDB again behind them.
    println!("cargo::rustc-link-lib=static:-bundle=duckdb_static");
    println!("cargo::rustc-link-lib=dylib=stdc++");
}
