//! The listeners: what is reachable from outside, and on which terms.

pub mod grpc;
pub mod http;
pub mod otlp_http;
