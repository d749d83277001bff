//! Quick part of the detector benchmark: requirements on simulated and recorded jobs.

use std::path::{Path, PathBuf};

#[cfg(test)]
mod costs;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod promptness;
#[cfg(test)]
mod truth;

/// Returns a path in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}
