//! Security properties of all overlays: privileges of the pods, network access to them, and writers
//! of volumes.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::rendered::{Overlay, container, words};
use crate::testbed::agent;

#[test]
fn echo_has_no_privileges() {
    for overlay in Overlay::all() {
        let pod = overlay.echo();
        for shared in ["hostPID", "hostNetwork", "hostIPC"] {
            assert!(pod.get(shared).is_none(), "{}: {shared}", overlay.name);
        }
        let of_pod = &pod["securityContext"];
        assert_eq!(of_pod["runAsNonRoot"], true, "{}", overlay.name);
        assert!(of_pod["runAsUser"].as_u64().unwrap() > 0);
        assert!(of_pod["runAsGroup"].as_u64().unwrap() > 0);
        assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault");
        let of_container = &container(pod)["securityContext"];
        let expected = json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(*of_container, expected, "{}", overlay.name);
        for volume in pod["volumes"].as_array().unwrap() {
            assert!(volume.get("hostPath").is_none(), "{volume}");
        }
        let namespace = overlay.object("Namespace", "fleet-echo");
        let standard = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        assert_eq!(standard, "restricted", "{}", overlay.name);
    }
}

/// Returns the capabilities that the help text of the agent lists.
fn documented_capabilities() -> BTreeSet<String> {
    let help = Command::new(agent()).args(["run", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let words = help.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let named = words.filter_map(|word| word.strip_prefix("CAP_"));
    // The help text mentions SYS_ADMIN for a kind of probe that is not used.
    let taken = named.filter(|name| *name != "SYS_ADMIN");
    taken.map(str::to_owned).collect()
}

#[test]
fn the_agent_has_exactly_the_five_documented_capabilities() {
    let expected = documented_capabilities();
    assert_eq!(expected.len(), 5, "{expected:?}");
    for overlay in Overlay::all() {
        let pod = overlay.agent();
        assert_eq!(pod["hostPID"], true, "{}", overlay.name);
        for shared in ["hostNetwork", "hostIPC"] {
            assert!(pod.get(shared).is_none(), "{}: {shared}", overlay.name);
        }
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        let rights = &container(pod)["securityContext"];
        assert_eq!(rights["privileged"], false, "{}", overlay.name);
        assert_eq!(rights["allowPrivilegeEscalation"], false);
        assert_eq!(rights["readOnlyRootFilesystem"], true);
        assert_eq!(words(&rights["capabilities"]["drop"]), ["ALL"]);
        let added = words(&rights["capabilities"]["add"]);
        let added: BTreeSet<String> = added.into_iter().map(str::to_owned).collect();
        assert_eq!(added, expected, "{}", overlay.name);
    }
}

#[test]
fn the_agent_mounts_two_host_folders_and_writes_only_to_them() {
    for overlay in Overlay::all() {
        let pod = overlay.agent();
        let volumes = pod["volumes"].as_array().unwrap();
        let host = |volume: &Value| Some(volume["hostPath"]["path"].as_str()?.to_owned());
        let seen: BTreeSet<String> = volumes.iter().filter_map(host).collect();
        let expected = ["/sys/fs/bpf/fleet-agent", "/var/lib/fleet-agent"];
        assert_eq!(seen, expected.map(str::to_owned).into(), "{}", overlay.name);
        for mount in container(pod)["volumeMounts"].as_array().unwrap() {
            let path = mount["mountPath"].as_str().unwrap();
            let is_read_only = mount["readOnly"] == true;
            let writable = ["/run/fleet-agent/bpf", "/var/lib/fleet-agent"];
            assert_eq!(is_read_only, !writable.contains(&path), "{mount}");
        }
    }
}

#[test]
fn dns_is_allowed_only_to_the_name_server() {
    for overlay in Overlay::all() {
        let policies = overlay.of_kind("NetworkPolicy");
        let rules = policies.filter_map(|policy| policy["spec"]["egress"].as_array());
        for rule in rules.flatten() {
            let ports = rule["ports"].as_array().unwrap();
            if ports.iter().any(|port| port["port"] == 53) {
                let to = &rule["to"][0]["podSelector"]["matchLabels"]["k8s-app"];
                assert_eq!(to, "kube-dns", "{}: {rule}", overlay.name);
            }
        }
    }
}

#[test]
fn agents_run_on_gpu_nodes_one_per_host() {
    for overlay in Overlay::all() {
        let set = &overlay.object("DaemonSet", "fleet-agent")["spec"];
        assert_eq!(set["updateStrategy"]["type"], "RollingUpdate");
        assert_eq!(set["updateStrategy"]["rollingUpdate"]["maxSurge"], 0);
        let pod = overlay.agent();
        let tolerated = pod["tolerations"].as_array().unwrap();
        let tolerates = |key: &str| tolerated.iter().any(|one| one["key"] == key);
        assert!(tolerates("nvidia.com/gpu") && tolerates("amd.com/gpu"));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = &pod["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"];
        assert!(terms.to_string().contains("nvidia.com/gpu.present"));
        let class = pod["priorityClassName"].as_str().unwrap();
        let class = overlay.object("PriorityClass", class);
        assert_eq!(class["preemptionPolicy"], "Never", "{}", overlay.name);
    }
}

#[test]
fn a_volume_has_one_writer_and_is_retained() {
    for overlay in Overlay::all() {
        let set = &overlay.object("StatefulSet", "fleet-echo")["spec"];
        let claims = set["volumeClaimTemplates"].as_array().unwrap();
        assert_eq!(claims.len(), 1, "{}", overlay.name);
        assert_eq!(
            words(&claims[0]["spec"]["accessModes"]),
            ["ReadWriteOncePod"]
        );
        let kept = &set["persistentVolumeClaimRetentionPolicy"];
        let expected = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
        assert_eq!(*kept, expected, "{}", overlay.name);
        let budget = &overlay.object("PodDisruptionBudget", "fleet-echo")["spec"];
        assert_eq!(budget["maxUnavailable"], 1);
        assert_eq!(budget["selector"], set["selector"]);
    }
}

#[test]
fn only_peers_named_in_a_policy_reach_a_pod() {
    for overlay in Overlay::all() {
        for (name, pod) in [
            ("fleet-echo", overlay.echo()),
            ("fleet-agent", overlay.agent()),
        ] {
            let policy = &overlay.object("NetworkPolicy", name)["spec"];
            assert_eq!(words(&policy["policyTypes"]), ["Ingress", "Egress"]);
            let chosen = &policy["podSelector"]["matchLabels"]["app.kubernetes.io/name"];
            assert_eq!(chosen, name, "{}", overlay.name);
            let ports = container(pod)["ports"].as_array().unwrap();
            for rule in policy["ingress"].as_array().unwrap() {
                let from = rule["from"].as_array().unwrap();
                assert!(
                    from.iter()
                        .all(|peer| peer["namespaceSelector"].is_object())
                );
                for open in rule["ports"].as_array().unwrap() {
                    let is_there = ports.iter().any(|port| port["name"] == open["port"]);
                    assert!(is_there, "{}: {open} of {name}", overlay.name);
                }
            }
        }
    }
    let quick = Overlay::new("quickstart");
    let policy = quick.object("NetworkPolicy", "fleet-echo");
    assert_eq!(
        policy["spec"]["egress"],
        json!([]),
        "Echo opens no connections"
    );
}

#[test]
fn pods_get_only_the_api_server_tokens_that_they_need() {
    for overlay in Overlay::all() {
        for (name, pod) in [
            ("fleet-echo", overlay.echo()),
            ("fleet-agent", overlay.agent()),
        ] {
            assert_eq!(
                pod["automountServiceAccountToken"], false,
                "{}",
                overlay.name
            );
            let account = overlay.object("ServiceAccount", name);
            assert_eq!(account["automountServiceAccountToken"], false);
            assert_eq!(pod["serviceAccountName"], name);
        }
        let tokens = |pod: &Value| {
            let sources = pod["volumes"].as_array().unwrap().iter();
            let sources = sources.filter_map(|volume| volume["projected"]["sources"].as_array());
            let tokens = sources
                .flatten()
                .map(|source| &source["serviceAccountToken"]);
            tokens
                .filter(|token| token.is_object())
                .cloned()
                .collect::<Vec<Value>>()
        };
        for token in tokens(overlay.agent()) {
            assert_eq!(token["audience"], "fleet-echo", "{}", overlay.name);
        }
        // Echo needs its token to read public keys; the only bound role permits nothing else.
        let bound: Vec<&Value> = overlay.of_kind("ClusterRoleBinding").collect();
        assert_eq!(
            bound.len(),
            tokens(overlay.echo()).len(),
            "{}",
            overlay.name
        );
        for binding in bound {
            let role = &binding["roleRef"]["name"];
            assert_eq!(role, "system:service-account-issuer-discovery");
        }
        assert_eq!(overlay.of_kind("RoleBinding").count(), 0);
    }
}

#[test]
fn the_air_gapped_site_has_every_image_from_its_own_registry() {
    let overlay = Overlay::new("airgapped");
    for pod in [overlay.echo(), overlay.agent()] {
        let image = container(pod)["image"].as_str().unwrap();
        assert!(image.starts_with("registry.example/echo/fleet-"), "{image}");
        assert_eq!(container(pod)["imagePullPolicy"], "IfNotPresent");
    }
    for name in ["fleet-echo", "fleet-agent"] {
        let account = overlay.object("ServiceAccount", name);
        assert_eq!(account["imagePullSecrets"][0]["name"], "site-registry");
    }
}
