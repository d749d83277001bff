//! Pods that write to a lake, and pods that read it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::manifests::{external, sources};
use super::rendered::{Overlay, container, words};
use crate::testbed::{ECHO, repository};

fn overlay() -> Overlay {
    Overlay::new("sharded-lake")
}

/// Returns the pod specification of the pods that read the lake.
fn reader(overlay: &Overlay) -> &Value {
    &overlay.object("Deployment", "fleet-echo-reader")["spec"]["template"]["spec"]
}

/// Returns the settings of a pod, which are environment variables.
fn settings<'a>(overlay: &'a Overlay, pod: &Value) -> &'a serde_json::Map<String, Value> {
    let name = &container(pod)["envFrom"][0]["configMapRef"]["name"];
    overlay.data("ConfigMap", name.as_str().unwrap()).unwrap()
}

#[test]
fn pods_that_read_the_lake_have_no_more_privileges_than_those_that_write() {
    let overlay = overlay();
    let (reader, writer) = (reader(&overlay), overlay.echo());
    for field in [
        "serviceAccountName",
        "automountServiceAccountToken",
        "enableServiceLinks",
    ] {
        assert_eq!(reader[field], writer[field], "{field}");
    }
    let mut expected = writer["securityContext"].clone();
    // Readers have no volume that outlives them.
    expected
        .as_object_mut()
        .unwrap()
        .remove("fsGroupChangePolicy");
    assert_eq!(reader["securityContext"], expected);
    let (of_reader, of_writer) = (container(reader), container(writer));
    for field in [
        "securityContext",
        "image",
        "livenessProbe",
        "readinessProbe",
    ] {
        assert_eq!(of_reader[field], of_writer[field], "{field}");
    }
    let policy = &overlay.object("NetworkPolicy", "fleet-echo-reader")["spec"];
    assert_eq!(words(&policy["policyTypes"]), ["Ingress", "Egress"]);
    let from = &policy["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["fleet-echo/queries"], "true");
    assert_eq!(policy["ingress"].as_array().unwrap().len(), 1);
}

#[test]
fn volumes_of_pods_that_read_the_lake_exist_and_are_mounted() {
    let overlay = overlay();
    let reader = reader(&overlay);
    for (kind, name) in sources(reader) {
        let is_rendered = overlay.data(kind, &name).is_some();
        assert!(
            is_rendered != external(&overlay).contains(&name.as_str()),
            "{kind} {name}"
        );
    }
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        let mut names: Vec<_> = list.map(|one| one["name"].to_string()).collect();
        names.sort();
        names
    };
    let mounts = &container(reader)["volumeMounts"];
    assert_eq!(names(&reader["volumes"]), names(mounts));
    let writable: Vec<&Value> = mounts
        .as_array()
        .unwrap()
        .iter()
        .filter(|mount| mount["readOnly"] != true)
        .collect();
    assert_eq!(writable.len(), 1, "{writable:?}");
    assert_eq!(writable[0]["mountPath"], "/tmp");
}

#[test]
fn credentials_of_the_lake_are_files_of_a_secret_in_both_kinds_of_pods() {
    let overlay = overlay();
    for pod in [overlay.echo(), reader(&overlay)] {
        let settings = settings(&overlay, pod);
        let volumes = pod["volumes"].as_array().unwrap();
        let lake = volumes.iter().find(|volume| volume["name"] == "lake");
        assert_eq!(lake.unwrap()["secret"]["secretName"], "fleet-echo-lake");
        let mounts = container(pod)["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == "lake").unwrap();
        let folder = mount["mountPath"].as_str().unwrap();
        for (name, key) in [
            ("FLEET_ECHO_LAKE_CATALOG_FILE", "catalog"),
            ("FLEET_ECHO_LAKE_S3_KEY_FILE", "s3.keys"),
        ] {
            let file = Path::new(folder).join(key);
            assert_eq!(settings[name], file.to_str().unwrap());
        }
        assert!(!settings.contains_key("FLEET_ECHO_LAKE"));
    }
}

#[test]
fn settings_of_the_lake_are_flags_and_the_image_has_the_extensions_where_they_say() {
    let help = Command::new(ECHO).args(["serve", "--help"]).output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let overlay = overlay();
    let reader = reader(&overlay);
    for pod in [overlay.echo(), reader] {
        for name in settings(&overlay, pod).keys() {
            assert!(help.contains(&format!("[env: {name}=")), "{name}");
        }
    }
    for flag in words(&container(reader)["args"]) {
        let name = flag.split('=').next().unwrap();
        assert!(flag == "serve" || help.contains(name), "{flag}");
    }
    let folder = settings(&overlay, reader)["FLEET_ECHO_DUCKDB_EXTENSIONS"].clone();
    let image = std::fs::read_to_string(repository("deploy/image/Dockerfile")).unwrap();
    let is_filled = format!("/image/echo{} ", folder.as_str().unwrap());
    assert!(image.contains(&is_filled), "{is_filled}");
}
