//! Socket for plugin records where plugins cannot be probed: a datagram socket, read by a thread of
//! its own, since the kernel buffers only a few datagrams. The kernel, not the sender, identifies
//! the process of a datagram.

use std::io::{self, IoSliceMut};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fleet_agent_bpf::layout::{PluginRecord, RECORD_BYTES};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

/// Maximum number of records until the next poll; later ones are dropped, and their numbers are
/// missing.
const MAX_RECORDS: usize = 1 << 16;

/// Interval at which the thread checks whether to stop.
const PAUSE: Duration = Duration::from_millis(200);

/// Socket for plugins.
#[derive(Debug)]
pub(super) struct Socket {
    path: PathBuf,
    records: Arc<Mutex<Vec<PluginRecord>>>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Socket {
    /// Opens the socket, replacing one that an earlier agent left.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if std::fs::symlink_metadata(path).is_ok() {
            std::fs::remove_file(path)?;
        }
        let socket = UnixDatagram::bind(path)?;
        // Jobs run as any user; the kernel identifies the process of a record.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        sockopt::set_socket_passcred(&socket, true)?;
        socket.set_read_timeout(Some(PAUSE))?;
        let (records, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let reader = {
            let (records, stop) = (Arc::clone(&records), Arc::clone(&stop));
            thread::Builder::new()
                .name("nccl-socket".to_owned())
                .spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        receive(&socket, &records);
                    }
                })?
        };
        Ok(Self {
            path: path.to_owned(),
            records,
            stop,
            reader: Some(reader),
        })
    }

    /// Returns the records since the last call.
    pub(super) fn take_records(&self) -> Vec<PluginRecord> {
        std::mem::take(&mut *lock(&self.records))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // A panic of the thread was already reported.
            let _ended = reader.join();
        }
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn lock(records: &Mutex<Vec<PluginRecord>>) -> MutexGuard<'_, Vec<PluginRecord>> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives one datagram, or returns after a timeout.
fn receive(socket: &UnixDatagram, records: &Mutex<Vec<PluginRecord>>) {
    let mut bytes = [0; RECORD_BYTES + 1];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::empty(),
    );
    let Ok(received) = received else {
        return;
    };
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => {
            u32::try_from(sender.pid.as_raw_nonzero().get()).ok()
        }
        _ => None,
    });
    let record = sender
        .filter(|_| received.bytes == RECORD_BYTES)
        .and_then(|pid| PluginRecord::from_bytes(pid, &bytes));
    let mut records = lock(records);
    if records.len() < MAX_RECORDS {
        records.extend(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_attributed_to_its_sender_whatever_it_claims() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nccl");
        std::fs::write(&path, "left behind").unwrap();
        let socket = Socket::open(&path).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let mut record = [0_u8; RECORD_BYTES];
        record[0] = 1;
        record[4] = 2;
        // Process id claimed by the sender.
        record[96] = 77;
        sender.send_to(&record[..50], &path).unwrap();
        sender.send_to(&record, &path).unwrap();
        let mut received = Vec::new();
        while received.is_empty() {
            received.extend(socket.take_records());
            thread::yield_now();
        }
        assert_eq!(
            (received.len(), received[0].tgid, received[0].what),
            (1, std::process::id(), 2)
        );
        drop(socket);
        assert!(!path.exists());
    }
}
