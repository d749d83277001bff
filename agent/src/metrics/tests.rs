use std::fs;
use std::time::Duration;

use fleet_agent_core::vitals::{LostEvents, LostOperations, PointCounts, StackCounts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;

fn vitals() -> Vitals {
    Vitals {
        events: [("ebpf", 12), ("plugin", 3)].into(),
        lost: LostEvents {
            ring: 1,
            in_flight: 2,
            comms: 3,
            sums: 6,
            threads: 5,
            unreadable: 8,
            files: 9,
            traced: 4,
            host_sums: 7,
        },
        processes: 8,
        unknown_comm_ops: 4,
        broken_blocks: 6,
        gpu_lost: LostOperations {
            plugin: 9,
            implausible: 10,
            unknown_comm: 11,
            overwritten: 12,
            counter_lost: 13,
            not_summed: 19,
        },
        stacks: StackCounts {
            samples: 15,
            torn: 16,
            dropped: 17,
            over_budget: 18,
        },
        points: PointCounts {
            made: 100,
            sent: 90,
            dropped: 5,
        },
        spool_bytes: 4096,
        policy_version: Some(7),
        implausible_policies: 14,
        hook_clients: 1,
        hook_clients_dropped: 2,
        sentinel_events: 3,
        sentinel_failures: 4,
        cpu: Duration::from_millis(1500),
        rss_bytes: 5 << 20,
    }
}

const TEXT: &str = "\
# HELP fleet_agent_build Version of the agent.
# TYPE fleet_agent_build info
fleet_agent_build_info{version=\"VERSION\"} 1
# HELP fleet_agent_events Events captured, by source
# TYPE fleet_agent_events counter
fleet_agent_events_total{source=\"ebpf\"} 12
fleet_agent_events_total{source=\"plugin\"} 3
# HELP fleet_agent_events_lost Events, or data that explains them, that were lost, by the table that was full or the read that failed
# TYPE fleet_agent_events_lost counter
fleet_agent_events_lost_total{reason=\"ring\"} 1
fleet_agent_events_lost_total{reason=\"in_flight\"} 2
fleet_agent_events_lost_total{reason=\"communicators\"} 3
fleet_agent_events_lost_total{reason=\"processes\"} 4
fleet_agent_events_lost_total{reason=\"threads\"} 5
fleet_agent_events_lost_total{reason=\"sums\"} 6
fleet_agent_events_lost_total{reason=\"kernel_sums\"} 7
fleet_agent_events_lost_total{reason=\"unreadable\"} 8
fleet_agent_events_lost_total{reason=\"files\"} 9
# HELP fleet_agent_gpu_operations_lost GPU operations whose times are not used, by reason: lost by the profiler plugin, those of another operation, or on an unknown communicator
# TYPE fleet_agent_gpu_operations_lost counter
fleet_agent_gpu_operations_lost_total{reason=\"plugin\"} 9
fleet_agent_gpu_operations_lost_total{reason=\"implausible\"} 10
fleet_agent_gpu_operations_lost_total{reason=\"overwritten\"} 12
fleet_agent_gpu_operations_lost_total{reason=\"counter_lost\"} 13
fleet_agent_gpu_operations_lost_total{reason=\"unknown_communicator\"} 11
fleet_agent_gpu_operations_lost_total{reason=\"not_summed\"} 19
# HELP fleet_agent_stack_samples Samples of the stacks of late ranks, by what could be read
# TYPE fleet_agent_stack_samples counter
fleet_agent_stack_samples_total{outcome=\"read\"} 15
fleet_agent_stack_samples_total{outcome=\"torn\"} 16
fleet_agent_stack_samples_total{outcome=\"dropped\"} 17
# HELP fleet_agent_unknown_comm_ops Operations on communicators created before tracing began, without transfers that the profiler plugin records
# TYPE fleet_agent_unknown_comm_ops counter
fleet_agent_unknown_comm_ops_total 4
# HELP fleet_agent_broken_blocks Blocks of operations left out because some of their events are missing
# TYPE fleet_agent_broken_blocks counter
fleet_agent_broken_blocks_total 6
# HELP fleet_agent_points_created Points created
# TYPE fleet_agent_points_created counter
fleet_agent_points_created_total 100
# HELP fleet_agent_points_sent Points acknowledged by the collector
# TYPE fleet_agent_points_sent counter
fleet_agent_points_sent_total 90
# HELP fleet_agent_points_dropped Points dropped or rejected, which the collector does not have
# TYPE fleet_agent_points_dropped counter
fleet_agent_points_dropped_total 5
# HELP fleet_agent_implausible_policies Policy sets ignored in part because their sampling rate is implausible
# TYPE fleet_agent_implausible_policies counter
fleet_agent_implausible_policies_total 14
# HELP fleet_agent_stack_samplings_over_budget Times that sampling of stacks ended early because its CPU time was spent
# TYPE fleet_agent_stack_samplings_over_budget counter
fleet_agent_stack_samplings_over_budget_total 18
# HELP fleet_agent_hook_clients_dropped Hook socket clients disconnected because they fell behind
# TYPE fleet_agent_hook_clients_dropped counter
fleet_agent_hook_clients_dropped_total 2
# HELP fleet_agent_nvsentinel_events Events that NVSentinel accepted
# TYPE fleet_agent_nvsentinel_events counter
fleet_agent_nvsentinel_events_total 3
# HELP fleet_agent_nvsentinel_failures Attempts to send events to NVSentinel that failed and are repeated
# TYPE fleet_agent_nvsentinel_failures counter
fleet_agent_nvsentinel_failures_total 4
# HELP fleet_agent_cpu_seconds CPU time of the agent, user and system
# TYPE fleet_agent_cpu_seconds counter
fleet_agent_cpu_seconds_total 1.5
# HELP fleet_agent_processes Processes traced now
# TYPE fleet_agent_processes gauge
fleet_agent_processes 8
# HELP fleet_agent_spool_bytes Size of the spool on disk, in bytes
# TYPE fleet_agent_spool_bytes gauge
fleet_agent_spool_bytes 4096
# HELP fleet_agent_policy_version Version of the policy set in use, absent before the first one
# TYPE fleet_agent_policy_version gauge
fleet_agent_policy_version 7
# HELP fleet_agent_hook_clients Hook socket clients connected now
# TYPE fleet_agent_hook_clients gauge
fleet_agent_hook_clients 1
# HELP fleet_agent_resident_memory_bytes Resident memory of the agent, in bytes
# TYPE fleet_agent_resident_memory_bytes gauge
fleet_agent_resident_memory_bytes 5242880
# EOF
";

/// Metrics endpoint being served.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinSet<()>,
}

async fn serve(vitals: fn() -> Vitals) -> Running {
    serve_to(vitals, None).await
}

async fn serve_to(vitals: fn() -> Vitals, token_file: Option<&Path>) -> Running {
    let bound = MetricsServer::bind(([127, 0, 0, 1], 0).into(), token_file)
        .await
        .unwrap();
    let address = bound.address().unwrap();
    let (stop, stopped) = oneshot::channel();
    let mut server = JoinSet::new();
    server.spawn(bound.serve(vitals, Vec::new, async { drop(stopped.await) }));
    Running {
        address,
        stop,
        server,
    }
}

async fn get(address: SocketAddr, path: &str) -> (String, String) {
    get_with(address, path, "").await
}

async fn get_with(address: SocketAddr, path: &str, header: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: agent\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn every_metric_has_a_name_a_unit_and_an_explanation() {
    let served = serve(vitals).await;
    let accept = "Accept: application/openmetrics-text\r\n";
    let (head, body) = get_with(served.address, "/metrics", accept).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    let expected = TEXT.replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_scraper_that_does_not_ask_for_openmetrics_gets_the_text_of_prometheus() {
    let served = serve(vitals).await;
    let (head, body) = get(served.address, "/metrics").await;
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        body.contains("# TYPE fleet_agent_build_info gauge\n"),
        "{body}"
    );
    assert!(
        body.contains("# TYPE fleet_agent_points_sent_total counter\n"),
        "{body}"
    );
}

#[tokio::test]
async fn the_policy_version_is_absent_before_the_first_policy() {
    let served = serve(Vitals::default).await;
    let (_, body) = get(served.address, "/metrics").await;
    assert!(!body.contains("policy_version"), "{body}");
    assert!(
        body.contains("fleet_agent_events_lost_total{reason=\"ring\"} 0"),
        "{body}"
    );
}

#[tokio::test]
async fn health_is_served_and_unknown_paths_are_404() {
    let served = serve(vitals).await;
    let (head, body) = get(served.address, "/healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, "ok\n");
    assert!(
        get(served.address, "/")
            .await
            .0
            .starts_with("HTTP/1.1 404 ")
    );
}

#[tokio::test]
async fn shutdown_does_not_wait_for_idle_connections() {
    let mut served = serve(vitals).await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    get(served.address, "/healthz").await;
    served.stop.send(()).unwrap();
    served.server.join_next().await.unwrap().unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_in_one_line() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = MetricsServer::bind(address, None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&address.to_string()) && !error.contains('\n'),
        "{error}"
    );
}

#[tokio::test]
async fn scrapers_must_send_the_token_that_is_in_the_file_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first\n").unwrap();
    let served = serve_to(vitals, Some(&file)).await;
    let status = async |header: &str| {
        let (head, body) = get_with(served.address, "/metrics", header).await;
        assert_eq!(
            body.contains("fleet_agent"),
            head.contains(" 200 "),
            "{head}"
        );
        head.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status("").await, "401");
    assert_eq!(status("Authorization: Bearer firs\r\n").await, "401");
    assert_eq!(status("Authorization: Basic first\r\n").await, "401");
    assert_eq!(status("Authorization: Bearer first\r\n").await, "200");
    fs::write(&file, "second").unwrap();
    assert_eq!(status("Authorization: Bearer first\r\n").await, "401");
    assert_eq!(status("Authorization: Bearer second\r\n").await, "200");
    let (health, _) = get(served.address, "/healthz").await;
    assert!(health.contains(" 200 "), "a kubelet has no token: {health}");
}

#[tokio::test]
async fn non_loopback_addresses_require_a_token() {
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = MetricsServer::bind(open.parse().unwrap(), None).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--metrics-token-file"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let missing = MetricsServer::bind(([0, 0, 0, 0], 0).into(), Some(&file)).await;
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("--metrics-token-file")
    );
    fs::write(&file, "secret").unwrap();
    let bound = MetricsServer::bind(([0, 0, 0, 0], 0).into(), Some(&file)).await;
    assert!(bound.is_ok());
}
