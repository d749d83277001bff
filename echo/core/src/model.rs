//! Plain data shared by all layers. No serialisation, no SQL, no protobuf.

mod condition;
pub mod cost;
pub mod detector_output;
pub mod event;
pub mod inputs;
