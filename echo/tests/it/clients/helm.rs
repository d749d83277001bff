//! The chart rendered by helm: with its default values it equals the overlay, and each value has an
//! effect.

use std::collections::BTreeMap;
use std::process::Command;

use fleet_test_harness::{NIGHTLY, PYPI};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::done;
use super::kubernetes::program;
use crate::deploy::chart::{CHART_OVERLAY, chart};
use crate::deploy::rendered::{container, file, objects};

mod cluster;

/// Prefixes of `ConfigMap`s whose names end with a hash of their content, which kustomize and the
/// chart compute differently.
const HASHED: [&str; 2] = ["fleet-agent-settings-", "fleet-echo-settings-"];

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn without_hashes(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(prefix) = HASHED.iter().find(|prefix| text.starts_with(**prefix)) {
                (*prefix).clone_into(text);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_hashes),
        Value::Object(fields) => fields.values_mut().for_each(without_hashes),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn by_name(objects: Vec<Value>) -> Objects {
    let keyed = objects.into_iter().map(|mut object| {
        without_hashes(&mut object);
        let metadata = &object["metadata"];
        let words = [&object["kind"], &metadata["namespace"], &metadata["name"]];
        let key = words.map(|word| word.as_str().unwrap_or_default().to_owned());
        (key, object)
    });
    keyed.collect()
}

fn template(flags: &[&str]) -> Objects {
    let mut helm = Command::new(program("helm"));
    helm.args(["template", "fleet-echo"])
        .arg(chart())
        .args(flags);
    let rendered = String::from_utf8(done(&mut helm, "helm").stdout).unwrap();
    let documents = serde_norway::Deserializer::from_str(&rendered);
    by_name(
        documents
            .map(|document| Value::deserialize(document).unwrap())
            .collect(),
    )
}

fn find<'a>(objects: &'a Objects, kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|(key, _)| key[0] == kind && key[2] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).1
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn the_chart_renders_the_objects_of_the_overlay() {
    let rendered = template(&[]);
    let overlay = by_name(objects(&file(CHART_OVERLAY)));
    assert_eq!(
        rendered.keys().collect::<Vec<_>>(),
        overlay.keys().collect::<Vec<_>>()
    );
    for (key, object) in &overlay {
        assert_eq!(&rendered[key], object, "{key:?}");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn helm_finds_no_mistakes_in_the_chart() {
    let mut lint = Command::new(program("helm"));
    done(lint.args(["lint", "--strict"]).arg(chart()), "helm lint");
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn helm_refuses_values_that_the_chart_does_not_have() {
    for (set, named) in [
        ("agnet.settings.FLEET_AGENT_COUNT=copies", "agnet"),
        (
            "echo.settings.FLEET_AGENT_COUNT=copies",
            "FLEET_AGENT_COUNT",
        ),
        ("echo.storage.size=much", "size"),
        ("createNamespaces=never", "createNamespaces"),
        ("requireSecrets=never", "requireSecrets"),
        ("namespaces.echo=Not_a_name", "namespaces"),
        ("tokens[0].id=grafana", "sha256"),
    ] {
        let mut helm = Command::new(program("helm"));
        helm.args(["template", "fleet-echo"]).arg(chart());
        let output = helm.args(["--set", set]).output().unwrap();
        assert!(!output.status.success(), "{set}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(named), "{set}: {said}");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn every_value_of_the_chart_has_an_effect() {
    let rendered = template(&[
        "--set=cluster=lab,images.echo=r/echo:1,images.agent=r/agent:1,createNamespaces=false",
        "--set=imagePullSecrets[0].name=registry,access=tokens: []",
        "--set=echo.settings.FLEET_ECHO_RETENTION_AGE=3d,agent.settings.FLEET_AGENT_COUNT=copies",
        "--set=echo.storage.size=5Ti,echo.storage.className=fast,echo.resources.limits.memory=1Gi",
        "--set=echo.nodeSelector.disk=ssd,echo.tolerations[0].key=cpu,agent.nodeSelector.gpu=h200",
        "--set=agent.resources.limits.memory=1Gi,agent.tolerations[0].key=tpu",
        "--set=agent.runtimeClassName=nvidia,rates[0].gpu_model=H200,rates[0].rate=3",
    ]);
    assert!(rendered.keys().all(|key| key[0] != "Namespace"));
    let data = |name: &str| &find(&rendered, "ConfigMap", name)["data"];
    assert_eq!(data("fleet-agent-settings-")["FLEET_AGENT_CLUSTER"], "lab");
    assert_eq!(data("fleet-agent-settings-")["FLEET_AGENT_COUNT"], "copies");
    assert_eq!(
        data("fleet-echo-settings-")["FLEET_ECHO_RETENTION_AGE"],
        "3d"
    );
    assert_eq!(data("fleet-echo-access")["access.yaml"], "tokens: []");
    let rates = data("fleet-echo-rates")["rates.yaml"].as_str().unwrap();
    let rates: Value = serde_norway::from_str(rates).unwrap();
    assert_eq!(
        rates,
        json!({ "rates": [{ "gpu_model": "H200", "rate": 3 }] })
    );

    let echo = &find(&rendered, "StatefulSet", "fleet-echo")["spec"];
    let claim = &echo["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["resources"]["requests"]["storage"], "5Ti");
    let agent = &find(&rendered, "DaemonSet", "fleet-agent")["spec"];
    let (echo, agent) = (&echo["template"]["spec"], &agent["template"]["spec"]);
    for (pod, image, toleration) in [(echo, "r/echo:1", "cpu"), (agent, "r/agent:1", "tpu")] {
        assert_eq!(container(pod)["image"], image);
        assert_eq!(
            container(pod)["resources"],
            json!({ "limits": { "memory": "1Gi" } })
        );
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "registry" }]));
        let tolerations = pod["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.last().unwrap()["key"], toleration);
    }
    assert_eq!(echo["nodeSelector"], json!({ "disk": "ssd" }));
    assert_eq!(agent["nodeSelector"], json!({ "gpu": "h200" }));
    assert_eq!(agent["runtimeClassName"], "nvidia");
    let visible = json!({ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" });
    let environment = container(agent)["env"].as_array().unwrap();
    assert!(environment.contains(&visible), "{environment:?}");
    assert_eq!(agent["tolerations"].as_array().unwrap().len(), 4);
}

/// Kinds of objects that are in no namespace, besides namespaces.
const OF_THE_CLUSTER: [&str; 2] = ["ClusterRoleBinding", "PriorityClass"];

#[test]
#[needs(NIGHTLY, PYPI)]
fn everything_is_in_the_chosen_namespaces_and_that_of_the_release_is_not_created() {
    let rendered = template(&[
        "--namespace=monitoring",
        "--set=namespaces.echo=,namespaces.agent=probes",
    ]);
    for ([kind, namespace, name], object) in &rendered {
        let is_created = kind == "Namespace" && name == "probes";
        let is_in_one = ["monitoring", "probes"].contains(&namespace.as_str());
        let is_of_the_cluster = namespace.is_empty() && OF_THE_CLUSTER.contains(&kind.as_str());
        assert!(
            is_created || is_in_one || is_of_the_cluster,
            "{kind} {name}"
        );
        let text = object.to_string();
        for old in [
            "fleet-echo.svc",
            "serviceaccount:fleet-agent",
            "metadata.name\":\"fleet-",
        ] {
            assert!(!text.contains(old), "{old} in {kind} {name}");
        }
    }
    let settings = &find(&rendered, "ConfigMap", "fleet-agent-settings-")["data"];
    let endpoint = "https://fleet-echo.monitoring.svc:4317";
    assert_eq!(settings["FLEET_AGENT_ENDPOINT"], endpoint);
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn tokens_are_added_to_the_access_file() {
    let hash = "413a28a354cbfeeb16cb2ba5c6893a3bfcd92c80da44cb9bffc43d3a28108e54";
    let token = format!("--set=tokens[0].id=grafana,tokens[0].sha256={hash}");
    for (flags, n_issuers) in [
        (vec![], 1),
        (vec!["--set=access=tokens: [{ id: prometheus }]"], 0),
    ] {
        let rendered = template(&[&flags[..], &[&*token]].concat());
        let access = &find(&rendered, "ConfigMap", "fleet-echo-access")["data"]["access.yaml"];
        let access: Value = serde_norway::from_str(access.as_str().unwrap()).unwrap();
        let tokens = access["tokens"].as_array().unwrap();
        assert_eq!(
            tokens.last(),
            Some(&json!({ "id": "grafana", "sha256": hash }))
        );
        assert_eq!(tokens.len(), 1 + flags.len());
        let issuers = access["issuers"].as_array();
        assert_eq!(issuers.map_or(0, Vec::len), n_issuers);
    }
}
