//! Tools about the processes of a host: the calls, causal chains and stacks that agents report, with
//! or without a rank, and which nodes report what.

pub mod causal_chains;
pub mod check;
pub mod filter;
pub mod graph_lifecycle;
pub mod peers;
pub mod process;
pub mod stacks;
pub mod trace_stats;

#[cfg(test)]
mod tests;
