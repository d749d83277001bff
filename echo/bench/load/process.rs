//! Processes and their cost, read from `/proc`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

/// Ticks per second in `/proc/PID/stat`: 100 on every common Linux server.
const TICKS: f64 = 100.0;

/// Child process that is killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
}

/// Memory of a process, MB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) resident: f64,
    /// Largest resident size so far.
    pub(crate) peak: f64,
}

impl Process {
    /// Starts the process.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().display().to_string();
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self {
            child: child.with_context(|| format!("cannot start {name}"))?,
            name,
        })
    }

    /// Starts the process, and waits for the line with which it reports readiness.
    pub(crate) fn start_ready(command: &mut Command) -> anyhow::Result<(Self, String)> {
        let mut process = Self::start(command.stdout(Stdio::piped()))?;
        let mut ready = String::new();
        if let Some(stdout) = process.child.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut ready)?;
        }
        if ready.is_empty() {
            bail!("{} ended before it was ready", process.name);
        }
        Ok((process, ready))
    }

    /// True while the process runs.
    pub(crate) fn runs(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// CPU seconds so far, user and system.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = self.read("stat")?;
        // The name in brackets may hold any text, so count from its end: the state is the third field.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |number: usize| {
            fields
                .split_whitespace()
                .nth(number - 3)?
                .parse::<f64>()
                .ok()
        };
        let ticks = field(14).zip(field(15)).map(|(user, system)| user + system);
        ticks
            .map(|ticks| ticks / TICKS)
            .with_context(|| format!("no times in the stat of {}: {stat}", self.name))
    }

    /// Memory of the process.
    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let status = self.read("status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
            kib.map(|kib| kib * 1024.0 / 1e6)
                .with_context(|| format!("no {name} in the status of {}", self.name))
        };
        Ok(Memory {
            resident: field("VmRSS:")?,
            peak: field("VmHWM:")?,
        })
    }

    /// Megabytes that the process has read from files so far, of the kernel's memory or of a disk.
    pub(crate) fn read_mb(&self) -> anyhow::Result<f64> {
        let io = self.read("io")?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("rchar:"));
        let bytes = bytes.and_then(|bytes| bytes.trim().parse::<f64>().ok());
        bytes
            .map(|bytes| bytes / 1e6)
            .with_context(|| format!("no rchar of {}", self.name))
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("{} ended", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
