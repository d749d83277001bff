//! Collector on a real connection, which can refuse requests for a while and may not support logs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fleet_agent::replay::summary::Summary;
use fleet_agent::replay::{ReplayError, replay};
use fleet_agent_export::otlp::Otlp;
use fleet_proto::metadata;
use fleet_proto::policy::PolicySet;
use indicatif::ProgressBar;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::collect::{args, recording};

/// Agent instance and batch number.
pub(crate) type Key = (String, String);

/// Collector that deduplicates batches. It can refuse every third attempt, and the first attempt of
/// every batch of logs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Collector {
    pub(crate) attempts: Arc<Mutex<Vec<Key>>>,
    pub(crate) stored: Arc<Mutex<BTreeMap<Key, ExportMetricsServiceRequest>>>,
    pub(crate) policy: Option<PolicySet>,
    pub(crate) refuses: bool,
    pub(crate) rejects: bool,
    /// Required token, which can change.
    pub(crate) token: Option<Arc<Mutex<String>>>,
    pub(crate) logs: Logs,
    pub(crate) log_attempts: Arc<Mutex<Vec<Key>>>,
    pub(crate) stored_logs: Arc<Mutex<BTreeMap<Key, ExportLogsServiceRequest>>>,
}

/// Handling of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Logs {
    /// Accepts them.
    #[default]
    Takes,
    /// Is unavailable at the first attempt of every batch.
    RefusesAtFirst,
    /// Is always unavailable.
    RefusesAlways,
    /// Rejects one record of every batch.
    Rejects,
    /// Does not implement the service.
    Unknown,
}

impl Collector {
    /// Refuses requests without the required token.
    fn authorize(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let expected = format!("Bearer {}", token.lock().unwrap());
        let sent = metadata.get("authorization").map(|sent| sent.to_str());
        if sent.is_some_and(|sent| sent.is_ok_and(|sent| sent == expected)) {
            return Ok(());
        }
        let details = ErrorDetails::new();
        Err(Status::with_error_details(
            Code::Unauthenticated,
            "invalid token",
            details,
        ))
    }
}

fn key(metadata: &MetadataMap) -> Key {
    let text = |key| metadata.get(key).unwrap().to_str().unwrap().to_owned();
    (text(metadata::AGENT_INSTANCE), text(metadata::BATCH_NUMBER))
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let key = key(request.metadata());
        let is_first = {
            let mut attempts = self.log_attempts.lock().unwrap();
            let is_first = !attempts.contains(&key);
            attempts.push(key.clone());
            is_first
        };
        if self.logs == Logs::RefusesAlways || (self.logs == Logs::RefusesAtFirst && is_first) {
            return Err(Status::with_error_details(
                Code::Unavailable,
                "not yet",
                ErrorDetails::new(),
            ));
        }
        self.stored_logs
            .lock()
            .unwrap()
            .insert(key, request.into_inner());
        let rejects = self.logs == Logs::Rejects;
        let partial_success = rejects.then(|| ExportLogsPartialSuccess {
            rejected_log_records: 1,
            error_message: "not ours".to_owned(),
        });
        Ok(Response::new(ExportLogsServiceResponse { partial_success }))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.authorize(request.metadata())?;
        let key = key(request.metadata());
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            attempts.push(key.clone());
            attempts.len()
        };
        if self.refuses && attempt % 3 == 1 {
            let details = ErrorDetails::new();
            return Err(Status::with_error_details(
                Code::Unavailable,
                "not yet",
                details,
            ));
        }
        self.stored
            .lock()
            .unwrap()
            .insert(key, request.into_inner());
        if self.refuses && attempt == 2 {
            // Stored, but the acknowledgement is lost.
            let details = ErrorDetails::new();
            return Err(Status::with_error_details(
                Code::DeadlineExceeded,
                "lost",
                details,
            ));
        }
        let partial_success = self.rejects.then(|| ExportMetricsPartialSuccess {
            rejected_data_points: 1,
            error_message: "point without a node".to_owned(),
        });
        let mut response = Response::new(ExportMetricsServiceResponse { partial_success });
        if let Some(policy) = &self.policy {
            let value = MetadataValue::from_bytes(&policy.encode_to_vec());
            response.metadata_mut().insert_bin(metadata::POLICY, value);
        }
        Ok(response)
    }
}

/// Replays to a collector and returns what it stored, with the agent's summary.
pub(crate) fn deliver(
    collector: Collector,
    name: &str,
    extra: &[&str],
) -> (Collector, Summary, Result<(), ReplayError>) {
    let mut extra = extra.to_vec();
    if !extra.contains(&"--speed") {
        extra.extend(["--speed", "max"]);
    }
    let args = args(&recording(name), &extra);
    let (summary, result) = serve(&collector, async |endpoint: String| {
        let mut instance = 0;
        let exporter = |_: &str| {
            instance += 1;
            Otlp::new(&endpoint, instance).unwrap()
        };
        replay(&args, exporter, &ProgressBar::hidden()).await
    });
    (collector, summary, result)
}

/// Runs `client` against a collector over real connections.
pub(crate) fn serve<T>(collector: &Collector, client: impl AsyncFnOnce(String) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        tokio::select! {
            () = listen(collector, None, listener) => unreachable!("the server never ends"),
            done = client(endpoint) => done,
        }
    })
}

/// Serves a collector, optionally over TLS, until it is dropped.
pub(crate) async fn listen(
    collector: &Collector,
    tls: Option<ServerTlsConfig>,
    listener: TcpListener,
) {
    let service = MetricsServiceServer::new(collector.clone())
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let logs = LogsServiceServer::new(collector.clone())
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let logs = (collector.logs != Logs::Unknown).then_some(logs);
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    let served = server
        .add_service(service)
        .add_optional_service(logs)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await;
    panic!("the server ended: {served:?}");
}
