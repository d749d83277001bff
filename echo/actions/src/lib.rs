//! Actions: incidents with a culprit are reported to the systems that act on them, within limits.
//!
//! The core is pure: [`policy`] selects, [`breaker`] limits, [`planner`] compares the open
//! incidents with what has been reported, and [`queue`] orders and retries. The shell keeps the
//! state in a file ([`journal`]), sends ([`consumers`]) and counts ([`counts`]);
//! [`dispatcher`] connects them. Without `mode: act`, an action is logged and counted, and nothing
//! is sent.

pub mod agents;
pub mod breaker;
pub mod consumer;
pub mod consumers;
pub mod counts;
pub mod dispatcher;
pub mod journal;
pub mod notice;
pub mod planner;
pub mod policy;
pub mod queue;
pub mod record;
pub mod refusal;
pub mod selection;
pub mod state;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod stand_in;
