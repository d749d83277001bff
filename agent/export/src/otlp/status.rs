//! Classification of gRPC errors: retry or refuse.

use std::error::Error;

use fleet_agent_core::printable::printable;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::ExportError;

/// Maximum length of a message, characters.
pub(super) const MAX_REASON: usize = 300;

/// Classifies an error for a sender that drops a refused batch.
pub(super) fn classify(status: &Status) -> ExportError {
    let is_transport = status.source().is_some();
    let retry_info = status.get_details_retry_info();
    let is_transient = match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled => true,
        // Without a retry hint the limit is one that waiting does not lift, such as a message size.
        Code::ResourceExhausted => retry_info.is_some(),
        _ => false,
    };
    let reason = reason(status);
    if is_transient || is_transport {
        let after = retry_info.and_then(|info| info.retry_delay);
        ExportError::Later { after, reason }
    } else {
        ExportError::Refused { reason }
    }
}

/// Classifies an error for a sender that spools batches: a missing token or permission can be
/// granted while it runs, and a proxy that redirects or does not know the path can be fixed.
pub(super) fn classify_for_spool(status: &Status) -> ExportError {
    let may_change = matches!(
        status.code(),
        Code::Unauthenticated | Code::PermissionDenied | Code::Unknown | Code::Unimplemented
    );
    match classify(status) {
        ExportError::Refused { reason } if may_change => ExportError::Later {
            after: None,
            reason,
        },
        error => error,
    }
}

/// Code and message, and the root cause if the message does not contain it, such as an invalid
/// certificate.
fn reason(status: &Status) -> String {
    let message = printable(status.message(), MAX_REASON);
    let mut cause = status.source();
    while let Some(deeper) = cause.and_then(Error::source) {
        cause = Some(deeper);
    }
    let cause = cause.map(|cause| printable(&cause.to_string(), MAX_REASON));
    let cause = cause.filter(|cause| !cause.is_empty() && !message.contains(cause));
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let reason = format!("{:?}: {message}{cause}", status.code());
    match scheme_hint(&reason) {
        Some(hint) => format!("{reason} ({hint})"),
        None => reason,
    }
}

const SPEAKS_NO_TLS: &str = "it does not speak TLS: use http://";
const SPEAKS_TLS: &str = "it speaks TLS: use https://";

/// Returns what to do when the endpoint has the wrong scheme.
fn scheme_hint(reason: &str) -> Option<&'static str> {
    // Of rustls: the answer to its greeting is not TLS.
    if reason.contains("InvalidContentType") {
        return Some(SPEAKS_NO_TLS);
    }
    // Of h2: an alert of TLS, read as a frame of HTTP/2.
    let speaks_tls = reason.contains("frame with invalid size");
    speaks_tls.then_some(SPEAKS_TLS)
}

/// Returns whether the reason of a failure tells what to do.
pub(crate) fn has_advice(reason: &str) -> bool {
    reason.contains(SPEAKS_NO_TLS) || reason.contains(SPEAKS_TLS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code) -> Status {
        Status::with_error_details(code, "why", ErrorDetails::new())
    }

    #[test]
    fn the_wrong_scheme_of_an_endpoint_is_named() {
        let reason_of = |code, message: &str| {
            reason(&Status::with_error_details(
                code,
                message,
                ErrorDetails::new(),
            ))
        };
        let tls = reason_of(Code::Internal, "h2 protocol error: frame with invalid size");
        assert!(tls.ends_with("(it speaks TLS: use https://)"), "{tls}");
        let plain = "received corrupt message of type InvalidContentType";
        let plain = reason_of(Code::Unavailable, plain);
        assert!(
            plain.ends_with("(it does not speak TLS: use http://)"),
            "{plain}"
        );
        assert_eq!(reason_of(Code::Internal, "why"), "Internal: why");
    }

    #[test]
    fn only_transient_errors_are_retried() {
        for code in [
            Code::Unavailable,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::Cancelled,
        ] {
            assert!(matches!(
                classify(&status(code)),
                ExportError::Later { after: None, .. }
            ));
        }
        for code in [Code::InvalidArgument, Code::Unauthenticated, Code::Internal] {
            assert!(matches!(
                classify(&status(code)),
                ExportError::Refused { .. }
            ));
        }
    }

    #[test]
    fn a_spooling_sender_retries_permission_errors() {
        for code in [
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::Unknown,
            Code::Unimplemented,
        ] {
            let later = classify_for_spool(&status(code));
            assert!(matches!(later, ExportError::Later { .. }), "{later:?}");
        }
        let refused = classify_for_spool(&status(Code::InvalidArgument));
        assert!(matches!(refused, ExportError::Refused { .. }));
    }

    #[test]
    fn an_exhausted_resource_is_retried_only_with_a_retry_hint() {
        let code = Code::ResourceExhausted;
        let reason = "ResourceExhausted: why".to_owned();
        let refused = ExportError::Refused {
            reason: reason.clone(),
        };
        assert_eq!(classify(&status(code)), refused);
        let hint = ErrorDetails::with_retry_info(None);
        let later = ExportError::Later {
            after: None,
            reason,
        };
        assert_eq!(
            classify(&Status::with_error_details(code, "why", hint)),
            later
        );
    }

    #[test]
    fn long_messages_are_cut_and_terminal_escapes_are_removed() {
        let message = format!("\u{1b}]0;owned\u{7}{}", "x".repeat(3_000_000));
        let ExportError::Refused { reason } = classify(&Status::with_error_details(
            Code::InvalidArgument,
            message,
            ErrorDetails::new(),
        )) else {
            panic!("an invalid argument is refused");
        };
        assert!(
            reason.len() < 400 && !reason.contains(['\u{1b}', '\u{7}']),
            "{reason}"
        );
    }

    #[test]
    fn the_receiver_can_request_a_delay() {
        let delay = Duration::from_millis(1500);
        let details = ErrorDetails::with_retry_info(Some(delay));
        let status = Status::with_error_details(Code::ResourceExhausted, "slow down", details);
        let reason = "ResourceExhausted: slow down".to_owned();
        assert_eq!(
            classify(&status),
            ExportError::Later {
                after: Some(delay),
                reason
            }
        );
    }
}
