//! Links the DuckDB that `echo/build-duckdb` compiled, unless the feature `bundled` compiles one inside cargo.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a build script is told by the environment and answers cargo on stdout"
)]

use std::env;
use std::path::Path;

/// Static extensions register themselves in constructors that nothing refers to, so the linker must keep this whole.
const AUTOREGISTER: &str = "duckdb_static_extension_autoregister";

fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    println!("cargo::rerun-if-env-changed=DUCKDB_STATIC");
    let linked = env::var_os("CARGO_FEATURE_DUCKDB").is_some()
        && env::var_os("CARGO_FEATURE_BUNDLED").is_none();
    if linked {
        match library_folder() {
            Ok(folder) => link(&folder),
            Err(reason) => println!("cargo::error={reason}"),
        }
    }
}

fn library_folder() -> Result<String, String> {
    const REMEDY: &str = "run `make`, which compiles DuckDB once and sets it, or add `--features bundled` to compile it inside cargo";
    let folder =
        env::var("DUCKDB_LIB_DIR").map_err(|_| format!("DUCKDB_LIB_DIR is not set: {REMEDY}"))?;
    if !Path::new(&folder)
        .join(format!("lib{AUTOREGISTER}.a"))
        .is_file()
    {
        return Err(format!(
            "DUCKDB_LIB_DIR={folder} holds no static DuckDB: {REMEDY}"
        ));
    }
    if env::var("DUCKDB_STATIC").is_ok_and(|value| value != "0") {
        Ok(folder)
    } else {
        Err(
            "DUCKDB_LIB_DIR is set, but DUCKDB_STATIC=1 is not: run `make`, which sets both"
                .to_owned(),
        )
    }
}

fn link(folder: &str) {
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=static:+whole-archive={AUTOREGISTER}");
    // A linker that reads archives once, in order, meets the constructors late: give it DuckDB again behind them.
    println!("cargo::rustc-link-lib=static:-bundle=duckdb_static");
    println!("cargo::rustc-link-lib=dylib=stdc++");
}
