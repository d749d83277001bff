//! The listeners: what is reachable from outside, and on which terms.

pub mod files;
pub mod grpc;
pub mod http;
mod http1;
pub mod listener;
pub mod mcp;
pub mod otlp_http;
mod request;
