//! Encoding of self-verdicts as OTLP log records.

use fleet_agent_core::batch::{ResourceVerdicts, VerdictBatch};
use fleet_agent_core::printable::printable;
use fleet_agent_core::verdict::{Measure, SelfVerdict, State};
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use tonic::Response;

use crate::Ack;
use crate::otlp::encode::{double, int, resource, scope, seq_attribute, text};
use crate::otlp::status::MAX_REASON;

/// Encodes the request that delivers a batch.
pub(super) fn encode(batch: &VerdictBatch) -> ExportLogsServiceRequest {
    let resource_logs = batch.resources.iter().map(resource_logs).collect();
    ExportLogsServiceRequest { resource_logs }
}

/// Converts the response. A policy in it is ignored: points deliver the same one.
pub(super) fn ack(response: Response<ExportLogsServiceResponse>) -> Ack {
    let ExportLogsPartialSuccess {
        rejected_log_records,
        error_message,
    } = response.into_inner().partial_success.unwrap_or_default();
    Ack {
        rejected: u64::try_from(rejected_log_records).unwrap_or(0),
        reason: printable(&error_message, MAX_REASON),
        ..Ack::default()
    }
}

fn resource_logs(own: &ResourceVerdicts) -> ResourceLogs {
    ResourceLogs {
        resource: Some(resource(&own.resource)),
        scope_logs: vec![ScopeLogs {
            scope: Some(scope()),
            log_records: own.verdicts.iter().map(record).collect(),
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    }
}

fn record(verdict: &SelfVerdict) -> LogRecord {
    let (severity, severity_text) = match verdict.state {
        State::Raised => (SeverityNumber::Warn, "WARN"),
        State::Cleared => (SeverityNumber::Info, "INFO"),
    };
    let body = Any::StringValue(verdict.to_string());
    LogRecord {
        time_unix_nano: verdict.time_ns,
        observed_time_unix_nano: verdict.time_ns,
        severity_number: severity.into(),
        severity_text: severity_text.to_owned(),
        event_name: metric::STRAGGLER.to_owned(),
        body: Some(AnyValue { value: Some(body) }),
        attributes: attributes(verdict),
        ..LogRecord::default()
    }
}

fn attributes(verdict: &SelfVerdict) -> Vec<KeyValue> {
    let block = &verdict.block;
    let mut attributes = vec![
        text(attribute::STRAGGLER_STATE, verdict.state.name()),
        text(attribute::STRAGGLER_MODE, verdict.mode.name()),
        text(attribute::SIGNAL, attribute::SIGNAL_HOST_GAP),
        text(attribute::COMM_ID, &block.comm.to_string()),
        seq_attribute(attribute::SEQ_FIRST, block.seq_first),
        seq_attribute(attribute::SEQ_LAST, block.seq_last),
    ];
    if let Some(measure) = verdict.measure {
        let Measure {
            lag_ms,
            z,
            effect_ratio,
        } = measure;
        attributes.extend([
            double(attribute::LAG_MS, lag_ms),
            double(attribute::Z, z),
            double(attribute::EFFECT_RATIO, effect_ratio),
        ]);
    }
    let version = verdict.policy_version;
    attributes.extend(version.map(|version| {
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        int(attribute::POLICY_VERSION, version)
    }));
    let role = block.role;
    attributes.extend(role.map(|role| text(attribute::ROLE, &role.to_string())));
    attributes
}
