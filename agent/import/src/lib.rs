//! Readers of traces that other tools wrote: bytes in, plain data out. Pure.

pub mod flight_recorder;
pub mod hang;
pub mod pickle;
