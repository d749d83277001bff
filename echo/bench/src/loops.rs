//! Training loops as they are: generated ones and recorded ones, scored alike.
//!
//! The jobs of the other tables repeat one pattern of operations for ever, in blocks aligned with it. These do not: they log,
//! evaluate, save, accumulate and clip, their work varies, they exchange by pairs, and the agent may come late. A loop becomes a
//! recording, goes through the agent's own pipeline and then into the detector, so that nothing here depends on how blocks look.

pub mod case;
pub mod fault;
pub mod floor;
pub mod kind;
pub mod lines;
pub mod pipeline;
pub mod program;
pub mod recorded;
pub mod step;
pub mod suite;
pub mod table;
pub mod timeline;
pub mod verdict;
pub mod writer;
