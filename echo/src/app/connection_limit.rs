//! Limit of connections, within the limit of open files of the process.

use std::num::{NonZeroU32, NonZeroUsize};

use echo_serve::open_files;
use tracing::info;

use crate::config::ServeArgs;

/// Number of listeners: OTLP over gRPC, OTLP over HTTP, and the API.
const LISTENERS: u64 = 3;

/// Returns the arguments with the connection limit reduced to the open file limit of the process.
pub(super) fn with_open_file_limit(args: &ServeArgs) -> ServeArgs {
    let mut args = args.clone();
    let requested = args.bounds.max_connections;
    let each = open_files::raise_limit(LISTENERS * u64::from(requested.get())) / LISTENERS;
    let each = u32::try_from(each).ok().and_then(NonZeroU32::new);
    args.bounds.max_connections = each.unwrap_or(NonZeroU32::MIN);
    if args.bounds.max_connections < requested {
        info!(
            "--max-connections lowered from {requested} to {} by the open file limit of the process (ulimit -n, LimitNOFILE)",
            args.bounds.max_connections
        );
    }
    args
}

/// Number of CPU cores available to this process.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
