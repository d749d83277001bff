//! Baseline receiver with the official messages: decodes a request and drops it.

use anyhow::Context;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

#[derive(Debug)]
struct Discard;

#[tonic::async_trait]
impl MetricsService for Discard {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        drop(std::hint::black_box(request));
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// Prints the address when it is ready, and serves until it is killed.
#[expect(clippy::print_stdout, reason = "the parent process reads the address")]
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let service = MetricsServiceServer::new(Discard)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd);
    Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await
        .context("the receiver failed")
}
