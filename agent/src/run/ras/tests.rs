use fleet_agent_core::signal::{CommId, Value};

use super::*;
use crate::ras::stand_in::{Server, json};

/// Address of another host, of a range that is reserved for documents.
const ELSEWHERE: &str = "192.0.2.1";

/// Agent of this host with the queries of its task.
struct Agent {
    queries: RasQueries,
    task: RasTask,
    host: Host,
}

impl Agent {
    fn new() -> Self {
        let identity = Identity {
            cluster: "lab".to_owned(),
            node: "node-a".to_owned(),
            job: Some("train".to_owned()),
            gpu_model: None,
        };
        let args = RasArgs {
            mode: RasMode::Auto,
            interval: Duration::from_secs(5),
        };
        let queries = ras_queries(&args, identity.clone(), Processes::new("/proc"));
        let (queries, task) = queries.unwrap();
        Self {
            queries,
            task,
            host: Host::new(identity, u64::MAX),
        }
    }

    /// Queries once; returns the batches and the outcome.
    async fn query(&mut self, address: SocketAddr, now_ns: u64) -> (Vec<Batch>, Outcome) {
        let report = async {
            let answer = self.queries.next_answer().await.unwrap();
            self.queries.batches(answer, &mut self.host, now_ns)
        };
        let target = at(address);
        tokio::join!(report, self.task.query(&target))
    }
}

/// Address in the network namespace of the agent.
fn at(address: SocketAddr) -> Target {
    Target {
        namespace: None,
        address,
    }
}

/// Rank and operations of each point.
fn progress(batches: &[Batch]) -> Vec<(u32, u64)> {
    let resources = batches.iter().flat_map(|batch| &batch.resources);
    let rows = resources.map(|own| match own.points[0].value {
        Value::Issued { total, .. } => (own.resource.rank.unwrap(), total),
        ref other => panic!("{other:?}"),
    });
    rows.collect()
}

#[tokio::test]
async fn the_ranks_of_this_host_are_reported_although_no_probe_follows_them() {
    let mut agent = Agent::new();
    let answer = json(&[
        ("127.0.0.1", Some(9)),
        ("127.0.0.1", Some(8)),
        (ELSEWHERE, Some(9)),
    ]);
    let address = Server::Json(answer).listen();
    let (batches, outcome) = agent.query(address, 1_000).await;
    assert_eq!(outcome, Outcome::Reported { hosts: 2 });
    assert_eq!(progress(&batches), [(0, 9), (1, 8)]);
    let own = &batches[0].resources[0];
    assert_eq!(own.resource.job.as_deref(), Some("train"));
    assert_eq!(own.resource.node, "node-a");
    assert_eq!(own.points[0].block.comm, CommId::new(0xcafe));
    assert_eq!(own.points[0].time_ns, 1_000);
}

#[tokio::test]
async fn a_dead_rank_is_reported_where_it_was() {
    let mut agent = Agent::new();
    let alive = json(&[("127.0.0.1", Some(9)), ("127.0.0.1", Some(8))]);
    agent.query(Server::Json(alive).listen(), 1_000).await;
    let dead = json(&[("127.0.0.1", Some(12)), ("127.0.0.1", None)]);
    let (batches, _) = agent.query(Server::Json(dead).listen(), 2_000).await;
    assert_eq!(progress(&batches), [(0, 12), (1, 8)]);
    assert_eq!(batches[0].number, 2);
}

#[tokio::test]
async fn a_job_on_other_hosts_is_left_to_their_agents() {
    let mut agent = Agent::new();
    let answer = json(&[(ELSEWHERE, Some(9)), (ELSEWHERE, Some(8))]);
    let (batches, outcome) = agent.query(Server::Json(answer).listen(), 1_000).await;
    assert_eq!((batches, outcome), (Vec::new(), Outcome::Unneeded));
}

#[tokio::test]
async fn no_answer_of_a_broken_server_reaches_the_agent() {
    for server in [Server::Foreign, Server::Json("{".to_owned())] {
        let mut agent = Agent::new();
        let target = at(server.listen());
        assert_eq!(agent.task.query(&target).await, Outcome::Failed);
    }
}

#[tokio::test]
async fn the_task_ends_with_the_agent() {
    let Agent { queries, task, .. } = Agent::new();
    drop(queries);
    task.run().await;
}

#[test]
fn the_address_of_a_new_job_replaces_one_where_no_job_listens_any_longer() {
    let mut task = Agent::new().task;
    let port = |port| at(SocketAddr::from(([127, 0, 0, 1], port)));
    let n_ports = u16::try_from(MAX_ADDRESSES).unwrap();
    for own in 1..n_ports {
        task.add(port(own));
    }
    task.add(port(100));
    assert!(!task.targets.contains_key(&port(100)));
    for pace in task.targets.values_mut() {
        pace.record(Outcome::Failed, 0);
    }
    task.add(port(100));
    assert!(task.targets.contains_key(&port(100)));
    assert!(task.targets.contains_key(&at(default_address())));
    assert_eq!(task.targets.len(), MAX_ADDRESSES);
}
