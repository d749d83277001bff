//! Memory available to this process.

use std::fs::read_to_string;

/// Memory limit files of control groups: version 2, and version 1.
const OF_THE_GROUP: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Memory of the machine, or of the control group if that is less, bytes; `None` if the system does
/// not report it.
pub(super) fn total() -> Option<u64> {
    let group = OF_THE_GROUP.iter().filter_map(|path| {
        let text = read_to_string(path).ok()?;
        text.trim().parse().ok()
    });
    let machine = read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(of_machine);
    group.chain(machine).min()
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{of_machine, total};

    #[test]
    fn total_memory_is_parsed_from_meminfo() {
        let meminfo = "MemTotal:       24604048 kB\nMemFree:          929292 kB\n";
        assert_eq!(of_machine(meminfo), Some(24_604_048 * 1024));
        assert_eq!(of_machine("MemFree: 1 kB"), None);
        assert!(total().is_none_or(|bytes| bytes > 64 * 1024 * 1024));
    }
}
