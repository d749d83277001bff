//! Description of the machine.

use std::fs::read_to_string;

/// Returns the cores that this process can use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns one line: processors, whether they are virtual, kernel, and the agent's version.
pub(crate) fn describe() -> String {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let cpu_info = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpu_info.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or("", |(_, value)| value.trim())
    };
    let model = match field("model name") {
        "" => "unknown",
        model => model,
    };
    let is_guest = field("flags")
        .split_whitespace()
        .any(|flag| flag == "hypervisor");
    let release = read("/proc/sys/kernel/osrelease");
    // The suffix names the build.
    let release = release.trim().split('-').next().unwrap_or_default();
    format!(
        "{} cores ({model}{}), Linux {release}, agent {}",
        cores(),
        if is_guest { ", a virtual machine" } else { "" },
        env!("CARGO_PKG_VERSION"),
    )
}
