//! Counters of the host object.

use crate::layout::Fields;

/// Number of bytes of a task name, with the zero at its end.
const TASK_NAME_BYTES: usize = 16;
/// `DELAY_TASK` of `layout.h`; the numbers below are reasons of blocking.
const DELAY_TASK: u32 = 7;
/// `DELAY_INTERRUPT` of `layout.h`.
const DELAY_INTERRUPT: u32 = 8;
/// `DELAY_PREEMPTION` of `layout.h`.
const DELAY_PREEMPTION: u32 = 9;

/// Host activity of one process since tracing began. Times are sums over its threads that call the
/// libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostSum {
    /// Blocked, except in a wait for the GPU, nanoseconds.
    pub off_cpu_ns: u64,
    /// Runnable after a wake-up, waiting for a CPU, nanoseconds.
    pub run_queue_ns: u64,
    /// Runnable after a preemption, nanoseconds.
    pub preempted_ns: u64,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Memory pages allocated.
    pub page_allocations: u64,
    /// Time with block requests in flight, nanoseconds; concurrent requests are counted separately.
    pub block_io_ns: u64,
}

/// Kind of a delay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelayKind {
    /// Blocked, for the reason of this number.
    Blocked(u32),
    /// Runnable while a task of this name had the CPU.
    Task(String),
    /// Interrupted while running.
    Interrupt,
    /// Without a CPU from a preemption until it ran again.
    Preemption,
}

/// Process and kind of a delay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayKey {
    /// Process id.
    pub tgid: u32,
    /// Kind.
    pub kind: DelayKind,
}

/// Delays of one process and kind since tracing began: sums over its threads that call the libraries,
/// but time blocked counts while all of them are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelaySum {
    /// Time, nanoseconds.
    pub ns: u64,
    /// Number of times.
    pub count: u64,
    /// CPU of the last one.
    pub cpu: u32,
    /// Longest one since the last reading, nanoseconds; 0 without one.
    pub longest_ns: u64,
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// Time, nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Wait status, as of wait(2).
    pub status: u32,
}

impl ExitRecord {
    /// Parses a `struct exit_status`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (at_ns, status) = (fields.u64()?, fields.u32()?);
        Some(Self { at_ns, status })
    }
}

impl HostSum {
    /// Adds a `struct host_sum` of one CPU.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        self.off_cpu_ns += fields.u64()?;
        self.run_queue_ns += fields.u64()?;
        self.preempted_ns += fields.u64()?;
        self.preemptions += fields.u64()?;
        self.page_allocations += fields.u64()?;
        self.block_io_ns += fields.u64()?;
        Some(())
    }
}

impl DelayKey {
    /// Parses a `struct delay_key`.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (numbers, name) = bytes.split_first_chunk::<8>()?;
        let mut fields = Fields(numbers);
        let (tgid, kind) = (fields.u32()?, fields.u32()?);
        let kind = match kind {
            DELAY_TASK => DelayKind::Task(task_name(name.first_chunk()?)),
            DELAY_INTERRUPT => DelayKind::Interrupt,
            DELAY_PREEMPTION => DelayKind::Preemption,
            reason => DelayKind::Blocked(reason),
        };
        Some(Self { tgid, kind })
    }
}

impl DelaySum {
    /// Parses a `struct delay_sum` at the reading with a number.
    pub(crate) fn parse(bytes: &[u8], reading: u32) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (ns, count, longest_ns) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (cpu, longest_at) = (fields.u32()?, fields.u32()?);
        Some(Self {
            ns,
            count,
            cpu,
            longest_ns: if longest_at == reading { longest_ns } else { 0 },
        })
    }
}

/// Returns a task name up to its first zero. Processes choose their names, so control characters
/// and invalid UTF-8 are replaced.
fn task_name(bytes: &[u8; TASK_NAME_BYTES]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_delay_of_an_earlier_reading_is_not_repeated() {
        let mut bytes = [70_000_u64, 9, 13_000].map(u64::to_ne_bytes).concat();
        bytes.extend([3_u32, 5].map(u32::to_ne_bytes).concat());
        let longest_ns = |reading| DelaySum::parse(&bytes, reading).map(|sum| sum.longest_ns);
        assert_eq!([5, 6].map(longest_ns), [Some(13_000), Some(0)]);
    }

    fn key(kind: u32, name: &[u8]) -> Option<DelayKey> {
        let mut bytes = [7_u32.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(name);
        DelayKey::parse(&bytes)
    }

    #[test]
    fn a_delay_has_the_name_of_its_task() {
        let task = |name: &str| {
            Some(DelayKey {
                tgid: 7,
                kind: DelayKind::Task(name.to_owned()),
            })
        };
        assert_eq!(key(7, b"kworker/3:1H\0\0\0\0"), task("kworker/3:1H"));
        assert_eq!(
            key(7, b"\xff\n6789012345678\0"),
            task("\u{fffd}\u{fffd}6789012345678")
        );
        assert_eq!(key(7, b"short"), None);
        let kinds = [2, 8, 9].map(|kind| key(kind, &[0; 16]).map(|key| key.kind));
        assert_eq!(
            kinds,
            [
                Some(DelayKind::Blocked(2)),
                Some(DelayKind::Interrupt),
                Some(DelayKind::Preemption)
            ]
        );
    }
}
