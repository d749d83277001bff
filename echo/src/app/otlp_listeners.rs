//! OTLP listeners, over gRPC and over HTTP.

use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::app::api_listener::ApiListener;
use crate::app::inputs::Inputs;
use crate::app::sockets::BoundSocket;
use crate::app::{AppError, stopped};
use crate::config::ServeArgs;
use echo_ingest::accept::Ingest;
use echo_ingest::otlp::grpc::{LogsService, MetricsService, TracesService};
use echo_serve::listener::{Connections, Listener};
use echo_serve::middleware::Middleware;
use echo_serve::tls::Encryption;
use echo_serve::{grpc, otlp_http};

/// The listeners, before they accept connections.
#[derive(Debug)]
pub(super) struct OtlpListeners {
    /// Local address of OTLP over gRPC.
    pub(super) otlp_address: SocketAddr,
    /// Local address of OTLP over HTTP.
    pub(super) otlp_http_address: SocketAddr,
    otlp: Listener,
    otlp_http: Listener,
    otlp_connections: Connections,
    otlp_http_connections: Connections,
    middleware: Middleware,
    encryption: Encryption,
}

impl OtlpListeners {
    /// Listens on both sockets.
    pub(super) fn listen(
        otlp: BoundSocket,
        otlp_http: BoundSocket,
        args: &ServeArgs,
        inputs: &Inputs,
    ) -> Result<Self, AppError> {
        let (otlp_address, otlp_http_address) = (otlp.address, otlp_http.address);
        let config = args.bounds.listen();
        let (otlp_connections, otlp_http_connections) =
            (Connections::default(), Connections::default());
        Ok(Self {
            otlp_address,
            otlp_http_address,
            otlp: Listener::new(otlp.listen()?, config, otlp_connections.clone()),
            otlp_http: Listener::new(otlp_http.listen()?, config, otlp_http_connections.clone()),
            otlp_connections,
            otlp_http_connections,
            middleware: inputs.middleware.clone(),
            encryption: inputs.otlp_encryption.clone(),
        })
    }

    /// Connection counters by listener name.
    pub(super) fn connections(&self, api: &ApiListener) -> [(&'static str, Connections); 3] {
        [
            ("otlp", self.otlp_connections.clone()),
            ("otlp_http", self.otlp_http_connections.clone()),
            ("http", api.connections.clone()),
        ]
    }

    /// Serves until `listening` turns true.
    pub(super) fn serve(self, ingest: Ingest, listening: watch::Receiver<bool>) -> JoinSet<()> {
        let (otlp, otlp_http) = (self.otlp, self.otlp_http);
        let (middleware, encryption) = (self.middleware, self.encryption);
        let mut listeners = JoinSet::new();
        let services = (
            MetricsService::new(ingest.clone()),
            LogsService::new(ingest.clone()),
            TracesService::new(ingest.clone()),
        );
        let until = stopped(listening.clone());
        let guard = (middleware.clone(), encryption.clone());
        listeners.spawn(async move { grpc::serve(otlp, services, guard, until).await });
        let until = stopped(listening);
        listeners.spawn(async move {
            otlp_http::serve(otlp_http, ingest, middleware, encryption, until).await;
        });
        listeners
    }
}
