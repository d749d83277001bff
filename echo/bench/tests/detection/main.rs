//! The quick part of the benchmark of the detector: what must hold on simulated and on recorded jobs.

use std::path::{Path, PathBuf};

#[cfg(test)]
mod costs;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod loops;

/// A file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}
