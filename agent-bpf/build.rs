//! Compiles the BPF programs with clang, for the target architecture of the agent.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes parameters to a build script in the environment"
)]

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const OBJECTS: [&str; 2] = ["calls", "host"];
/// Names of clang, from 14 on; Debian and Ubuntu install it with its version number.
const COMPILERS: [&str; 8] = [
    "clang", "clang-21", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), String> {
    let compiler = compiler()?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    let (define, multiarch) = match variable("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => ("-D__TARGET_ARCH_x86", "x86_64-linux-gnu"),
        "aarch64" => ("-D__TARGET_ARCH_arm64", "aarch64-linux-gnu"),
        other => {
            return Err(format!(
                "unsupported architecture {other}: the probes support x86_64 and aarch64"
            ));
        }
    };
    for object in OBJECTS {
        let source = Path::new("programs").join(format!("{object}.bpf.c"));
        let target = out.join(format!("{object}.bpf.o"));
        let status = Command::new(&compiler)
            .args([
                "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", define,
            ])
            .arg(format!("-I{}", variable("DEP_BPF_INCLUDE")?))
            .arg(format!("-I/usr/include/{multiarch}"))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&target)
            .status()
            .map_err(|error| format!("{compiler} cannot be started: {error}"))?;
        if !status.success() {
            return Err(format!("{compiler} failed to compile {}", source.display()));
        }
    }
    Ok(())
}

fn compiler() -> Result<String, String> {
    if let Ok(given) = env::var("BPF_CLANG") {
        return Ok(given);
    }
    let exists = |name: &&&str| {
        let output = Command::new(name).arg("--version").output();
        !matches!(output, Err(error) if error.kind() == ErrorKind::NotFound)
    };
    let found = COMPILERS.iter().find(exists);
    found.map(|name| (*name).to_owned()).ok_or_else(|| {
        "clang not found, which compiles the BPF programs: apt-get install clang, or set BPF_CLANG to its path".to_owned()
    })
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
