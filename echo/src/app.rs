//! The composition root: builds the components in the order of their dependencies, binds, spawns and drains.
//!
//! Only this module spawns tasks and waits for signals.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

use crate::clock::{Clock, SystemClock};
use crate::config::{ConfigError, ServeArgs};
use crate::feedback::refresh::Refresh;
use crate::feedback::table::PolicyTable;
use crate::ingest::admit::{Admission, AdmissionConfig};
use crate::ingest::otlp::MetricsIngest;
use crate::rates::{Rates, RatesError};
use crate::serve::{grpc, http};
use crate::store::duckdb::{DuckDbConfig, DuckDbStore};
use crate::store::{EventStore, StoreError};
use crate::tools::registry::{Registry, ToolContext};
