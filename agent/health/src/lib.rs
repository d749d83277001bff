//! What Echo reports about this host, for launchers and health monitors of the host.
//!
//! [`standing`] is the latest statement of Echo. [`server`] answers launchers with it and
//! [`check`] reads that answer for node-problem-detector; [`sentinel`] sends its changes to
//! `NVSentinel`. Whether an incident is reported at all, and how many at a time, is decided by the
//! actions of Echo.

pub mod check;
pub mod sentinel;
pub mod server;
pub mod standing;

#[allow(
    clippy::all,
    clippy::disallowed_methods,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    reason = "generated from the protocols"
)]
mod protocol {
    pub(crate) mod datamodels {
        tonic::include_proto!("datamodels");
    }
    pub(crate) mod nvhcd {
        tonic::include_proto!("nvhcd");
    }
}

#[cfg(test)]
mod sample;
