//! Echo finds the GPU that holds back a whole cluster, says why, and puts a price on it.
//!
//! Bytes come in on the left (`ingest`), are decoded to plain data (`model`), stored behind one trait
//! (`store`), analysed by functions that do no I/O (`analysis`), and answered through one tool registry
//! (`tools`). The only thing that flows back is a value: the policy table that `feedback` publishes and
//! the ingest path borrows.
//!
//! Modules are listed lowest layer first; a module imports only from layers above it in this list.
//! `tests/it/architecture.rs` keeps it so.

// Layer 0: vocabulary.
pub mod clock;
pub mod error;
pub mod fields;
pub mod ids;
pub mod spans;
pub mod stats;
pub mod units;

// Layer 1: plain data, names with `*`, which of several Echos this is, and the rule which SQL is run.
pub mod model;
pub mod pattern;
pub mod shard;
pub mod sql_guard;

// Layer 2: statistics and stores of plain data, and who may call.
pub mod access;
pub mod analysis;
pub mod rates;
pub mod store;

// Layer 3: what is done with what is stored.
pub mod feedback;
pub mod tools;

// Layer 4: the way in.
pub mod ingest;

// Layer 5: the listeners.
pub mod serve;

// Layer 6: flags and logs.
pub mod config;
pub mod telemetry;

// Layer 7: what the program does. Only the tools from the shell do without a database.
#[cfg(feature = "duckdb")]
pub mod app;
pub mod cli;
#[cfg(feature = "duckdb")]
pub mod demo;
