//! Echo finds the GPU that holds back a whole cluster, the cause and the cost.
//! `echo_ingest` receives OTLP and decodes it to plain data (`echo_core::model`), `echo_store`
//! stores it behind one trait, `echo_analysis` analyses it without I/O, and `echo_tools` answers
//! queries through one tool registry. The only value that flows back is the policy table, which
//! [`feedback`] publishes and the ingest path reads.
//!
//! Modules are listed lowest layer first; a module imports only from layers above it in this list.
//! `tests/it/architecture.rs` enforces this.

// Layer 1: the feedback loop from stored events to policies.
pub mod feedback;

// Layer 2: configuration and telemetry.
pub mod config;
mod progress;
pub mod telemetry;

// Layer 3: the composition root.
pub mod app;

// Layer 4: commands.
pub mod cli;
pub mod demo;
pub mod import;

// Layer 5: errors and exit codes of the program.
pub mod failure;
