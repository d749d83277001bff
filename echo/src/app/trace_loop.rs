//! Keeps Echo from sending its own spans to itself.

use std::net::SocketAddr;

use tokio::net::lookup_host;

use crate::app::AppError;
use crate::config::ConfigError;
use crate::config::trace::TraceArgs;

/// Refuses a collector of spans that is one of these listeners.
pub(super) async fn refuse_own(args: &TraceArgs, own: &[SocketAddr]) -> Result<(), AppError> {
    let Some(authority) = args.authority() else {
        return Ok(());
    };
    // A name that leads nowhere today may do so later; the exporter tries again.
    let Ok(addresses) = lookup_host(authority).await else {
        return Ok(());
    };
    for address in addresses {
        // Echo listens on loopback addresses only, and every one of them is this host.
        let is_own = |own: &SocketAddr| own.port() == address.port();
        let reaches_here = address.ip().is_loopback() || address.ip().is_unspecified();
        if reaches_here && own.iter().any(is_own) {
            return Err(AppError::Config(ConfigError::of(format!(
                "--trace-endpoint {authority} is this Echo itself: its spans would come back as requests; name another collector"
            ))));
        }
    }
    Ok(())
}
