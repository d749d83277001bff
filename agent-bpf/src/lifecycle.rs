//! File mappings and exits of processes: records that the kernel writes anyway, without a BPF
//! program.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Sampler};

/// Ring buffer size per CPU between two polls, bytes.
const RING_BYTES: usize = 32 * 1024;

/// Change of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Mapped a file as executable. The path is the one that the process itself sees.
    Mapped {
        /// Process id.
        pid: u32,
        /// Path of the file.
        path: OsString,
    },
    /// Exited.
    Exited {
        /// Process id.
        pid: u32,
    },
    /// Records were lost: a scan is required.
    Lost,
}

/// Listener for process changes on all CPUs.
pub struct Lifecycle {
    samplers: Vec<Sampler>,
}

impl std::fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lifecycle")
            .field("cpus", &self.samplers.len())
            .finish()
    }
}

impl Lifecycle {
    /// Starts to listen on these CPUs.
    pub fn open(cpus: impl IntoIterator<Item = usize>) -> io::Result<Self> {
        let samplers = cpus.into_iter().map(sampler).collect::<io::Result<_>>()?;
        Ok(Self { samplers })
    }

    /// Returns the changes since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                // An unreadable record counts as lost.
                let change = record
                    .parse_record()
                    .map_or(Some(Change::Lost), |record| change(&record));
                changes.extend(change);
            }
        }
        changes
    }
}

fn sampler(cpu: usize) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .any_pid()
        .one_cpu(cpu)
        .mmap(true)
        .mmap2(true)
        .task(true);
    // The agent polls every few dozen milliseconds; a wake-up per record would cost 0.3 ms for each
    // program that starts.
    builder
        .wakeup_watermark(RING_BYTES / 2)
        .exclude_kernel(true)
        .exclude_hv(true)
        .enabled(true);
    builder.build()?.sampled(RING_BYTES)
}

fn change(record: &Record<'_>) -> Option<Change> {
    match record {
        Record::Mmap2(mapping) => Some(Change::Mapped {
            pid: mapping.pid,
            path: OsString::from_vec(mapping.filename.to_vec()),
        }),
        Record::Exit(exit) => (exit.pid == exit.tid).then_some(Change::Exited { pid: exit.pid }),
        Record::Lost(_) => Some(Change::Lost),
        _ => None,
    }
}
