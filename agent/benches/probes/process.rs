//! Resource usage of a process, read from `/proc`.

use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

use anyhow::Context;

/// Clock ticks per second in `/proc/PID/stat`: 100 on every server Linux.
const TICKS: f64 = 100.0;

/// Resource usage of a process since its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time, user and system, seconds.
    pub(crate) cpu_seconds: f64,
    /// Voluntary context switches of its threads.
    pub(crate) wake_ups: f64,
    /// Resident memory now, MiB.
    pub(crate) rss_mib: f64,
    /// Peak resident memory, MiB.
    pub(crate) peak_mib: f64,
}

/// Returns the resource usage of a process.
pub(crate) fn usage(pid: u32) -> anyhow::Result<Usage> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let read = |file: &str| {
        read_to_string(folder.join(file)).with_context(|| format!("process {pid} has ended"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    let threads = read_dir(folder.join("task"))?.flatten();
    // A thread that ends in between is ignored.
    let wake_ups = threads.filter_map(|thread| {
        let status = read_to_string(thread.path().join("status")).ok()?;
        field(&status, "voluntary_ctxt_switches:")
    });
    let kib = |name: &str| field(&status, name).with_context(|| format!("no {name} of {pid}"));
    Ok(Usage {
        cpu_seconds: cpu_seconds(&stat).context("no times in stat")?,
        wake_ups: wake_ups.sum(),
        rss_mib: kib("VmRSS:")? / 1024.0,
        peak_mib: kib("VmHWM:")? / 1024.0,
    })
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name in parentheses can contain anything, so count from its end: the state is the third
    // field.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(14 - 3);
    let mut ticks = || times.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

fn field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
