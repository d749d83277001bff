//! Files that may change while Echo runs: certificates, keys, access and rates. Changes are
//! detected by content, because a mounted secret changes by replacing a symbolic link. A reload
//! applies as a whole or not at all: an invalid file leaves the previous value in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use echo_core::error::chain;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info};
use xxhash_rust::xxh3::Xxh3;

use echo_serve::reloads::Reloads;

/// Time between two checks.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A value loaded from files.
pub(super) trait WatchedFiles: Send + Sync {
    /// Reloads the value if the content of the files has changed.
    fn reload_if_changed(&mut self);
}

/// A value of type `T` loaded from files by `F`.
pub(super) struct FileSource<T, F> {
    name: &'static str,
    load: F,
    files: Vec<PathBuf>,
    digest: u128,
    current: watch::Sender<Arc<T>>,
    reloads: Reloads,
}

impl<T, E, F> FileSource<T, F>
where
    E: std::error::Error,
    F: Fn() -> Result<(T, Vec<PathBuf>), E>,
{
    /// Loads the value for the first time. `load` returns it with the files that it was read from.
    pub(super) fn new(name: &'static str, load: F, reloads: &Reloads) -> Result<Self, E> {
        let (value, files) = load()?;
        reloads.register(name);
        Ok(Self {
            name,
            load,
            digest: content_digest(&files),
            files,
            current: watch::Sender::new(Arc::new(value)),
            reloads: reloads.clone(),
        })
    }

    /// The current value.
    pub(super) fn current(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }
}

impl<T, E, F> WatchedFiles for FileSource<T, F>
where
    T: Send + Sync,
    E: std::error::Error,
    F: Fn() -> Result<(T, Vec<PathBuf>), E> + Send + Sync,
{
    fn reload_if_changed(&mut self) {
        let digest = content_digest(&self.files);
        if digest == self.digest {
            return;
        }
        self.digest = digest;
        match (self.load)() {
            Ok((value, files)) => {
                // A file may name other files.
                self.digest = content_digest(&files);
                self.files = files;
                self.current.send_replace(Arc::new(value));
                self.reloads.succeeded(self.name);
                info!(source = self.name, "reloaded {}", self.name);
            }
            Err(failure) => {
                self.reloads.failed(self.name);
                error!(
                    source = self.name,
                    error = chain(&failure),
                    "cannot reload {}; the previous value stays in force",
                    self.name
                );
            }
        }
    }
}

/// Digest of the contents of the files; an unreadable file changes it, too.
fn content_digest(files: &[PathBuf]) -> u128 {
    let mut hash = Xxh3::new();
    for file in files {
        match read(file) {
            Ok(bytes) => {
                hash.update(&bytes.len().to_le_bytes());
                hash.update(&bytes);
            }
            Err(_unreadable) => hash.update(&usize::MAX.to_le_bytes()),
        }
    }
    hash.digest128()
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(file)
}

/// Polls the files, and checks them at once on SIGHUP, until `stopping` turns true.
pub(super) async fn watch(
    mut sources: Vec<Box<dyn WatchedFiles>>,
    mut hangup: Signal,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = sleep(POLL_INTERVAL) => {}
            _ = hangup.recv() => info!("SIGHUP: checking files for changes"),
            _stop = stopping.wait_for(|stop| *stop) => return,
        }
        for source in &mut sources {
            source.reload_if_changed();
        }
    }
}

/// Handler of SIGHUP, which would otherwise end the process.
pub(super) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
