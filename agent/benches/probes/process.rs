//! What a process has cost so far, read from `/proc`.

use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

use anyhow::Context;

/// Ticks of a second in `/proc/PID/stat`: 100 on every Linux that runs on a server.
const TICKS: f64 = 100.0;

/// What a process has cost since it was started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// On CPUs, in user space and in the kernel for it, seconds.
    pub(crate) cpu_seconds: f64,
    /// How often its threads slept and were woken.
    pub(crate) wake_ups: f64,
    /// Resident memory now, MiB.
    pub(crate) rss_mib: f64,
    /// The most that was ever resident, MiB.
    pub(crate) peak_mib: f64,
}

/// What a process has cost so far.
pub(crate) fn usage(pid: u32) -> anyhow::Result<Usage> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let read = |file: &str| {
        read_to_string(folder.join(file)).with_context(|| format!("process {pid} has ended"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    let threads = read_dir(folder.join("task"))?.flatten();
    // A thread that ends between the two is not of interest any more.
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
    // The name in brackets may hold anything, so count from behind it: the state is the third field.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(14 - 3);
    let mut ticks = || times.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

fn field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
