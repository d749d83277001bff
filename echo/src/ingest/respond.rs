//! Answers on gRPC: what was rejected in the body, the policy in the metadata, and errors as one status.

use std::time::Duration;

use bytes::Bytes;
use fleet_proto::metadata;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use prost::Message;
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap};
use tonic_types::{ErrorDetails, StatusExt};

use super::accept::{Accepted, IngestError};
use super::decode::reject::Rejections;
use crate::error::{Code, Coded};
use crate::feedback::table::ClusterPolicy;

/// When a sender that met a full collector should come back.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The response to a metrics request that was taken, its body already encoded.
pub fn metrics(accepted: &Accepted) -> tonic::Response<Bytes> {
    let body = ExportMetricsServiceResponse {
        partial_success: partial_success(&accepted.rejections),
    };
    let mut response = tonic::Response::new(Bytes::from(body.encode_to_vec()));
    if let Some(policy) = &accepted.policy {
        announce(policy, response.metadata_mut());
    }
    response
}

fn partial_success(rejections: &Rejections) -> Option<ExportMetricsPartialSuccess> {
    let rejected = rejections.total();
    (rejected > 0).then(|| ExportMetricsPartialSuccess {
        rejected_data_points: i64::try_from(rejected).unwrap_or(i64::MAX),
        error_message: rejections.to_string(),
    })
}

/// Puts the policy into the metadata. A set over the agreed size is left out, since it would break the sender's
/// limit for headers and with it the acknowledgement.
fn announce(policy: &ClusterPolicy, metadata: &mut MetadataMap) {
    if policy.encoded.len() <= metadata::POLICY_MAX_BYTES {
        let set = BinaryMetadataValue::from_bytes(&policy.encoded);
        metadata.insert_bin(metadata::POLICY, set);
    }
    let threshold = policy
        .threshold
        .filter(|threshold| threshold.is_finite())
        .and_then(|threshold| AsciiMetadataValue::try_from(threshold.to_string()).ok());
    if let Some(threshold) = threshold {
        metadata.insert(metadata::INGERO_THRESHOLD, threshold);
    }
    let quorum_met = if policy.quorum_met { "true" } else { "false" };
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
    match code {
        Code::Busy => {
            let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
            let message = if error.is_ours() {
                format!("{error}; logged by the collector as request {request}")
            } else {
                error.to_string()
            };
            tonic::Status::with_error_details(grpc, message, details)
        }
        Code::Internal => {
            let message = format!("internal error, logged by the collector as request {request}");
            tonic::Status::new(grpc, message)
        }
        _ => tonic::Status::new(grpc, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fleet_proto::metadata;
    use tonic_types::StatusExt;

    use super::{metrics, status};
    use crate::error::chain;
    use crate::feedback::table::ClusterPolicy;
    use crate::ingest::accept::{Accepted, IngestError};
    use crate::ingest::admit::AdmitError;
    use crate::ingest::decode::reject::Rejections;
    use crate::store::StoreError;

    fn accepted(encoded: Bytes, threshold: Option<f64>) -> Accepted {
        Accepted {
            rejections: Rejections::default(),
            policy: Some(ClusterPolicy {
                version: 1,
                encoded,
                threshold,
                quorum_met: false,
            }),
        }
    }

    #[test]
    fn a_threshold_is_a_plain_decimal_and_absent_without_quorum() {
        let threshold = |threshold| {
            let response = metrics(&accepted(Bytes::new(), threshold));
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
            let response = metrics(&accepted(Bytes::from(vec![1; bytes]), None));
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
        let error = IngestError::Admit(AdmitError::from(engine));
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
        let busy = IngestError::Admit(AdmitError::Busy { what: "points" });
        let retry = status(&busy, 1).get_details_retry_info().unwrap();
        assert_eq!(retry.retry_delay.unwrap().as_secs(), 1);
        let too_large = status(&IngestError::TooLarge { limit: 5 }, 1);
        assert_eq!(too_large.code(), tonic::Code::ResourceExhausted);
        assert!(too_large.get_details_retry_info().is_none());
    }
}
