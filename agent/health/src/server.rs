//! Health of the host: the service `nvhcd.HealthCheckService`.
//!
//! Launchers with this interface ask before each rendezvous and leave out a host that is not
//! healthy. Without a statement of Echo the host is healthy: what is not known stops no job.

use std::io;

use fleet_proto::policy::Culprit;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::protocol::nvhcd::health_check_service_server::{
    HealthCheckService, HealthCheckServiceServer,
};
use crate::protocol::nvhcd::{HealthCheckRequest, HealthCheckResponse};
use crate::server::authority::Accepted;
use crate::standing::{Standing, Standings, State};

mod authority;

/// Requests of one connection at a time. A launcher has one.
const MAX_REQUESTS: usize = 4;

/// Serves the connections of `incoming` until there are no more.
///
/// # Errors
///
/// Fails if connections can no longer be accepted.
pub async fn serve(
    incoming: impl Stream<Item = io::Result<UnixStream>>,
    standings: Standings,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .concurrency_limit_per_connection(MAX_REQUESTS)
        .add_service(HealthCheckServiceServer::new(Health(standings)))
        .serve_with_incoming(incoming.map(|accepted| accepted.map(Accepted::new)))
        .await
}

#[derive(Debug)]
struct Health(Standings);

#[tonic::async_trait]
impl HealthCheckService for Health {
    async fn run_health_check(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let standing = self.0.now();
        let is_healthy = standing.state() != State::Straggler;
        if !is_healthy {
            tracing::info!("this host is reported as unhealthy: {}", standing.message());
        }
        let output = serde_json::to_string(&Output::new(&standing)).unwrap_or_default();
        Ok(Response::new(HealthCheckResponse {
            success: is_healthy,
            exit_code: i32::from(!is_healthy),
            output,
            error: if is_healthy {
                String::new()
            } else {
                standing.message()
            },
        }))
    }
}

/// JSON of an answer. Launchers read the first two fields.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    fail_count: usize,
    failed_checks: Vec<String>,
    /// Kind of the standing.
    pub(crate) state: State,
    /// Description, of at most 80 bytes.
    pub(crate) message: String,
    culprits: Vec<OutputCulprit>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OutputCulprit {
    incident_id: String,
    job: String,
    rank: u32,
    gpu_uuid: String,
    class: String,
    severity: String,
    lag_ms: f64,
}

impl Output {
    fn new(standing: &Standing) -> Self {
        let culprits = match standing {
            Standing::Unknown(_) => &[],
            Standing::Culprits(culprits) => culprits.as_slice(),
        };
        let names = culprits.iter().map(|_| "GpuStraggler".to_owned());
        Self {
            fail_count: culprits.len(),
            failed_checks: names.collect(),
            state: standing.state(),
            message: standing.message(),
            culprits: culprits.iter().map(OutputCulprit::new).collect(),
        }
    }
}

impl OutputCulprit {
    fn new(culprit: &Culprit) -> Self {
        Self {
            incident_id: culprit.incident_id.clone(),
            job: culprit.job.clone(),
            rank: culprit.rank,
            gpu_uuid: culprit.gpu_uuid.clone(),
            class: culprit.class.clone(),
            severity: culprit.severity.clone(),
            lag_ms: culprit.lag_ms,
        }
    }
}

#[cfg(test)]
mod tests;
