//! The two listeners for OTLP: over gRPC and over HTTP.

use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::api_listener::Asking;
use crate::app::inputs::Inputs;
use crate::app::{AppError, address, bind, stopped, trace_loop};
use crate::config::ServeArgs;
use echo_ingest::accept::Ingest;
use echo_ingest::otlp::grpc::{LogsService, MetricsService, TracesService};
use echo_serve::listener::{Connections, Listener};
use echo_serve::middleware::Middleware;
use echo_serve::tls::Encryption;
use echo_serve::{grpc, otlp_http};

/// Bound, and nothing taken yet.
#[derive(Debug)]
pub(super) struct Doors {
    /// Where OTLP over gRPC is taken.
    pub(super) otlp_address: SocketAddr,
    /// Where OTLP over HTTP is taken.
    pub(super) otlp_http_address: SocketAddr,
    otlp: Listener,
    otlp_http: Listener,
    otlp_seen: Connections,
    otlp_http_seen: Connections,
    terms: Middleware,
    encryption: Encryption,
}

impl Doors {
    /// Binds.
    pub(super) async fn open(
        args: &ServeArgs,
        asking: &Asking,
        inputs: &Inputs,
    ) -> Result<Self, AppError> {
        let otlp = bind("--otlp-listen", args.otlp_listen).await?;
        let otlp_http = bind("--otlp-http-listen", args.otlp_http_listen).await?;
        let (otlp_address, otlp_http_address) = (address(&otlp)?, address(&otlp_http)?);
        let own = [otlp_address, otlp_http_address, asking.address];
        trace_loop::refuse_own(&args.trace, &own).await?;
        let config = args.bounds.listen();
        let (otlp_seen, otlp_http_seen) = (Connections::default(), Connections::default());
        Ok(Self {
            otlp_address,
            otlp_http_address,
            otlp: Listener::new(otlp, config, otlp_seen.clone()),
            otlp_http: Listener::new(otlp_http, config, otlp_http_seen.clone()),
            otlp_seen,
            otlp_http_seen,
            terms: inputs.terms.clone(),
            encryption: inputs.of_agents.clone(),
        })
    }

    /// What each listener sees, by its name.
    pub(super) fn seen(&self, asking: &Asking) -> [(&'static str, Connections); 3] {
        [
            ("otlp", self.otlp_seen.clone()),
            ("otlp_http", self.otlp_http_seen.clone()),
            ("http", asking.connections.clone()),
        ]
    }

    /// Serves until `listening` says to stop.
    pub(super) fn listen(self, ingest: Ingest, listening: watch::Receiver<bool>) -> JoinSet<()> {
        let (otlp, otlp_http) = (self.otlp, self.otlp_http);
        let (terms, encryption) = (self.terms, self.encryption);
        let mut listeners = JoinSet::new();
        let services = (
            MetricsService::new(ingest.clone()),
            LogsService::new(ingest.clone()),
            TracesService::new(ingest.clone()),
        );
        let until = stopped(listening.clone());
        let guard = (terms.clone(), encryption.clone());
        listeners.spawn(async move { grpc::serve(otlp, services, guard, until).await });
        let until = stopped(listening);
        listeners.spawn(async move {
            otlp_http::serve(otlp_http, ingest, (terms, encryption), until).await;
        });
        listeners
    }
}
