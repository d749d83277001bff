//! Check that Echo does not export its own spans to itself.

use std::net::SocketAddr;

use tokio::net::lookup_host;

use crate::app::AppError;
use crate::config::ConfigError;
use crate::config::trace::TraceArgs;

/// Rejects a trace endpoint that is one of the instance's own listeners.
pub(super) async fn refuse_own_endpoint(
    args: &TraceArgs,
    own: &[SocketAddr],
) -> Result<(), AppError> {
    let Some(authority) = args.authority() else {
        return Ok(());
    };
    // A name that does not resolve now may resolve later; the exporter retries.
    let Ok(addresses) = lookup_host(authority).await else {
        return Ok(());
    };
    for address in addresses {
        // Every loopback address is this host.
        let is_own = |own: &SocketAddr| own.port() == address.port();
        let reaches_here = address.ip().is_loopback() || address.ip().is_unspecified();
        if reaches_here && own.iter().any(is_own) {
            return Err(AppError::Config(ConfigError::new(format!(
                "--trace-endpoint {authority} is a listener of this instance: its spans would come back as requests; give another collector"
            ))));
        }
    }
    Ok(())
}
