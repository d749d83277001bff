//! Files that may change while Echo runs: certificates, keys, who may call, prices.
//!
//! They are looked at by content, because a mounted secret changes by exchanging a link, and taken over as a whole or not at
//! all: what cannot be used leaves in force what was there before.

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

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(10);

/// Something that is made of files.
pub(super) trait Source: Send + Sync {
    /// Looks whether the files have changed, and takes over what they hold.
    fn look(&mut self);
}

/// Values of one kind, made of files. The first is made at once.
pub(super) struct FileSource<T, F> {
    name: &'static str,
    load: F,
    files: Vec<PathBuf>,
    seen: u128,
    current: watch::Sender<Arc<T>>,
    reloads: Reloads,
}

impl<T, E, F> FileSource<T, F>
where
    E: std::error::Error,
    F: Fn() -> Result<(T, Vec<PathBuf>), E>,
{
    /// Loads for the first time: the value with the files that it was made of.
    pub(super) fn new(name: &'static str, load: F, reloads: &Reloads) -> Result<Self, E> {
        let (value, files) = load()?;
        reloads.register(name);
        Ok(Self {
            name,
            load,
            seen: content(&files),
            files,
            current: watch::Sender::new(Arc::new(value)),
            reloads: reloads.clone(),
        })
    }

    /// What is in force.
    pub(super) fn current(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }
}

impl<T, E, F> Source for FileSource<T, F>
where
    T: Send + Sync,
    E: std::error::Error,
    F: Fn() -> Result<(T, Vec<PathBuf>), E> + Send + Sync,
{
    fn look(&mut self) {
        let seen = content(&self.files);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        match (self.load)() {
            Ok((value, files)) => {
                // Which files there are may have changed with one of them.
                self.seen = content(&files);
                self.files = files;
                self.current.send_replace(Arc::new(value));
                self.reloads.succeeded(self.name);
                info!(source = self.name, "{} was read again", self.name);
            }
            Err(failure) => {
                self.reloads.failed(self.name);
                error!(
                    source = self.name,
                    error = chain(&failure),
                    "{} cannot be read again; what was read before stays in force",
                    self.name
                );
            }
        }
    }
}

/// What the files hold, and which of them cannot be read.
fn content(files: &[PathBuf]) -> u128 {
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

/// Looks at the sources again and again, and at once on SIGHUP, until told to stop.
pub(super) async fn watch(
    mut sources: Vec<Box<dyn Source>>,
    mut hangup: Signal,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = hangup.recv() => info!("looking at files for SIGHUP"),
            _stop = stopping.wait_for(|stop| *stop) => return,
        }
        for source in &mut sources {
            source.look();
        }
    }
}

/// SIGHUP, which would end the process otherwise.
pub(super) fn hangup() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}
