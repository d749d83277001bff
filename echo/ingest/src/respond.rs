//! Answers: what was rejected in the body, the policy in the metadata (over HTTP: headers), and errors as one status.

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

/// When a sender that met a full collector should come back.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The response on gRPC to a request that was taken, its body already encoded.
pub fn grpc(payload: Payload, accepted: &Accepted) -> tonic::Response<Bytes> {
    let mut response = tonic::Response::new(body(payload, &accepted.rejections));
    if let Some(policy) = &accepted.policy {
        announce(policy, response.metadata_mut());
    }
    response
}

/// The encoded body of the response to a request that was taken.
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

/// The same body in JSON, where 64-bit numbers are texts.
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

/// The two scalars that Ingero agents read: the threshold, if there is one, and whether there is quorum.
pub fn scalars(policy: &ClusterPolicy) -> (Option<String>, &'static str) {
    let threshold = policy
        .threshold()
        .filter(|threshold| threshold.is_finite())
        .map(|threshold| threshold.to_string());
    let quorum_met = if policy.has_quorum() { "true" } else { "false" };
    (threshold, quorum_met)
}

/// Puts the policy into the metadata. A set over the agreed size is left out, since it would break the sender's
/// limit for headers and with it the acknowledgement.
fn announce(policy: &ClusterPolicy, metadata: &mut MetadataMap) {
    if (1..=metadata::POLICY_MAX_BYTES).contains(&policy.encoded.len()) {
        let set = BinaryMetadataValue::from_bytes(&policy.encoded);
        metadata.insert_bin(metadata::POLICY, set);
    }
    let (threshold, quorum_met) = scalars(policy);
    if let Some(threshold) = threshold.and_then(|text| AsciiMetadataValue::try_from(text).ok()) {
        metadata.insert(metadata::INGERO_THRESHOLD, threshold);
    }
    metadata.insert(
        metadata::INGERO_QUORUM_MET,
        AsciiMetadataValue::from_static(quorum_met),
    );
}

/// The status of a request for another method.
#[expect(
    clippy::disallowed_methods,
    reason = "a matter of the protocol, not an error of ours"
)]
pub fn no_such_method() -> tonic::Status {
    tonic::Status::new(tonic::Code::Unimplemented, "no such method")
}

/// The status of a request that is turned down before anything of it is read.
#[expect(
    clippy::disallowed_methods,
    reason = "the table of `error` becomes a status here, too"
)]
pub fn refusal(code: Code, message: &str) -> tonic::Status {
    tonic::Status::new(tonic::Code::from_i32(code.grpc()), message)
}

/// The status of a request that failed. Senders of a busy collector, or of one that cannot store, learn when to come
/// back: without that they would drop the data. Of what is wrong inside they get only the number under which it was
/// logged.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the table of `error` becomes a status"
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

/// What the sender of a request that failed is told.
pub fn message(error: &IngestError, request: u64) -> String {
    match error.code() {
        Code::Internal => format!("internal error, logged by the collector as request {request}"),
        Code::Busy if error.is_ours() => {
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
    fn a_policy_over_the_agreed_size_is_left_out() {
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
    fn a_defect_is_not_sent_again() {
        let status = status(&IngestError::Aborted, 17);
        assert_eq!(status.code(), tonic::Code::Internal);
        assert!(status.message().contains("17"));
        assert!(status.get_details_retry_info().is_none());
    }

    #[test]
    fn a_failing_engine_is_not_described_but_the_batch_is_asked_for_again() {
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
    fn only_what_can_be_sent_again_is_told_to_be_sent_again() {
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
