//! Which processes map what, and which have ended: records that the kernel writes anyway, without a program of ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Sampler};

/// Room for the records of one CPU between two looks, bytes.
const RING_BYTES: usize = 32 * 1024;

/// Something that happened to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It mapped a file, executable. The path is the one that the process itself sees.
    Mapped {
        /// Process.
        pid: u32,
        /// The file.
        path: OsString,
    },
    /// It ended.
    Exited {
        /// Process.
        pid: u32,
    },
    /// Too much happened at once: look for yourself.
    Lost,
}

/// Listens on every CPU.
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
    /// Listens on these CPUs, from now on.
    pub fn open(cpus: impl IntoIterator<Item = usize>) -> io::Result<Self> {
        let samplers = cpus.into_iter().map(sampler).collect::<io::Result<_>>()?;
        Ok(Self { samplers })
    }

    /// What has happened since the last time.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for sampler in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                // A record that cannot be read is one that was not seen.
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
    // The agent looks every few dozen milliseconds; a wake-up per record would cost 0.3 ms for each program that starts.
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
