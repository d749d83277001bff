//! Plain data that every layer understands. No serialisation, no SQL, no protobuf.

pub mod conclusion;
pub mod cost;
pub mod event;
pub mod inputs;
