//! Network listeners: the HTTP API, MCP, HTML pages and the OTLP listeners, with their middleware.

pub mod audit;
pub mod auth;
mod body;
mod cluster_list;
mod connections;
pub mod grpc;
pub mod http;
pub mod jwks;
pub mod listener;
pub mod mcp;
pub mod middleware;
pub mod open_files;
pub mod origin;
pub mod otlp_http;
mod pages;
pub mod panics;
mod rate_limit;
pub mod reloads;
mod request;
mod request_context;
mod response;
mod session;
pub mod tls;
pub mod tool_context;
