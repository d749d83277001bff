//! Echo in the production pod: agents send tokens of their service account, and Echo fetches the
//! keys from the API server.

use std::process::{Child, Command, Stdio};

use fleet_test_harness::CONTAINERS;
use serde_json::{Value, json};

use super::site::Site;
use crate::security::issuer::{key_set, signed};
use crate::testbed::{ECHO, agent, wait_for};

/// A fake API server, which serves the key set to requests with the token of Echo.
const API_SERVER: &str = "
import http.server, ssl, sys
cert, key, keys = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers['Authorization'] == 'Bearer of-echo' and self.path == '/openid/v1/jwks'
        self.send_response(200 if known else 403)
        self.end_headers()
        self.wfile.write(keys.encode() if known else b'')
server = http.server.ThreadingHTTPServer(('127.0.0.1', 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

struct ApiServer(Child);

impl ApiServer {
    fn start(site: &Site) -> Self {
        let mut certificate = Command::new(ECHO);
        certificate.args(["dev-cert", "--name", "kubernetes.default.svc", "--dir"]);
        let made = certificate.arg(site.path("api")).output().unwrap();
        assert!(made.status.success());
        let mut python = site.network.run("python3");
        python.args(["-c", API_SERVER]);
        python.args([site.path("api/cert.pem"), site.path("api/key.pem")]);
        python.arg(key_set()).stderr(Stdio::null());
        Self(python.spawn().unwrap())
    }

    /// Creates the content of the volume `api-server`, as the node does.
    fn volume(site: &Site) -> std::path::PathBuf {
        let folder = site.path("api-server");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("token"), "of-echo").unwrap();
        std::fs::copy(site.path("api/ca.pem"), folder.join("ca.crt")).unwrap();
        site.set_group("api-server", 0o750);
        site.set_group("api-server/token", 0o440);
        site.set_group("api-server/ca.crt", 0o440);
        folder
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Returns a token as the node projects it into the pod of the agent.
fn token_of(node: &str, audience: &str) -> String {
    signed(json!({
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": "system:serviceaccount:fleet-agent:fleet-agent",
        "aud": [audience],
        "kubernetes.io": {
            "namespace": "fleet-agent",
            "node": { "name": node, "uid": "c2c3a5a4" },
            "pod": { "name": "fleet-agent-x7k2p", "uid": "0a5ba0b5" },
            "serviceaccount": { "name": "fleet-agent", "uid": "d9c1f6c1" },
        },
    }))
}

/// Simulates agents of this many nodes, all with this token. Returns exit code and summary.
fn send(site: &Site, nodes: u32, token: &str) -> (Option<i32>, Value) {
    std::fs::write(site.path("token"), token).unwrap();
    let mut command = site.network.run(agent());
    command
        .args(["simulate", "--json", "--cluster", "prod", "--speed", "max"])
        .args([
            "--nodes",
            &nodes.to_string(),
            "--duration",
            "20s",
            "--interval",
            "1s",
        ])
        .args(["--step", "100ms", "--give-up-after", "2s"])
        .args(["--endpoint", "https://localhost:4317", "--tls-ca"])
        .arg(site.path("secrets/ca.pem"))
        .arg("--token-file")
        .arg(site.path("token"));
    let sent = command.output().unwrap();
    let summary = serde_json::from_slice(&sent.stdout).unwrap_or(Value::Null);
    (sent.status.code(), summary)
}

#[test]
#[needs(CONTAINERS)]
fn agents_authenticate_by_service_account_and_send_only_for_their_own_node() {
    let site = Site::new("production");
    let _api_server = ApiServer::start(&site);
    let volume = ApiServer::volume(&site);
    let echo = site.echo_with(&[("api-server", volume)], "echo.log");
    site.wait_until_ready();
    let own = token_of("node-0", "fleet-echo");
    wait_for("the keys of the API server", || {
        send(&site, 1, &own).0 == Some(0)
    });
    let (code, sent) = send(&site, 2, &own);
    assert_eq!(code, Some(69), "the second node is not its own: {sent}");
    let (code, sent) = send(
        &site,
        1,
        &token_of("node-0", "https://kubernetes.default.svc"),
    );
    assert_eq!(code, Some(69), "a token for the API server: {sent}");
    echo.send_sigterm();
    assert_eq!(echo.wait(), Some(0), "{}", site.log("echo.log"));
}

#[test]
#[needs(CONTAINERS)]
fn the_second_of_three_pods_reports_its_shard() {
    let site = Site::new("sharded");
    let _api_server = ApiServer::start(&site);
    let volume = ApiServer::volume(&site);
    let echo = site.echo_with(&[("api-server", volume)], "echo.log");
    site.wait_until_ready();
    let reader = signed(json!({
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": "system:serviceaccount:finops:cost-report",
        "aud": ["fleet-echo"],
    }));
    let access = site.path("volume-access/access.yaml");
    let edited = std::fs::read_to_string(&access)
        .unwrap()
        .replace("      # \"system", "      \"system");
    std::fs::write(&access, edited).unwrap();
    let health = || {
        let mut curl = site.network.run("curl");
        curl.args(["--silent", "--cacert"])
            .arg(site.path("secrets/ca.pem"));
        curl.args(["--header", &format!("Authorization: Bearer {reader}")]);
        curl.arg("https://localhost:8081/api/v1/health");
        serde_json::from_slice::<Value>(&curl.output().unwrap().stdout).unwrap_or(Value::Null)
    };
    wait_for("access.yaml to be reloaded", || {
        health()["shard"].is_object()
    });
    let shard = &health()["shard"];
    assert_eq!((&shard["ordinal"], &shard["count"]), (&json!(1), &json!(3)));
    let url = "https://fleet-echo-{shard}.fleet-echo-pods.fleet-echo.svc:8081";
    assert_eq!(shard["url"], url);
    echo.send_sigterm();
    assert_eq!(echo.wait(), Some(0), "{}", site.log("echo.log"));
}
