//! A job that never ran: who waits for whom and how long, and the calls that its ranks would have made. Pure.
//!
//! Every rank prepares its step on the host, hands over all of its work at once and waits for its GPU. What the GPUs do
//! follows from one rule: an operation ends when the last of its ranks has entered it, and its transfer is over.
//! So a late rank makes its peers wait and the period grow, without a word about either in this module.

pub mod calls;
pub mod fault;
pub mod layout;
pub mod steps;
