use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fleet_agent_export::statement::Statement;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::protocol::datamodels::HealthEvent;
use crate::protocol::datamodels::platform_connector_server::{
    PlatformConnector, PlatformConnectorServer,
};
use crate::sample::{NODE, culprit, standings, statement};

/// Platform connector that keeps what it accepted.
#[derive(Debug, Clone, Default)]
struct Connector(Arc<Mutex<Behavior>>);

#[derive(Debug, Default)]
struct Behavior {
    /// Requests to refuse before any is accepted.
    refusals: u32,
    /// Requests to accept without an answer.
    unanswered: u32,
    accepted: Vec<HealthEvent>,
}

impl Connector {
    fn set(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn accepted(&self) -> Vec<HealthEvent> {
        self.0.lock().unwrap().accepted.clone()
    }
}

#[tonic::async_trait]
impl PlatformConnector for Connector {
    async fn health_event_occurred_v1(
        &self,
        request: Request<HealthEvents>,
    ) -> Result<Response<()>, Status> {
        let is_answered = {
            let mut behavior = self.0.lock().unwrap();
            if behavior.refusals > 0 {
                behavior.refusals -= 1;
                return Err(Status::from_error("refused".into()));
            }
            behavior.accepted.extend(request.into_inner().events);
            let is_answered = behavior.unanswered == 0;
            behavior.unanswered = behavior.unanswered.saturating_sub(1);
            is_answered
        };
        if !is_answered {
            return std::future::pending().await;
        }
        Ok(Response::new(()))
    }
}

/// A host whose standing is reported.
struct Host {
    folder: TempDir,
    connector: Connector,
    statements: watch::Sender<Option<Statement>>,
    counts: SentinelCounts,
    agent: JoinSet<()>,
    server: JoinSet<()>,
    stop_server: Option<oneshot::Sender<()>>,
}

impl Host {
    fn start(first: Option<Statement>) -> Self {
        let (statements, standings) = standings(first);
        let mut host = Self {
            folder: TempDir::new().unwrap(),
            connector: Connector::default(),
            statements,
            counts: SentinelCounts::default(),
            agent: JoinSet::new(),
            server: JoinSet::new(),
            stop_server: None,
        };
        host.start_agent(standings);
        host
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("platform-connector.sock")
    }

    fn start_agent(&mut self, standings: Standings) {
        let sentinel = Sentinel::new((&self.socket(), NODE), Strategy::StoreOnly).unwrap();
        self.counts = sentinel.counts();
        self.agent = JoinSet::new();
        self.agent.spawn(sentinel.run(standings));
    }

    fn start_connector(&mut self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let service = PlatformConnectorServer::new(self.connector.clone());
        let (stop_server, stopped) = oneshot::channel();
        self.stop_server = Some(stop_server);
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                let _stop = stopped.await;
            });
        self.server.spawn(async {
            serving.await.unwrap();
        });
    }

    async fn stop_connector(&mut self) {
        self.stop_server = None;
        self.server.join_next().await.unwrap().unwrap();
        std::fs::remove_file(self.socket()).unwrap();
    }

    fn state(&self, gpus: &[&str]) {
        let culprits: Vec<_> = gpus.iter().map(|gpu| culprit(gpu)).collect();
        self.statements.send_replace(Some(statement(&culprits)));
    }

    /// Waits until so many events are accepted, and returns them.
    async fn accepted(&self, n_events: usize) -> Vec<HealthEvent> {
        while self.connector.accepted().len() < n_events {
            tokio::task::yield_now().await;
        }
        self.connector.accepted()
    }

    async fn until(&self, condition: impl Fn(&SentinelCounts) -> bool) {
        while !condition(&self.counts) {
            tokio::task::yield_now().await;
        }
    }
}

/// What `NVSentinel` identifies an event by.
fn identity(event: &HealthEvent) -> (String, String, Vec<String>, Option<String>) {
    let entity = event.entities_impacted.first();
    (
        event.node_name.clone(),
        event.check_name.clone(),
        event.error_code.clone(),
        entity.map(|entity| entity.entity_value.clone()),
    )
}

#[tokio::test]
async fn the_end_of_an_incident_has_the_identity_of_its_beginning() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.start_connector();
    let begun = host.accepted(1).await;
    host.state(&[]);
    let all = host.accepted(3).await;
    assert_eq!(identity(&all[1]), identity(&begun[0]));
    assert_eq!(identity(&begun[0]).3.as_deref(), Some("GPU-1"));
    let healthy: Vec<bool> = all.iter().map(|event| event.is_healthy).collect();
    assert_eq!(healthy, [false, true, true]);
    host.until(|counts| counts.sent() == 3).await;
    assert_eq!(host.counts.failed(), 0);
}

#[tokio::test]
async fn a_refusing_connector_gets_the_event_until_it_accepts_it_once() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.connector.set(|behavior| behavior.refusals = 1);
    host.start_connector();
    host.until(|counts| counts.sent() == 1).await;
    host.state(&["GPU-1"]);
    host.state(&["GPU-1", "GPU-2"]);
    let gpus: Vec<_> = host.accepted(2).await.iter().map(identity).collect();
    let gpus: Vec<_> = gpus.iter().map(|one| one.3.as_deref()).collect();
    assert_eq!(gpus, [Some("GPU-1"), Some("GPU-2")]);
    assert_eq!(host.counts.failed(), 1);
}

#[tokio::test]
async fn what_begins_and_ends_while_the_connector_is_away_is_not_sent() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.until(|counts| counts.failed() > 0).await;
    host.state(&[]);
    host.start_connector();
    let all = host.accepted(1).await;
    assert_eq!(all.len(), 1);
    assert!(all[0].is_healthy && all[0].entities_impacted.is_empty());
}

#[tokio::test]
async fn a_connector_that_restarts_gets_later_changes() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.start_connector();
    host.until(|counts| counts.sent() == 1).await;
    host.stop_connector().await;
    host.state(&["GPU-1", "GPU-2"]);
    host.until(|counts| counts.failed() > 0).await;
    host.start_connector();
    let all = host.accepted(2).await;
    assert_eq!(identity(&all[1]).3.as_deref(), Some("GPU-2"));
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_answer_is_sent_again_with_the_same_identity() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.connector.set(|behavior| behavior.unanswered = 1);
    host.start_connector();
    while host.connector.accepted().len() < 2 {
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let all = host.connector.accepted();
    assert_eq!(identity(&all[0]), identity(&all[1]));
}

#[tokio::test]
async fn a_new_agent_ends_what_a_killed_one_has_reported() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.start_connector();
    host.until(|counts| counts.sent() == 1).await;
    host.agent.shutdown().await;
    let (_statements, standings) = standings(Some(statement(&[])));
    host.start_agent(standings);
    let all = host.accepted(2).await;
    assert!(all[1].is_healthy && all[1].entities_impacted.is_empty());
}

#[tokio::test]
async fn without_a_statement_nothing_is_sent_and_nothing_ends() {
    let mut host = Host::start(Some(statement(&[culprit("GPU-1")])));
    host.start_connector();
    host.until(|counts| counts.sent() == 1).await;
    host.statements.send_replace(Some(Statement::new(None)));
    host.state(&["GPU-1", "GPU-2"]);
    let all = host.accepted(2).await;
    assert!(all.iter().all(|event| !event.is_healthy));
}
