//! The chart beside a cluster, whose API server is a stand-in: nothing is installed before the objects
//! exist that pods mount.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use fleet_test_harness::{NIGHTLY, PYPI};
use serde_json::{Value, json};

use super::{program, template};
use crate::deploy::chart::chart;

/// Kinds of objects of the chart by group, each with whether it is in a namespace.
const GROUPS: [(&str, &[(&str, bool)]); 5] = [
    ("apps", &[("StatefulSet", true), ("DaemonSet", true)]),
    ("networking.k8s.io", &[("NetworkPolicy", true)]),
    ("policy", &[("PodDisruptionBudget", true)]),
    (
        "rbac.authorization.k8s.io",
        &[("ClusterRoleBinding", false)],
    ),
    ("scheduling.k8s.io", &[("PriorityClass", false)]),
];

/// The same without a group.
const CORE: [(&str, bool); 5] = [
    ("ConfigMap", true),
    ("Namespace", false),
    ("Secret", true),
    ("Service", true),
    ("ServiceAccount", true),
];

/// Objects that pods mount, with the namespaces that the chart would create.
const PREPARED: [&str; 5] = [
    "namespaces/fleet-agent",
    "namespaces/fleet-agent/configmaps/fleet-echo-ca",
    "namespaces/fleet-agent/secrets/fleet-agent-metrics",
    "namespaces/fleet-echo",
    "namespaces/fleet-echo/secrets/fleet-echo-tls",
];

fn kinds(group_version: &str, kinds: &[(&str, bool)]) -> Value {
    let resource = |(kind, is_namespaced): &(&str, bool)| {
        let name = format!("{}s", kind.to_lowercase());
        json!({ "name": name, "kind": kind, "namespaced": is_namespaced, "verbs": ["get"] })
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": resources })
}

fn groups() -> Value {
    let group = |(group, _): (&str, _)| {
        let version = json!({ "groupVersion": format!("{group}/v1"), "version": "v1" });
        json!({ "name": group, "versions": [version], "preferredVersion": version })
    };
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS.map(group) })
}

/// Marks an object as Helm does, if a release has created it.
fn metadata(name: &str, release: &str) -> Value {
    if release.is_empty() {
        return json!({ "name": name });
    }
    json!({
        "name": name,
        "labels": { "app.kubernetes.io/managed-by": "Helm" },
        "annotations": {
            "meta.helm.sh/release-name": release,
            "meta.helm.sh/release-namespace": "default",
        },
    })
}

/// Describes the kinds of objects as an API server does, and returns objects that exist, which
/// `release` has created if it is not empty.
fn answer(path: &str, existing: &[String], release: &str) -> Option<Value> {
    let found = match path {
        "/version" => json!({ "major": "1", "minor": "35", "gitVersion": "v1.35.0" }),
        "/api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
        "/api/v1" => kinds("v1", &CORE),
        "/apis" => groups(),
        path => {
            let of_group = GROUPS
                .iter()
                .find(|(group, _)| path == format!("/apis/{group}/v1"));
            if let Some((group, of_group)) = of_group {
                return Some(kinds(&format!("{group}/v1"), of_group));
            }
            let object = path.strip_prefix("/api/v1/")?;
            existing.iter().find(|known| *known == object)?;
            let name = object.rsplit('/').next()?;
            json!({ "apiVersion": "v1", "kind": "Any", "metadata": metadata(name, release) })
        }
    };
    Some(found)
}

fn serve(mut stream: TcpStream, existing: &[String], release: &str) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let lines = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty());
    let lines: Vec<String> = lines.collect();
    let Some(target) = lines.first().and_then(|line| line.split(' ').nth(1)) else {
        return;
    };
    let path = target.split('?').next().unwrap();
    let (status, body) = match answer(path, existing, release) {
        Some(found) => (200, found),
        None => (
            404,
            json!({ "kind": "Status", "reason": "NotFound", "code": 404 }),
        ),
    };
    let body = body.to_string();
    let head = "connection: close\r\ncontent-type: application/json";
    let length = body.len();
    let _closed = write!(
        stream,
        "HTTP/1.1 {status} X\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
}

/// Starts an API server with these objects. Returns flags by which helm renders for its cluster.
fn cluster(existing: &[&str], release: &'static str) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut existing: Vec<String> = existing.iter().map(ToString::to_string).collect();
    existing.push("namespaces/kube-system".to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &existing, release);
        }
    });
    let server = format!("--kube-apiserver={url}");
    let flags = ["--dry-run=server", "--disable-openapi-validation", &server];
    flags.map(str::to_owned).to_vec()
}

fn is_created(flags: &[String]) -> bool {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let rendered = template(&flags);
    assert!(rendered.keys().any(|key| key[0] == "StatefulSet"));
    rendered.keys().any(|key| key[0] == "Namespace")
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn nothing_is_installed_before_the_objects_exist_that_pods_mount() {
    let [agent, ca, ..] = PREPARED;
    let mut flags = cluster(&[agent, ca], "");
    let mut helm = Command::new(program("helm"));
    helm.args(["template", "fleet-echo"]).arg(chart());
    let output = helm.args(&flags).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    for command in [
        "kubectl create namespace fleet-echo\n",
        "kubectl label namespace fleet-echo pod-security.kubernetes.io/enforce=restricted\n",
        "kubectl -n fleet-echo create secret generic fleet-echo-tls --from-file=tls.crt",
        "kubectl -n fleet-agent create secret generic fleet-agent-metrics --from-literal=token=",
    ] {
        assert!(error.contains(command), "no {command}: {error}");
    }
    for existing in ["create namespace fleet-agent", "configmap fleet-echo-ca"] {
        assert!(!error.contains(existing), "{existing}: {error}");
    }
    flags.push("--set=requireSecrets=false".to_owned());
    assert!(is_created(&flags));
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn namespaces_that_exist_are_not_created_unless_they_are_of_the_release() {
    assert!(!is_created(&cluster(&PREPARED, "")));
    assert!(!is_created(&cluster(&PREPARED, "another")));
    assert!(is_created(&cluster(&PREPARED, "fleet-echo")));
}
