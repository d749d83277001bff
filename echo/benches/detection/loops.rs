//! Training loops as they are: generated ones and recorded ones, scored alike.
//!
//! The jobs of the other tables repeat one pattern of operations for ever, in blocks aligned with it. These do not: they log,
//! evaluate, save, accumulate and clip, their work varies, they exchange by pairs, and the agent may come late. A loop becomes a
//! recording, goes through the agent's own pipeline and then into the detector, so that nothing here depends on how blocks look.

pub(crate) mod case;
pub(crate) mod fault;
pub(crate) mod floor;
pub(crate) mod kind;
pub(crate) mod lines;
pub(crate) mod pipeline;
pub(crate) mod program;
pub(crate) mod recorded;
pub(crate) mod step;
pub(crate) mod suite;
pub(crate) mod table;
pub(crate) mod timeline;
pub(crate) mod verdict;
pub(crate) mod writer;
