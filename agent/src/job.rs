//! Simulated job: how long each rank waits for its peers, and the calls that its ranks make. Pure.
//!
//! Every rank prepares its step on the host, enqueues all of its work at once and waits for its
//! GPU. The times on the GPUs follow from one rule: an operation ends when its last rank has
//! entered it and its transfer is complete. So a late rank makes its peers wait and lengthens the
//! period, without a special case for either.

pub mod calls;
pub mod fault;
pub mod layout;
pub mod steps;
