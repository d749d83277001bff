//! Outer messages of a metrics request.
//!
//! `opentelemetry-proto` flattens the kinds of a metric into one optional field, and `serde` turns
//! an error inside such a field into an absent one: a single invalid number would drop a metric
//! silently. Here each kind is a separate field, so that errors are reported. The encoding in
//! protobuf is the same.

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, Gauge, Histogram, Sum, Summary,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use serde::Deserialize;

/// `ExportMetricsServiceRequest` with separate fields for the kinds of a metric.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Sum>,
    #[prost(message, optional, tag = "9")]
    histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")]
    exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")]
    summary: Option<Summary>,
    #[prost(message, repeated, tag = "12")]
    metadata: Vec<KeyValue>,
}
