//! Echo finds the GPU that holds back a whole cluster, says why, and puts a price on it.
//!
//! Bytes come in on the left (`echo_ingest`), are decoded to plain data (`echo_core::model`), stored behind one trait
//! (`echo_store`), analysed by functions that do no I/O (`echo_analysis`), and answered through one tool registry
//! (`echo_tools`). The only thing that flows back is a value: the policy table that [`feedback`] publishes and the ingest
//! path borrows.
//!
//! Modules are listed lowest layer first; a module imports only from layers above it in this list.
//! `tests/it/architecture.rs` keeps it so.

// Layer 1: what is done with what is stored.
pub mod feedback;

// Layer 2: flags and logs.
pub mod config;
pub mod telemetry;

// Layer 3: what the program does.
pub mod app;

// Layer 4: its commands.
pub mod cli;
pub mod demo;
