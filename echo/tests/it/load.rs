//! A sender of small, numbered batches over OTLP/HTTP, to compare acknowledged with stored points.

use std::collections::BTreeMap;
use std::path::Path;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

/// Distance between the numbers of two batches; a batch has fewer points.
pub(crate) const STRIDE: u64 = 10_000;

/// Result of sending a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The batch is stored durably.
    Acknowledged,
    /// The batch was refused, with this status and this `Retry-After` in seconds, if any.
    Refused(u16, Option<u64>),
    /// No response: the batch may be stored or not.
    Unknown,
}

/// Returns an encoded batch of `n_points`. All points of all batches have different values.
pub(crate) fn request(batch: u64, n_points: u64) -> Vec<u8> {
    request_of("load", batch, n_points)
}

/// The same, of a cluster.
pub(crate) fn request_of(cluster: &str, batch: u64, n_points: u64) -> Vec<u8> {
    let text = |key: &str, value: String| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..KeyValue::default()
    };
    let point = |index: u64| NumberDataPoint {
        time_unix_nano: 1_763_700_000_000_000_000 + batch * 1_000_000_000 + index * 1_000,
        value: Some(number_data_point::Value::AsInt(
            i64::try_from(batch * STRIDE + index).unwrap(),
        )),
        attributes: vec![text("note", format!("{:x}", mixed(batch * STRIDE + index)))],
        ..NumberDataPoint::default()
    };
    let metric = Metric {
        name: "load.point".to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: (0..n_points).map(point).collect(),
        })),
        ..Metric::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![
                    text("fleet.cluster.id", cluster.to_owned()),
                    text("fleet.node.id", "node-1".to_owned()),
                ],
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec()
}

/// Returns a pseudorandom number derived from `n`.
pub(crate) const fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Creates a client that keeps its connection.
pub(crate) fn sender() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build();
    ureq::Agent::new_with_config(config)
}

/// Sends a batch with the id of an agent and the number of the batch.
pub(crate) fn send(
    sender: &ureq::Agent,
    address: &str,
    instance: &str,
    number: u64,
    body: &[u8],
) -> Sent {
    let sent = sender
        .post(format!("http://{address}/v1/metrics"))
        .header("content-type", "application/x-protobuf")
        .header("fleet-agent-instance", instance)
        .header("fleet-batch-number", number.to_string())
        .send(body);
    match sent {
        Ok(response) if response.status() == 200 => Sent::Acknowledged,
        Ok(response) => {
            let wait = response.headers().get("retry-after");
            let wait = wait.and_then(|wait| wait.to_str().ok()?.parse().ok());
            Sent::Refused(response.status().as_u16(), wait)
        }
        Err(_cut_off) => Sent::Unknown,
    }
}

/// Returns the numbers of points and of distinct points of each batch in the database of a stopped
/// instance. Opens a copy, so that the database stays unchanged.
#[expect(clippy::disallowed_methods, reason = "reads a copy, without the store")]
pub(crate) fn stored(db: &Path) -> BTreeMap<u64, (u64, u64)> {
    let copy = tempfile::tempdir().unwrap();
    let folder = db.parent().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_file() && !name.ends_with(".ballast") {
            std::fs::copy(&path, copy.path().join(name)).unwrap();
        }
    }
    let connection = duckdb::Connection::open(copy.path().join(db.file_name().unwrap())).unwrap();
    let mut statement = connection
        .prepare(&format!(
            "SELECT (value_int // {STRIDE})::UBIGINT, count(*)::UBIGINT, count(DISTINCT value_int)::UBIGINT
             FROM events WHERE metric_name = 'load.point' GROUP BY 1"
        ))
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))));
    rows.unwrap().map(Result::unwrap).collect()
}
