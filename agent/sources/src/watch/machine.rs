//! Processes, CPUs and clock of this host.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use rustix::time::{ClockId, clock_gettime};

/// Returns the processes of the host.
pub(super) fn pids(proc: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the CPUs that are online, from a list such as `0-3,8`.
pub fn cpus(sys: &Path) -> io::Result<Vec<usize>> {
    let list = fs::read_to_string(sys.join("devices/system/cpu/online"))?;
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    Ok(parts.flatten().collect())
}

/// Returns the time of the programs' clock (`CLOCK_MONOTONIC`), nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
