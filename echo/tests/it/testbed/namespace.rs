//! Networks of the tests' own, in which ports are free and nobody else is.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells the namespaces of this process apart.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A network namespace, removed when it is dropped.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// An empty one, or why none can be made: it takes root and iproute2.
    pub(crate) fn new() -> Result<Self, String> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("fleet-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"))?;
        Ok(Self { name })
    }

    /// By which `ip` knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A program inside; it takes the place of what enters, so that signals reach it.
    pub(crate) fn run(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name));
        command.arg(program).stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _gone = ip(&format!("netns del {}", self.name));
    }
}

/// Runs `ip` with these words.
pub(crate) fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {arguments}: {}", said.trim()))
}
