//! Dump of `PyTorch`'s Flight Recorder: its last operations with their states and stacks.
//!
//! Where a process has `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` and a buffer, a thread of it looks once a second
//! at a named pipe, and writes its dump to a file when something was written to it; the job goes on.

use std::fs::{File, FileType};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use procfs_core::process::Status;
use procfs_core::{FromRead, ProcError};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use thiserror::Error;
use tokio::time::{interval, timeout};

/// Pause between two looks at the file.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest dump, bytes.
const MAX_DUMP: u64 = 8 << 20;
/// Largest environment, bytes.
const MAX_ENVIRON: u64 = 1 << 20;

/// Name of the pipe, without the rank and `.pipe`.
const PIPE: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
/// Name of the file, without the rank: the first that is set.
const FILE: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// The same in the cache of the user where neither is set.
const DEFAULT_FILE: &str = "torch/comm_lib_trace_rank_";

/// Reason why there is no dump.
#[derive(Debug, Error)]
pub enum FlightRecorderError {
    /// The process does not offer a pipe.
    #[error("{PIPE} is not set for the process")]
    NoPipe,
    /// The process has ended, or it must not be read.
    #[error("the process cannot be read: {0}")]
    Process(#[from] ProcError),
    /// A file cannot be opened.
    #[error("cannot open {path}: {source}")]
    Open {
        /// Path as the process sees it.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The process has closed the pipe: its process group is not yet, or no longer, there.
    #[error("no thread of the process reads {0}")]
    NotRead(String),
    /// A file of another kind or another user.
    #[error("{0} is no {1} of the user of the process")]
    Foreign(String, &'static str),
    /// The process wrote nothing.
    #[error("no new dump in {path} within {} s", .patience.as_secs_f64())]
    NoDump {
        /// Time for which it was waited for.
        patience: Duration,
        /// Path as the process sees it.
        path: String,
    },
    /// The dump is too large.
    #[error("the dump in {0} is larger than {MAX_DUMP} bytes")]
    TooLarge(String),
}

/// Has the recorder of a rank write its dump, and returns it.
///
/// The paths come from the environment of the process. They are resolved below its root directory, both
/// files must belong to its user, and only a dump is returned: the agent gives away nothing that the
/// process could not.
pub(super) async fn dump(
    proc: &Path,
    pid: u32,
    rank: u32,
    patience: Duration,
) -> Result<Vec<u8>, FlightRecorderError> {
    let process = Process::open(proc, pid)?;
    let stem = process.variable(PIPE).ok_or(FlightRecorderError::NoPipe)?;
    let path = process.dump_path(rank);
    let before = process.state(&path);
    process.trigger(&format!("{stem}{rank}.pipe"))?;
    let new = async {
        let (mut last, mut looks) = (before, interval(PAUSE));
        loop {
            looks.tick().await;
            let now = process.state(&path);
            // Of two looks at a file that is being written the second one is different.
            if now == before || now != last {
                last = now;
                continue;
            }
            let content = process.read(&path)?;
            if is_dump(&content) {
                return Ok(content);
            }
        }
    };
    let found = timeout(patience, new).await;
    found.unwrap_or_else(|_elapsed| {
        Err(FlightRecorderError::NoDump {
            patience,
            path: path.clone(),
        })
    })
}

/// Returns whether a file is a whole dump of the recorder: a pickle of protocol 2 with its end, which has
/// entries. It is not parsed, because a hostile one can need gigabytes.
fn is_dump(content: &[u8]) -> bool {
    let has = |word: &[u8]| content.windows(word.len()).any(|part| part == word);
    content.starts_with(&[0x80, 2]) && content.ends_with(b".") && has(b"entries")
}

/// Process whose files are opened as it sees them.
struct Process {
    root: OwnedFd,
    user: u32,
    environ: Vec<u8>,
}

impl Process {
    fn open(proc: &Path, pid: u32) -> Result<Self, FlightRecorderError> {
        let folder = proc.join(pid.to_string());
        let file = |name: &str| File::open(folder.join(name)).map_err(ProcError::from);
        let mut environ = Vec::new();
        let mut bounded = file("environ")?.take(MAX_ENVIRON);
        bounded.read_to_end(&mut environ).map_err(ProcError::from)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(folder.join("root"), flags, Mode::empty());
        Ok(Self {
            root: root.map_err(|error| ProcError::from(io::Error::from(error)))?,
            user: Status::from_read(file("status")?)?.euid,
            environ,
        })
    }

    fn variable(&self, name: &str) -> Option<String> {
        let mut variables = self.environ.split(|byte| *byte == 0);
        let value = variables.find_map(|variable| {
            let value = variable.strip_prefix(name.as_bytes())?;
            value.strip_prefix(b"=")
        })?;
        let value = std::str::from_utf8(value).ok()?;
        (!value.is_empty()).then(|| value.to_owned())
    }

    fn dump_path(&self, rank: u32) -> String {
        let named = FILE.iter().find_map(|name| self.variable(name));
        let prefix = named.unwrap_or_else(|| {
            let cache = self.variable("XDG_CACHE_HOME").unwrap_or_else(|| {
                let home = self.variable("HOME");
                home.unwrap_or_else(|| "/tmp".to_owned()) + "/.cache"
            });
            format!("{cache}/{DEFAULT_FILE}")
        });
        format!("{prefix}{rank}")
    }

    /// Finds a file below the root of the process, without opening it.
    fn find(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = openat2(self.root.as_fd(), path, flags, Mode::empty(), resolve);
        Ok(File::from(found?))
    }

    /// Opens a file of this kind and of the user of the process, without waiting. Its kind is checked before:
    /// some devices act when they are opened.
    fn file(
        &self,
        path: &str,
        (kind, is_kind): (&'static str, fn(&FileType) -> bool),
        flags: OFlags,
    ) -> Result<File, FlightRecorderError> {
        let failed = |source: io::Error| match Errno::from_io_error(&source) {
            Some(Errno::NXIO) => FlightRecorderError::NotRead(path.to_owned()),
            _ => FlightRecorderError::Open {
                path: path.to_owned(),
                source,
            },
        };
        let found = self.find(path).map_err(failed)?;
        let metadata = found.metadata().map_err(failed)?;
        if !is_kind(&metadata.file_type()) || metadata.uid() != self.user {
            return Err(FlightRecorderError::Foreign(path.to_owned(), kind));
        }
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = open(link, flags, Mode::empty());
        Ok(File::from(opened.map_err(|error| failed(error.into()))?))
    }

    /// Size and time of the last change of a file; `None` if there is none.
    fn state(&self, path: &str) -> Option<(u64, SystemTime)> {
        let metadata = self.find(path).ok()?.metadata().ok()?;
        Some((metadata.len(), metadata.modified().ok()?))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, FlightRecorderError> {
        let file = self.file(path, ("file", FileType::is_file), OFlags::RDONLY)?;
        let mut content = Vec::new();
        let read = file.take(MAX_DUMP + 1).read_to_end(&mut content);
        read.map_err(|source| FlightRecorderError::Open {
            path: path.to_owned(),
            source,
        })?;
        if content.len() as u64 > MAX_DUMP {
            return Err(FlightRecorderError::TooLarge(path.to_owned()));
        }
        Ok(content)
    }

    /// Writes to the pipe that the recorder reads.
    fn trigger(&self, path: &str) -> Result<(), FlightRecorderError> {
        let mut pipe = self.file(path, ("named pipe", FileType::is_fifo), OFlags::WRONLY)?;
        pipe.write_all(b"1")
            .map_err(|source| FlightRecorderError::Open {
                path: path.to_owned(),
                source,
            })
    }
}
