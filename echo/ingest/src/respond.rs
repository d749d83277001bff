//! Responses: rejections in the body, the policy in the metadata (over HTTP: headers), and errors
//! as a status.

use std::time::Duration;

use bytes::Bytes;
use echo_core::error::{Code, Coded};
use echo_core::policy_table::ClusterPolicy;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use serde_json::json;
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap};
use tonic_types::{ErrorDetails, StatusExt};

use super::accept::{Accepted, IngestError};
use super::decode::Payload;
use super::decode::reject::Rejections;

/// Retry delay sent by an overloaded collector.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Returns the gRPC response to an accepted request, with its encoded body.
pub fn grpc(payload: Payload, accepted: &Accepted) -> tonic::Response<Bytes> {
    let mut response = tonic::Response::new(body(payload, &accepted.rejections));
    if let Some(policy) = &accepted.policy {
        insert_policy(policy, response.metadata_mut());
    }
    let culprits = accepted.culprits.as_ref();
    if let Some(culprits) = culprits.filter(|one| one.len() <= metadata::CULPRITS_MAX_BYTES) {
        let culprits = BinaryMetadataValue::from_bytes(culprits);
        let metadata = response.metadata_mut();
        metadata.insert_bin(metadata::CULPRITS, culprits);
    }
    response
}

/// Returns the encoded body of the response to an accepted request.
pub fn body(payload: Payload, rejections: &Rejections) -> Bytes {
    let rejected = i64::try_from(rejections.total()).unwrap_or(i64::MAX);
    let error_message = || rejections.to_string();
    let encoded = match payload {
        Payload::Metrics => ExportMetricsServiceResponse {
            partial_success: (rejected > 0).then(|| ExportMetricsPartialSuccess {
                rejected_data_points: rejected,
                error_message: error_message(),
            }),
        }
        .encode_to_vec(),
        Payload::Logs => ExportLogsServiceResponse {
            partial_success: (rejected > 0).then(|| ExportLogsPartialSuccess {
                rejected_log_records: rejected,
                error_message: error_message(),
            }),
        }
        .encode_to_vec(),
        Payload::Traces => ExportTraceServiceResponse {
            partial_success: (rejected > 0).then(|| ExportTracePartialSuccess {
                rejected_spans: rejected,
                error_message: error_message(),
            }),
        }
        .encode_to_vec(),
    };
    Bytes::from(encoded)
}

/// Returns the body in JSON, where 64-bit numbers are strings.
pub fn json(payload: Payload, rejections: &Rejections) -> Bytes {
    let rejected = match payload {
        Payload::Metrics => "rejectedDataPoints",
        Payload::Logs => "rejectedLogRecords",
        Payload::Traces => "rejectedSpans",
    };
    let body = if rejections.total() == 0 {
        json!({})
    } else {
        json!({"partialSuccess": {
            rejected: rejections.total().to_string(),
            "errorMessage": rejections.to_string(),
        }})
    };
    Bytes::from(body.to_string())
}

/// Returns the values of the headers for Ingero agents: the threshold, if there is one, and the
/// quorum flag.
pub fn ingero_scalars(policy: &ClusterPolicy) -> (Option<String>, &'static str) {
    let threshold = policy
        .threshold()
        .filter(|threshold| threshold.is_finite())
        .map(|threshold| threshold.to_string());
    let quorum_met = if policy.has_quorum() { "true" } else { "false" };
    (threshold, quorum_met)
}

/// Adds the policy to the metadata. A policy over the agreed size is left out, since it would
/// exceed the header limit of the sender and fail the acknowledgement.
fn insert_policy(policy: &ClusterPolicy, metadata: &mut MetadataMap) {
    if (1..=metadata::POLICY_MAX_BYTES).contains(&policy.encoded.len()) {
        let set = BinaryMetadataValue::from_bytes(&policy.encoded);
        metadata.insert_bin(metadata::POLICY, set);
    }
    let (threshold, quorum_met) = ingero_scalars(policy);
    if let Some(threshold) = threshold.and_then(|text| AsciiMetadataValue::try_from(text).ok()) {
        metadata.insert(metadata::INGERO_THRESHOLD, threshold);
    }
    metadata.insert(
        metadata::INGERO_QUORUM_MET,
        AsciiMetadataValue::from_static(quorum_met),
    );
}

/// Returns the status for an unknown method.
#[expect(
    clippy::disallowed_methods,
    reason = "a protocol status without an error code of the collector"
)]
pub fn no_such_method() -> tonic::Status {
    tonic::Status::new(tonic::Code::Unimplemented, "no such method")
}

/// Returns the status of a request that is rejected before its body is read.
#[expect(
    clippy::disallowed_methods,
    reason = "maps the table of `error` to a status"
)]
pub fn rejection(code: Code, message: &str) -> tonic::Status {
    tonic::Status::new(tonic::Code::from_i32(code.grpc()), message)
}

/// Returns the status of a failed request. If the collector is busy or cannot store, the status has
/// a retry delay, without which senders would drop the data. Internal errors contain only the
/// number under which they were logged.
#[expect(
    clippy::disallowed_methods,
    reason = "maps the table of `error` to a status"
)]
pub fn status(error: &IngestError, request: u64) -> tonic::Status {
    let code = error.code();
    let grpc = tonic::Code::from_i32(code.grpc());
    let message = message(error, request);
    if matches!(error, IngestError::Unsupported(_)) {
        let mut status = tonic::Status::new(tonic::Code::Unimplemented, message);
        let known = AsciiMetadataValue::from_static("gzip,zstd,identity");
        status.metadata_mut().insert("grpc-accept-encoding", known);
        return status;
    }
    if matches!(code, Code::Busy | Code::TooMany) {
        let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
        return tonic::Status::with_error_details(grpc, message, details);
    }
    tonic::Status::new(grpc, message)
}

/// Returns the error message for the sender.
pub fn message(error: &IngestError, request: u64) -> String {
    match error.code() {
        Code::Internal => format!("internal error, logged by the collector as request {request}"),
        Code::Busy if error.is_internal() => {
            format!("{error}; logged by the collector as request {request}")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use echo_core::error::chain;
    use echo_core::policy_table::{ClusterPolicy, HealthThreshold};
    use echo_store::StoreError;
    use fleet_proto::metadata;
    use tonic_types::StatusExt;

    use super::{grpc, status};
    use crate::accept::{Accepted, IngestError};
    use crate::budget::OverBudget;
    use crate::decode::Payload;
    use crate::decode::reject::Rejections;

    fn accepted(encoded: Bytes, threshold: Option<f64>) -> Accepted {
        Accepted {
            rejections: Rejections::default(),
            culprits: None,
            policy: Some(ClusterPolicy {
                version: 1,
                encoded,
                quorum_met: false,
                health: threshold.map(HealthThreshold::example),
            }),
        }
    }

    #[test]
    fn a_threshold_is_a_plain_decimal_and_absent_without_health_scores() {
        let threshold = |threshold| {
            let response = grpc(Payload::Metrics, &accepted(Bytes::new(), threshold));
            let value = response.metadata().get(metadata::INGERO_THRESHOLD);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(threshold(Some(0.000_001_5)).as_deref(), Some("0.0000015"));
        assert_eq!(threshold(Some(f64::NAN)), None);
        assert_eq!(threshold(None), None);
    }

    #[test]
    fn a_policy_over_the_size_limit_is_left_out() {
        let policy = |bytes| {
            let response = grpc(
                Payload::Metrics,
                &accepted(Bytes::from(vec![1; bytes]), None),
            );
            response.metadata().get_bin(metadata::POLICY).is_some()
        };
        assert!(policy(metadata::POLICY_MAX_BYTES));
        assert!(!policy(metadata::POLICY_MAX_BYTES + 1));
    }

    #[test]
    fn an_internal_error_is_not_retryable() {
        let status = status(&IngestError::Aborted, 17);
        assert_eq!(status.code(), tonic::Code::Internal);
        assert!(status.message().contains("17"));
        assert!(status.get_details_retry_info().is_none());
    }

    #[test]
    fn an_engine_error_is_retryable_and_reveals_no_details() {
        let engine = StoreError::Engine {
            doing: "append",
            reason: "secret path".to_owned(),
        };
        let error = IngestError::from(engine);
        assert!(chain(&error).contains("secret path"), "for the log");
        let status = status(&error, 17);
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("cannot store"));
        assert!(!status.message().contains("secret"));
        assert!(status.message().contains("17"));
        assert!(status.get_details_retry_info().is_some());
    }

    #[test]
    fn only_retryable_errors_have_a_retry_delay() {
        let busy = IngestError::from(OverBudget::Busy);
        let retry = status(&busy, 1).get_details_retry_info().unwrap();
        assert_eq!(retry.retry_delay.unwrap().as_secs(), 1);
        let share = IngestError::from(OverBudget::Share);
        let share = status(&share, 1);
        assert_eq!(share.code(), tonic::Code::ResourceExhausted);
        assert!(share.get_details_retry_info().is_some());
        let too_large = status(&IngestError::TooLarge { limit: 5 }, 1);
        assert_eq!(too_large.code(), tonic::Code::ResourceExhausted);
        assert!(too_large.get_details_retry_info().is_none());
    }
}
