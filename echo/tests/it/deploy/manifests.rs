//! Consistency of the manifests: ports, probes, volumes and values that occur twice.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::rendered::{Overlay, container, words};
use crate::testbed::{ECHO, repository};

/// Returns the objects that the operator or the cluster provides, as described at the top of the
/// kustomizations.
pub(super) fn external(overlay: &Overlay) -> &'static [&'static str] {
    match overlay.name {
        "quickstart" => &[],
        "sharded-lake" => &[
            "fleet-echo-tls",
            "fleet-echo-ca",
            "fleet-agent-metrics",
            "fleet-echo-lake",
            "kube-root-ca.crt",
        ],
        _ => &[
            "fleet-echo-tls",
            "fleet-echo-ca",
            "fleet-agent-metrics",
            "kube-root-ca.crt",
        ],
    }
}

/// Returns kinds and names of the objects that provide volumes and environment of a pod.
pub(super) fn sources(pod: &Value) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let mut add = |kind, name: &Value| {
        if let Some(name) = name.as_str() {
            found.insert((kind, name.to_owned()));
        }
    };
    for volume in pod["volumes"].as_array().unwrap() {
        add("ConfigMap", &volume["configMap"]["name"]);
        add("Secret", &volume["secret"]["secretName"]);
        let projected = volume["projected"]["sources"].as_array();
        for source in projected.into_iter().flatten() {
            add("ConfigMap", &source["configMap"]["name"]);
            add("Secret", &source["secret"]["name"]);
        }
    }
    for from in container(pod)["envFrom"].as_array().unwrap() {
        add("ConfigMap", &from["configMapRef"]["name"]);
    }
    found
}

#[test]
fn every_volume_has_a_source_and_every_mount_a_volume() {
    for overlay in Overlay::all() {
        for pod in [overlay.echo(), overlay.agent()] {
            for (kind, name) in sources(pod) {
                let is_rendered = overlay.data(kind, &name).is_some();
                let is_external = external(&overlay).contains(&name.as_str());
                assert!(
                    is_rendered != is_external,
                    "{}: {kind} {name}",
                    overlay.name
                );
            }
            let mut volumes: BTreeSet<&str> = pod["volumes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|volume| {
                    // The API server rejects a volume with two sources.
                    assert_eq!(volume.as_object().unwrap().len(), 2, "{volume}");
                    volume["name"].as_str().unwrap()
                })
                .collect();
            let set = overlay.object("StatefulSet", "fleet-echo");
            let claim = &set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"];
            if pod == overlay.echo() {
                volumes.insert(claim.as_str().unwrap());
            }
            let mounts = container(pod)["volumeMounts"].as_array().unwrap();
            let mounted: BTreeSet<&str> = mounts
                .iter()
                .map(|mount| mount["name"].as_str().unwrap())
                .collect();
            assert_eq!(mounted, volumes, "{}", overlay.name);
        }
    }
}

#[test]
fn files_named_in_flags_are_in_mounted_folders() {
    for overlay in Overlay::all() {
        for pod in [overlay.echo(), overlay.agent()] {
            let container = container(pod);
            let mounts = container["volumeMounts"].as_array().unwrap();
            let paths = words(&container["args"]).into_iter();
            let paths = paths
                .filter_map(|flag| flag.split_once("=/"))
                .map(|(_, path)| path);
            for path in paths {
                let is_inside = |mount: &Value| {
                    let folder = mount["mountPath"].as_str().unwrap();
                    format!("/{path}").starts_with(folder)
                };
                assert!(mounts.iter().any(is_inside), "{}: /{path}", overlay.name);
                assert!(mounts.iter().all(|mount| mount.get("subPath").is_none()));
            }
        }
    }
}

#[test]
fn ports_of_services_probes_and_flags_match() {
    for overlay in Overlay::all() {
        for pod in [overlay.echo(), overlay.agent()] {
            let container = container(pod);
            let declared = container["ports"].as_array().unwrap();
            let names: BTreeSet<Option<&str>> =
                declared.iter().map(|port| port["name"].as_str()).collect();
            let numbers: BTreeSet<u64> = declared
                .iter()
                .map(|port| port["containerPort"].as_u64().unwrap())
                .collect();
            let listens: BTreeSet<u64> = words(&container["args"])
                .into_iter()
                .filter_map(|flag| flag.split_once("-listen=0.0.0.0:"))
                .map(|(_, port)| port.parse().unwrap())
                .collect();
            assert_eq!(numbers, listens, "{}", overlay.name);
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                let Some(probe) = container.get(probe) else {
                    continue;
                };
                assert!(
                    names.contains(&probe["httpGet"]["port"].as_str()),
                    "{probe}"
                );
            }
        }
        let ports = container(overlay.echo())["ports"].as_array().unwrap();
        for service in overlay.of_kind("Service") {
            for port in service["spec"]["ports"].as_array().unwrap() {
                let same = |one: &&Value| {
                    one["name"] == port["targetPort"] && one["containerPort"] == port["port"]
                };
                assert!(ports.iter().any(|one| same(&one)), "{port}");
            }
        }
    }
}

#[test]
fn the_shard_count_equals_the_pod_count_also_for_agents() {
    for overlay in Overlay::all() {
        let settings = |kind: &str| {
            let mut maps = overlay.of_kind("ConfigMap");
            let named = |map: &&Value| {
                let name = map["metadata"]["name"].as_str().unwrap();
                name.starts_with(&format!("fleet-{kind}-settings"))
            };
            maps.find(named).unwrap()["data"].clone()
        };
        let (echo, agent) = (settings("echo"), settings("agent"));
        let replicas = &overlay.object("StatefulSet", "fleet-echo")["spec"]["replicas"];
        if !overlay.name.starts_with("sharded") {
            assert_eq!(replicas, 1, "{}", overlay.name);
            assert!(echo.get("FLEET_ECHO_SHARDS").is_none());
            continue;
        }
        assert_eq!(echo["FLEET_ECHO_SHARDS"], replicas.to_string());
        assert_eq!(agent["FLEET_AGENT_SHARDS"], replicas.to_string());
        let pods = "https://fleet-echo-{shard}.fleet-echo-pods.fleet-echo.svc";
        assert_eq!(echo["FLEET_ECHO_SHARD_URL"], format!("{pods}:8081"));
        assert_eq!(agent["FLEET_AGENT_ENDPOINT"], format!("{pods}:4317"));
        let env = &container(overlay.echo())["env"][0];
        assert_eq!(env["name"], "FLEET_ECHO_SHARD");
        assert_eq!(env["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
    }
}

#[test]
fn shipped_rates_are_valid() {
    for overlay in Overlay::all() {
        let rates = overlay.data("ConfigMap", "fleet-echo-rates").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rates.yaml");
        std::fs::write(&file, rates["rates.yaml"].as_str().unwrap()).unwrap();
        let checked = Command::new(ECHO)
            .args(["rates", "check"])
            .arg(&file)
            .output();
        let checked = checked.unwrap();
        let stderr = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{}: {stderr}", overlay.name);
    }
}

#[test]
fn the_prometheus_operator_gets_the_tested_rules() {
    let text = |path: &str| std::fs::read_to_string(repository(path)).unwrap();
    let tested: Value = serde_norway::from_str(&text("deploy/prometheus/rules.yml")).unwrap();
    let shipped = text("deploy/statefulset/components/monitoring/rules.yaml");
    let shipped: Value = serde_norway::from_str(&shipped).unwrap();
    assert_eq!(shipped["spec"], tested);
    let overlay = Overlay::new("production-cert-manager");
    assert_eq!(
        overlay.object("PrometheusRule", "fleet-echo")["spec"],
        tested
    );
    let monitor = &overlay.object("ServiceMonitor", "fleet-echo")["spec"];
    let job = &monitor["endpoints"][0]["relabelings"][0];
    assert_eq!(job["targetLabel"], "job");
    let rules = tested.to_string();
    let job = format!("job=\\\"{}\\\"", job["replacement"].as_str().unwrap());
    assert!(rules.contains(&job), "the rules do not select {job}");
}
