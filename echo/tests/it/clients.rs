//! Third-party clients and validators: the conformance suite of the Model Context Protocol, its
//! inspector and its SDK for Python, schemathesis, Prometheus, Alertmanager, Slurm, the dashboard model
//! of Grafana, the FOCUS validator, the trace viewer of Chromium, kubectl and
//! helm.
//! `make clients` runs these tests, which install the tools in the target folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::testbed::{Echo, recording, replay_all, repository};

mod alertmanager;
mod focus;
mod grafana;
mod helm;
mod inspector;
mod kubernetes;
mod lake;
mod node_conditions;
mod openapi;
mod page;
mod prometheus;
mod protocol;
mod slurm;
mod traces;

/// Packages for Node.js, and Node.js itself: the suite requires a newer version than many machines
/// have.
const FOR_NODE: [&str; 3] = [
    "node@22.23.3",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
];

/// Packages for Python.
const FOR_PYTHON: [&str; 3] = [
    "mcp==2.3.0",
    "schemathesis==4.32.5",
    "grafana-foundation-sdk==1769699379!11.6.0",
];

/// An instance with the cluster `lab`, in which rank 2 was late.
struct Lab {
    echo: Echo,
    folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
        replay_all(&recording("host-sleep-rank2"), &echo, "lab", "50");
        echo.caught_up();
        Self { echo, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.echo.http)
    }
}

/// Returns the path of a file in `testdata/clients`.
fn client(name: &str) -> PathBuf {
    repository("testdata/clients").join(name)
}

/// Returns a folder in the target folder, filled by `install` once for each set of packages.
fn installed(kind: &str, packages: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = packages.join("_").chars().map(plain).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind}-{name}"));
    // One test at a time installs. If another one failed to, this one tries again.
    let lock = File::create(folder.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let ready = folder.join("ready");
    if !ready.is_file() {
        std::fs::create_dir_all(&folder).unwrap();
        install(&folder);
        std::fs::write(ready, "").unwrap();
    }
    folder
}

/// Returns a command that runs a script of a package with the installed Node.js.
fn node(script: &str) -> Command {
    let modules = node_modules(&FOR_NODE);
    let mut command = Command::new(modules.join("node/bin/node"));
    command.arg(modules.join(script));
    command
}

/// Returns the folder of these packages for Node.js.
fn node_modules(packages: &[&str]) -> PathBuf {
    let folder = installed("node", packages, |folder| {
        // Without this file, npm uses a project in a parent folder.
        std::fs::write(folder.join("package.json"), "{}").unwrap();
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-fund", "--no-audit", "--loglevel", "error"])
            .args(packages)
            .current_dir(folder);
        done(&mut npm, "npm could not install the clients for Node.js");
    });
    folder.join("node_modules")
}

/// Returns a program of the virtual environment with the Python packages.
fn python(program: &str) -> Command {
    python_with(&FOR_PYTHON, program)
}

/// Returns a program of a virtual environment with these packages.
fn python_with(packages: &[&str], program: &str) -> Command {
    let folder = installed("python", packages, |folder| {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(folder);
        done(&mut venv, "python3 could not make a virtual environment");
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet"]).args(packages);
        done(&mut pip, "pip could not install the clients for Python");
    });
    Command::new(folder.join("bin").join(program))
}

/// Runs a command, which must succeed. A failure shows `message` and the output.
#[track_caller]
fn done(command: &mut Command, message: &str) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{message}: {error}"));
    assert!(
        output.status.success(),
        "{message}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
