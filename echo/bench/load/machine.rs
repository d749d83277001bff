//! Description of the machine on which the figures were measured.

use std::fs::read_to_string;

/// One line: processors, memory, kernel, and Echo's version.
pub(crate) fn describe() -> String {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let (cpu_info, mem_info) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(
            || "unknown".to_owned(),
            |(_, value)| value.trim().to_owned(),
        )
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib = field(&mem_info, "MemTotal");
    let kib = kib
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok());
    let release = read("/proc/sys/kernel/osrelease");
    // The builder follows the version number.
    let release = release.trim().split('-').next().unwrap_or_default();
    format!(
        "{cores} cores ({}), {:.0} GiB of memory, Linux {release}, Echo {}",
        field(&cpu_info, "model name"),
        kib.unwrap_or(f64::NAN) / 1024.0 / 1024.0,
        env!("CARGO_PKG_VERSION"),
    )
}
