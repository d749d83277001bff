//! How measurements come in: OTLP requests become events.

pub mod decode;
#[cfg(test)]
mod fixture;
