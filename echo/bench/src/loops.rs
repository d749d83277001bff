//! Realistic training loops, generated and recorded, scored alike.
//!
//! The jobs of the other tables repeat one pattern of operations, in blocks aligned with it. These
//! loops log, evaluate, save, accumulate and clip; their work varies, they exchange in pairs, and
//! the agent may attach late. A loop becomes a recording, passes through the pipeline of the agent
//! and then into the detector, so that nothing depends on the form of blocks.

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
