//! OTLP over gRPC.

mod encode;
mod logs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_proto::metadata;
use fleet_proto::policy::PolicySet;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use thiserror::Error;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{AsciiMetadataValue, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;
use tower::ServiceExt;

use crate::export::otlp::encode::encode;
use crate::export::{Ack, Batch, Export, ExportError, VerdictBatch};
use crate::policy::decode;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there can be no connection to an endpoint.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// It is not an address.
    #[error("endpoint {0} is not an address; give it as http://HOST:4317")]
    Invalid(String),
    /// It asks for TLS.
    #[error(
        "endpoint {0} asks for TLS, which this agent does not speak; give it as http://HOST:4317"
    )]
    Tls(String),
}

/// The connection of one agent instance, opened at the first batch and again whenever it is lost.
#[derive(Debug, Clone)]
pub struct Otlp {
    metrics: MetricsServiceClient<Channel>,
    logs: LogsServiceClient<Channel>,
    instance: AsciiMetadataValue,
}

impl Otlp {
    /// Prepares a connection. `instance` is new at every start of an agent.
    pub fn new(endpoint: &str, instance: u64) -> Result<Self, EndpointError> {
        Self::counting(endpoint, instance, &Arc::default())
    }

    /// The same; adds every connection that it opens to `connections`.
    pub fn counting(
        endpoint: &str,
        instance: u64,
        connections: &Arc<AtomicU64>,
    ) -> Result<Self, EndpointError> {
        let url = if endpoint.contains("://") {
            endpoint.to_owned()
        } else {
            format!("http://{endpoint}")
        };
        if url.starts_with("https:") {
            return Err(EndpointError::Tls(url));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let opened = Arc::clone(connections);
        // The connector that tonic makes itself cannot be asked how often it had to connect.
        let connector = connector.map_response(move |connection| {
            opened.fetch_add(1, Ordering::Relaxed);
            connection
        });
        let channel = Endpoint::from_shared(url.clone())
            .ok()
            .filter(|endpoint| endpoint.uri().host().is_some())
            .ok_or(EndpointError::Invalid(url))?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .connect_with_connector_lazy(connector);
        let metrics = MetricsServiceClient::new(channel.clone())
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let logs = LogsServiceClient::new(channel)
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let instance = format!("{instance:016x}");
        let instance = AsciiMetadataValue::try_from(instance.as_str())
            .unwrap_or_else(|_| AsciiMetadataValue::from_static("agent"));
        Ok(Self {
            metrics,
            logs,
            instance,
        })
    }

    fn numbered<T>(&self, number: u64, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let keys = request.metadata_mut();
        keys.insert(metadata::AGENT_INSTANCE, self.instance.clone());
        keys.insert(metadata::BATCH_NUMBER, MetadataValue::from(number));
        request
    }
}

impl Export for Otlp {
    async fn export(&self, batch: &Batch) -> Result<Ack, ExportError> {
        let request = self.numbered(batch.number, encode(batch));
        let sent = self.metrics.clone().export(request).await;
        sent.map(ack).map_err(|status| error(&status))
    }

    async fn tell(&self, batch: &VerdictBatch) -> Result<Ack, ExportError> {
        let request = self.numbered(batch.number, logs::encode(batch));
        let sent = self.logs.clone().export(request).await;
        sent.map(logs::ack).map_err(|status| error(&status))
    }
}

fn ack(response: Response<ExportMetricsServiceResponse>) -> Ack {
    let policy = policy(response.metadata());
    let ExportMetricsPartialSuccess {
        rejected_data_points,
        error_message,
    } = response.into_inner().partial_success.unwrap_or_default();
    Ack {
        rejected: u64::try_from(rejected_data_points).unwrap_or(0),
        reason: error_message,
        policy,
    }
}

// A policy is advice: one that cannot be read must not cost the acknowledgement of the data.
fn policy(keys: &MetadataMap) -> Option<PolicySet> {
    let bytes = keys.get_bin(metadata::POLICY)?.to_bytes().ok()?;
    if bytes.len() > metadata::POLICY_MAX_BYTES {
        tracing::warn!(
            policy.bytes = bytes.len(),
            "policy is too large and was ignored"
        );
        return None;
    }
    decode(&bytes)
        .inspect_err(|error| tracing::warn!(%error, "policy cannot be read and was ignored"))
        .ok()
}

fn error(status: &Status) -> ExportError {
    let reason = format!("{:?}: {}", status.code(), one_line(status.message()));
    let is_transport = std::error::Error::source(status).is_some();
    let retry_info = status.get_details_retry_info();
    let may_pass = match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled => true,
        // Without a hint the limit is one that waiting does not lift, such as the size of a message.
        Code::ResourceExhausted => retry_info.is_some(),
        _ => false,
    };
    if may_pass || is_transport {
        let after = retry_info.and_then(|info| info.retry_delay);
        ExportError::Later { after, reason }
    } else {
        ExportError::Refused { reason }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn status(code: Code) -> Status {
        Status::with_error_details(code, "why", ErrorDetails::new())
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::Cancelled,
        ] {
            assert!(matches!(
                error(&status(code)),
                ExportError::Later { after: None, .. }
            ));
        }
        for code in [Code::InvalidArgument, Code::Unauthenticated, Code::Internal] {
            assert!(matches!(error(&status(code)), ExportError::Refused { .. }));
        }
    }

    #[test]
    fn an_exhausted_resource_is_tried_again_only_when_the_receiver_says_so() {
        let code = Code::ResourceExhausted;
        let reason = "ResourceExhausted: why".to_owned();
        let refused = ExportError::Refused {
            reason: reason.clone(),
        };
        assert_eq!(error(&status(code)), refused);
        let hint = ErrorDetails::with_retry_info(None);
        let later = ExportError::Later {
            after: None,
            reason,
        };
        assert_eq!(error(&Status::with_error_details(code, "why", hint)), later);
    }

    #[test]
    fn the_receiver_can_name_the_delay() {
        let delay = Duration::from_millis(1500);
        let details = ErrorDetails::with_retry_info(Some(delay));
        let status = Status::with_error_details(Code::ResourceExhausted, "slow down", details);
        let reason = "ResourceExhausted: slow down".to_owned();
        assert_eq!(
            error(&status),
            ExportError::Later {
                after: Some(delay),
                reason
            }
        );
    }

    #[tokio::test]
    async fn an_endpoint_needs_a_host_and_no_tls() {
        assert!(Otlp::new("localhost:4317", 1).is_ok());
        assert!(Otlp::new("http://[::1]:4317", 1).is_ok());
        assert!(matches!(
            Otlp::new("https://echo:4317", 1),
            Err(EndpointError::Tls(_))
        ));
        assert!(matches!(
            Otlp::new("not an address", 1),
            Err(EndpointError::Invalid(_))
        ));
    }
}
