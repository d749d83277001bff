//! Command line: exit codes and output.

use std::path::Path;
use std::process::{Command, Output};

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

use crate::collect::recording;

fn agent(args: &[&str]) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_fleet-agent"));
    Command::new(binary).args(args).output().unwrap()
}

fn replay(file: &Path, endpoint: &str, extra: &[&str]) -> Output {
    let file = file.to_str().unwrap();
    let fixed = [
        "replay",
        file,
        "--endpoint",
        endpoint,
        "--cluster",
        "lab",
        "--speed",
        "max",
    ];
    agent(&fixed.iter().chain(extra).copied().collect::<Vec<_>>())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_replay_ends_with_one_line_on_standard_output() {
    let output = replay(&recording("healthy"), "none", &[]);
    assert_eq!(output.status.code(), Some(0));
    let summary = text(&output.stdout);
    assert_eq!(summary.lines().count(), 1);
    assert!(summary.starts_with("read 83870 events, sent "), "{summary}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn an_endpoint_with_tls_on_a_host_without_authorities_says_how_to_get_them() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-agent"));
    command
        .arg("replay")
        .arg(recording("healthy"))
        .args(["--endpoint", "https://127.0.0.1:1", "--cluster", "lab"])
        .env("SSL_CERT_FILE", "/dev/null")
        .env_remove("SSL_CERT_DIR");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    let message = text(&output.stderr);
    for part in ["https://127.0.0.1:1", "ca-certificates", "--tls-ca FILE"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn completion_scripts_and_man_pages_cover_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        // The scripts run the program.
        let script = text(&agent(&["completion", shell]).stdout);
        assert!(script.contains("FLEET_COMPLETE="), "{shell}: {script}");
    }
    for (words, offered) in [(&["r"][..], "replay"), (&["replay", "--end"], "--endpoint")] {
        let mut completing = Command::new(env!("CARGO_BIN_EXE_fleet-agent"));
        completing.args(["--", "fleet-agent"]).args(words);
        let output = completing.env("FLEET_COMPLETE", "fish").output().unwrap();
        let offers = text(&output.stdout);
        assert!(offers.contains(offered), "{words:?}: {offers}");
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("man");
    let output = agent(&["man", directory.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for page in ["fleet-agent.1", "fleet-agent-replay.1"] {
        assert!(directory.join(page).is_file(), "{page}");
    }
    assert!(!text(&agent(&["--help"]).stdout).contains("\n  man "));
}

#[test]
fn the_summary_can_be_json() {
    let output = replay(&recording("healthy"), "none", &["--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["events"]["total"], 83870);
    assert_eq!(summary["error"], serde_json::Value::Null);
    assert!(
        summary["points_sent"]
            .as_u64()
            .is_some_and(|points| points > 100)
    );
}

#[test]
fn a_file_that_is_not_a_recording_ends_with_65_and_names_the_line() {
    let foreign = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = replay(&foreign, "none", &[]);
    assert_eq!(output.status.code(), Some(65));
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(
        message.contains("Cargo.toml: line 1: not a recording"),
        "{message}"
    );
}

#[test]
fn a_truncated_file_ends_with_65_and_reports_what_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.jsonl.gz");
    let bytes = std::fs::read(recording("healthy")).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 3 / 4]).unwrap();
    let output = replay(&path, "none", &["--json"]);
    assert_eq!(output.status.code(), Some(65));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        summary["points_sent"]
            .as_u64()
            .is_some_and(|points| points > 0)
    );
    let error = summary["error"].as_str().unwrap();
    assert!(error.contains("recording ends early at line "), "{error}");
}

#[test]
fn invalid_flags_end_with_64() {
    assert_eq!(agent(&["replay"]).status.code(), Some(64));
    let healthy = recording("healthy");
    for endpoint in ["ftp://localhost:4317", "not an address"] {
        assert_eq!(replay(&healthy, endpoint, &[]).status.code(), Some(64));
    }
    assert_eq!(
        replay(&healthy, "none", &["--only-rank", "9"])
            .status
            .code(),
        Some(64)
    );
}

#[test]
fn the_shard_is_logged_once_and_invalid_shard_counts_end_with_64() {
    let away = ["--shards", "3", "--give-up-after", "0s", "--json"];
    let one = "http://127.0.0.1:{shard}";
    let output = replay(&recording("healthy"), one, &away);
    let log = text(&output.stderr);
    let chosen = "cluster lab belongs to shard 2 of 3: reporting to http://127.0.0.1:2";
    assert_eq!(output.status.code(), Some(69), "{log}");
    assert_eq!(log.matches(chosen).count(), 1, "{log}");
    assert!(!log.contains("{shard}"), "{log}");
    for (endpoint, flags) in [
        (one, [].as_slice()),
        (one, &["--shards", "0"]),
        ("http://127.0.0.1:1", &["--shards", "3"]),
        ("none", &["--shards", "3"]),
    ] {
        let simulated = [
            "simulate",
            "--cluster",
            "lab",
            "--nodes",
            "2",
            "--endpoint",
            endpoint,
        ];
        let simulated = [simulated.as_slice(), flags].concat();
        for output in [
            replay(&recording("healthy"), endpoint, flags),
            agent(&simulated),
        ] {
            assert_eq!(output.status.code(), Some(64), "{flags:?}");
            assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
        }
    }
}

#[test]
fn an_unreachable_endpoint_ends_with_69() {
    // Port 1 is reserved and never listened on.
    let output = replay(
        &recording("healthy"),
        "127.0.0.1:1",
        &["--give-up-after", "0s"],
    );
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).contains("check that Echo listens there"));
}

#[test]
fn points_that_are_refused_end_with_69_after_the_summary() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    // A server without the service of OTLP refuses all calls as unimplemented.
    let server = tonic::transport::Server::builder()
        .add_routes(tonic::service::Routes::default())
        .serve_with_incoming(TcpListenerStream::new(listener));
    let serving = runtime.spawn(server);
    let output = replay(&recording("healthy"), &endpoint, &["--json"]);
    serving.abort();
    assert_eq!(output.status.code(), Some(69));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let dropped = summary["points_dropped"].as_u64().unwrap();
    let message = text(&output.stderr);
    let last = message.lines().last().unwrap();
    let expected = format!("{dropped} points were not delivered (refused: Unimplemented");
    assert!(dropped > 0 && last.contains(&expected), "{message}");
}

#[test]
fn help_includes_an_example() {
    let output = agent(&["replay", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    assert!(help.contains("fleet-agent replay testdata/recordings/host-sleep-rank2.jsonl.gz"));
    assert!(help.contains("FLEET_AGENT_CLOCK_SKEW"));
}

fn simulate(endpoint: &str, extra: &[&str]) -> Output {
    let fixed = ["simulate", "--endpoint", endpoint, "--cluster", "lab"];
    let fast = ["--nodes", "2", "--duration", "30s", "--speed", "max"];
    let all = fixed.iter().chain(&fast).chain(extra);
    agent(&all.copied().collect::<Vec<_>>())
}

#[test]
fn the_summary_of_a_simulation_states_losses() {
    let output = simulate("none", &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = text(&output.stdout);
    assert!(
        summary.starts_with("16 ranks on 2 nodes, 2 agents: "),
        "{summary}"
    );
    assert!(
        summary.ends_with("every point was acknowledged\n"),
        "{summary}"
    );
    assert_eq!(text(&output.stderr), "");
    let output = simulate("none", &["--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["all_acknowledged"], true);
    assert_eq!(summary["points_acknowledged"], summary["points_created"]);
    assert!(summary["ack_p99_ms"].is_f64(), "{summary}");
}

#[test]
fn a_simulation_whose_points_are_lost_ends_with_69() {
    // Port 1 is reserved and never listened on.
    let output = simulate("127.0.0.1:1", &["--give-up-after", "0s", "--json"]);
    assert_eq!(output.status.code(), Some(69));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["points_lost"], summary["points_created"]);
    let message = text(&output.stderr);
    assert!(
        message.contains("points were lost or refused (gave up"),
        "{message}"
    );
}

#[test]
fn contradictory_flags_end_a_simulation_with_64_and_one_line() {
    for extra in [
        ["--fault", "host:rank=99,severity=10%"],
        ["--mesh", "3x1x2"],
    ] {
        let output = simulate("none", &extra);
        assert_eq!(output.status.code(), Some(64));
        assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
    }
    assert_eq!(simulate("ftp://echo:4317", &[]).status.code(), Some(64));
    let help = text(&agent(&["simulate", "--help"]).stdout);
    assert!(help.contains("--fault host:rank=17,after=60s,for=120s,severity=20%"));
}

#[test]
fn connection_errors_are_one_line_and_come_before_anything_is_sent() {
    for (extra, expected) in [
        (["--tls-server-name", "echo"], "use https://"),
        (["--token-file", "/no/such/file"], "--insecure-token"),
    ] {
        let replayed = replay(&recording("healthy"), "http://10.0.0.1:4317", &extra);
        for output in [replayed, simulate("http://10.0.0.1:4317", &extra)] {
            let lines = text(&output.stderr);
            assert_eq!(output.status.code(), Some(64));
            assert!(
                lines.contains(expected) && lines.lines().count() == 1,
                "{lines}"
            );
        }
    }
}

#[test]
fn changes_of_a_self_verdict_are_logged() {
    let output = replay(
        &recording("host-sleep-rank2"),
        "none",
        &["--block-ops", "16", "--json"],
    );
    let lines = text(&output.stderr);
    assert!(
        lines.contains("classifies itself as a straggler (mode local): host gap "),
        "{lines}"
    );
    assert!(
        lines.contains("rank=2") && lines.contains("no longer classifies itself"),
        "{lines}"
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let local = &summary["self_verdicts"]["local"];
    assert_eq!(
        (&local["raised"], &local["cleared"]),
        (&1.into(), &1.into())
    );
    assert_eq!(summary["verdicts_sent"], 2);
}

#[test]
fn install_profiler_prints_the_variable_that_jobs_set() {
    let root = tempfile::tempdir().unwrap();
    let (plugin, folder) = (root.path().join("plugin.so"), root.path().join("opt"));
    std::fs::write(&plugin, "a library").unwrap();
    let paths = [&plugin, &folder].map(|path| path.to_str().unwrap());
    let install =
        |plugin: &str, folder: &str| agent(&["install-profiler", folder, "--plugin", plugin]);
    let output = install(paths[0], paths[1]);
    assert_eq!(output.status.code(), Some(0));
    let installed = folder.join("libfleet_nccl_profiler.so");
    let expected = format!("NCCL_PROFILER_PLUGIN={}\n", installed.display());
    assert_eq!(text(&output.stdout), expected);
    assert_eq!(std::fs::read(&installed).unwrap(), b"a library");
    let refused = install(paths[0], &format!("{}/below", paths[0]));
    assert_eq!(refused.status.code(), Some(73));
    assert_eq!(text(&refused.stderr).lines().count(), 1);
}
