//! Network namespaces for tests, in which all ports are free.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of namespaces created by this process, which makes their names unique.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// A network namespace, removed on drop.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates an empty namespace. Fails without root or iproute2.
    pub(crate) fn new() -> Result<Self, String> {
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("fleet-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"))?;
        Ok(Self { name })
    }

    /// Returns the name used by `ip`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs a program in the namespace. The program replaces `nsenter`, so
    /// signals reach it.
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

/// Runs `ip` with these arguments.
pub(crate) fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {arguments}: {}", stderr.trim()))
}
