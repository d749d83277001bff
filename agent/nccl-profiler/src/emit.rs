//! Output of records: a function that does nothing, to which an agent attaches a probe, and a
//! socket for agents without probes.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::losses::Losses;
use crate::probe;
use crate::record::Record;
use crate::system::{self, Sent, ShortPath};

/// Time between two attempts to connect to a socket without a reader, nanoseconds.
const RETRY_INTERVAL_NS: u64 = 1_000_000_000;

/// Value of a missing file descriptor.
const NO_SOCKET: c_int = -1;

/// Output of records.
#[derive(Debug)]
pub(crate) struct Emitter {
    path: OnceLock<Option<ShortPath>>,
    /// The process that loaded the plugin, not a child of it.
    process: OnceLock<u32>,
    socket: AtomicI32,
    is_connected: AtomicBool,
    tried_ns: AtomicU64,
}

impl Emitter {
    pub(crate) const fn new() -> Self {
        Self {
            path: OnceLock::new(),
            process: OnceLock::new(),
            socket: AtomicI32::new(NO_SOCKET),
            is_connected: AtomicBool::new(false),
            tried_ns: AtomicU64::new(0),
        }
    }

    /// Opens the socket that the environment names. Only the first name is used.
    pub(crate) fn open(&self, path: Option<&[u8]>, now_ns: u64) {
        self.process.get_or_init(std::process::id);
        let path = self.path.get_or_init(|| path.and_then(ShortPath::new));
        if path.is_none() || self.socket.load(Ordering::Acquire) != NO_SOCKET {
            return;
        }
        let Some(socket) = system::socket() else {
            return;
        };
        let ours =
            self.socket
                .compare_exchange(NO_SOCKET, socket, Ordering::AcqRel, Ordering::Acquire);
        if ours.is_err() {
            system::close(socket);
        }
        self.tried_ns.store(0, Ordering::Relaxed);
        self.connect(now_ns);
    }

    /// Closes the socket: no communicator is left, and nothing is sent until there is one.
    pub(crate) fn close(&self) {
        let socket = self.socket.swap(NO_SOCKET, Ordering::AcqRel);
        if socket != NO_SOCKET {
            system::close(socket);
        }
    }

    /// Emits a record. Never blocks: records that the socket does not accept at once are counted.
    pub(crate) fn emit(&self, record: &Record, losses: &Losses) {
        // Linux 6.18 replaces a probed `nop` by a call into a page that a child of a `fork` does
        // not get: the child would be killed.
        if self.process.get() == Some(&std::process::id()) {
            probe::call_probe_points(record);
        }
        let socket = self.socket.load(Ordering::Acquire);
        if socket == NO_SOCKET {
            return;
        }
        if !self.is_connected.load(Ordering::Relaxed) && !self.connect(record.seen_ns) {
            Losses::increment(&losses.unsent);
            return;
        }
        let sent = system::send(socket, &record.to_bytes());
        if sent != Sent::Accepted {
            Losses::increment(&losses.unsent);
        }
        // A full socket has a reader and stays connected.
        if sent == Sent::Gone {
            self.is_connected.store(false, Ordering::Relaxed);
        }
    }

    fn connect(&self, now_ns: u64) -> bool {
        let socket = self.socket.load(Ordering::Acquire);
        let Some(Some(path)) = self.path.get().filter(|_| socket != NO_SOCKET) else {
            return false;
        };
        let tried_ns = self.tried_ns.load(Ordering::Relaxed);
        if tried_ns > 0 && now_ns.saturating_sub(tried_ns) < RETRY_INTERVAL_NS {
            return self.is_connected.load(Ordering::Relaxed);
        }
        self.tried_ns.store(now_ns.max(1), Ordering::Relaxed);
        let is_connected = system::connect(socket, path);
        self.is_connected.store(is_connected, Ordering::Relaxed);
        is_connected
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixDatagram;
    use std::path::{Path, PathBuf};

    use super::*;

    fn record(seen_ns: u64) -> Record {
        Record {
            seen_ns,
            ..Record::default()
        }
    }

    fn opened(path: &Path) -> Emitter {
        let emitter = Emitter::new();
        emitter.open(Some(path.as_os_str().as_bytes()), 1);
        emitter
    }

    fn path_in(dir: &tempfile::TempDir) -> PathBuf {
        dir.path().join("nccl")
    }

    #[test]
    fn a_socket_without_a_reader_is_retried_once_a_second_and_every_lost_record_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        let (emitter, losses) = (opened(&path), Losses::new());
        emitter.emit(&record(2), &losses);
        assert_eq!(losses.unsent.load(Ordering::Relaxed), 1);
        let reader = UnixDatagram::bind(&path).unwrap();
        emitter.emit(&record(3), &losses);
        assert_eq!(losses.unsent.load(Ordering::Relaxed), 2);
        emitter.emit(&record(RETRY_INTERVAL_NS + 4), &losses);
        assert_eq!(losses.unsent.load(Ordering::Relaxed), 2);
        let mut bytes = [0; 200];
        assert_eq!(
            reader.recv(&mut bytes).unwrap(),
            crate::record::RECORD_BYTES
        );
    }

    #[test]
    fn a_full_socket_drops_records_and_never_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        let _reader = UnixDatagram::bind(&path).unwrap();
        let (emitter, losses) = (opened(&path), Losses::new());
        for _ in 0..10_000 {
            emitter.emit(&record(2), &losses);
        }
        assert!(losses.unsent.load(Ordering::Relaxed) > 5_000);
        assert!(emitter.is_connected.load(Ordering::Relaxed));
    }

    #[test]
    fn a_closed_emitter_sends_nothing_until_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        let (emitter, losses) = (opened(&path), Losses::new());
        emitter.close();
        emitter.close();
        emitter.emit(&record(2), &losses);
        assert!(reader.recv(&mut [0; 200]).is_err());
        emitter.open(None, 3);
        emitter.emit(&record(4), &losses);
        assert!(reader.recv(&mut [0; 200]).is_ok());
        assert_eq!(losses.unsent.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn without_a_socket_nothing_is_lost() {
        let (emitter, losses) = (Emitter::new(), Losses::new());
        emitter.open(None, 1);
        emitter.emit(&record(2), &losses);
        assert_eq!(losses.unsent.load(Ordering::Relaxed), 0);
    }
}
