//! Completion of command lines in bash, by the programs themselves.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::testbed::{ECHO, Echo, recording, replay_all};

/// Returns what bash offers for the last word of a line, with these variables.
fn offered(line: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let script = r#"
        source <("$1" completion bash) || exit 1
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "_clap_complete_${1//-/_}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let programs = Path::new(ECHO).parent().unwrap().display();
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash"]).args(line);
    bash.env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"));
    for variable in ["FLEET_ECHO_SERVER", "FLEET_ECHO_CONTEXT"] {
        bash.env_remove(variable);
    }
    bash.env("FLEET_ECHO_CONFIG", "/no/such/config.toml");
    let output = bash.envs(variables.iter().copied()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(offered(&["fleet-echo", "outl"], &[]), ["outliers"]);
    let flags = offered(&["fleet-echo", "rates", "check", "--se"], &[]);
    assert_eq!(flags, ["--server"]);
    let formats = offered(&["fleet-echo", "outliers", "--output", "c"], &[]);
    assert_eq!(formats, ["csv"]);
    assert_eq!(offered(&["fleet-agent", "strag"], &[]), ["straggler-check"]);
    let flags = offered(&["fleet-agent", "straggler-check", "--so"], &[]);
    assert_eq!(flags, ["--socket"]);
}

#[test]
fn bash_completes_the_clusters_of_the_configured_server() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    for cluster in ["lab", "load"] {
        replay_all(&recording("healthy"), &echo, cluster, "max");
    }
    echo.caught_up();
    let server = format!("http://{}", echo.http);
    let by_variable = [("FLEET_ECHO_SERVER", server.as_str())];
    for line in [
        &["fleet-echo", "outliers", "-c", ""][..],
        &["fleet-echo", "explain", "--rank", "2", "--cluster", "l"],
        &["fleet-echo", "assert", "cost", "--cluster", ""],
        &["fleet-echo", "host", "chains", "-c", ""],
    ] {
        assert_eq!(offered(line, &by_variable), ["lab", "load"], "{line:?}");
    }
    let line = ["fleet-echo", "outliers", "-c", "loa"];
    assert_eq!(offered(&line, &by_variable), ["load"]);
    // The name of an imported job is a new one.
    let line = ["fleet-echo", "import", "--cluster", "l"];
    assert!(offered(&line, &by_variable).is_empty());

    let contexts = folder.path().join("config.toml");
    let by_file = [("FLEET_ECHO_CONFIG", contexts.to_str().unwrap())];
    for (name, server) in [("here", server.as_str()), ("there", "http://127.0.0.1:9")] {
        let mut set = Command::new(ECHO);
        set.args(["context", "set", name, "--server", server])
            .envs(by_file);
        assert!(set.status().unwrap().success());
    }
    for line in [
        &["fleet-echo", "context", "use", ""][..],
        &["fleet-echo", "status", "--context", ""],
    ] {
        // Flags may follow, where no value has to.
        let offered = offered(line, &by_file);
        assert_eq!(offered[..2], ["here", "there"], "{line:?}");
    }
    let line = ["fleet-echo", "status", "--context", "here", "-c", "la"];
    assert_eq!(offered(&line, &by_file), ["lab"]);
    assert_eq!(echo.terminate(), 0);
}

#[test]
fn bash_offers_nothing_and_prints_no_error_if_the_server_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for server in [silent.as_str(), "http://127.0.0.1:9", "no address"] {
        let variables = [("FLEET_ECHO_SERVER", server)];
        let line = ["fleet-echo", "outliers", "-c", ""];
        assert!(offered(&line, &variables).is_empty(), "{server}");
    }
}
