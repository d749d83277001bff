//! Event sources: GPU jobs of this host while they run, and recordings of such jobs. Recordings are
//! also written here.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | 0 | [`source`], [`functions`], [`comm_fields`], [`symbols`] | the interface, and the layout of the probed libraries |
//! | 1 | [`instruction`], [`placement`], [`process`] | programs and processes of the host |
//! | 2 | [`watch`] | probes and their records |
//! | 3 | [`live`], [`recording`] | the two sources |
//! | 4 | [`recorder`] | watch results as lines of a recording |

pub mod comm_fields;
pub mod functions;
pub mod instruction;
pub mod live;
pub mod placement;
pub mod process;
pub mod recorder;
pub mod recording;
pub mod source;
pub mod symbols;
pub mod watch;
