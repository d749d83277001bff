//! The listeners: what is reachable from outside, and on which terms.

mod answer;
mod asking;
pub mod audit;
mod body;
pub mod callers;
mod connections;
pub mod contexts;
pub mod files;
pub mod gate;
pub mod grpc;
pub mod http;
pub mod key_sets;
pub mod listener;
pub mod mcp;
pub mod otlp_http;
mod pages;
pub mod panics;
mod rate_limit;
pub mod reloads;
mod request;
mod session;
pub mod terms;
pub mod tls;
