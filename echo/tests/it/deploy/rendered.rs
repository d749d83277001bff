//! Rendered overlays.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::testbed::repository;

/// Names of the overlays in `deploy/statefulset/overlays`.
pub(crate) const OVERLAYS: [&str; 6] = [
    "quickstart",
    "production",
    "production-cert-manager",
    "airgapped",
    "sharded",
    "sharded-lake",
];

/// Returns the path of the rendered text of an overlay. Secrets of the quick start contain the
/// paths of their files, because the files differ in each run.
pub(crate) fn file(overlay: &str) -> PathBuf {
    repository("testdata/deploy").join(format!("{overlay}.yaml"))
}

/// Returns the objects of a file.
pub(crate) fn objects(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let documents = serde_norway::Deserializer::from_str(&text);
    let read = |document| Value::deserialize(document).unwrap();
    documents.map(read).collect()
}

/// Returns the path of the backup job, which is part of no overlay.
pub(crate) fn backup_job() -> PathBuf {
    repository("deploy/statefulset/backup-job.yaml")
}

/// An overlay with its objects.
pub(crate) struct Overlay {
    pub(crate) name: &'static str,
    pub(crate) objects: Vec<Value>,
}

impl Overlay {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            objects: objects(&file(name)),
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        OVERLAYS.into_iter().map(Self::new)
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let objects = self.objects.iter();
        objects.filter(move |object| object["kind"] == kind)
    }

    fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects.iter().find(is_it)
    }

    /// Returns the object of a kind with a name.
    #[track_caller]
    pub(crate) fn object(&self, kind: &str, name: &str) -> &Value {
        let found = self.find(kind, name);
        found.unwrap_or_else(|| panic!("{}: no {kind} {name}", self.name))
    }

    /// Returns the pod specification of Echo.
    pub(crate) fn echo(&self) -> &Value {
        &self.object("StatefulSet", "fleet-echo")["spec"]["template"]["spec"]
    }

    /// Returns the pod specification of the agent.
    pub(crate) fn agent(&self) -> &Value {
        &self.object("DaemonSet", "fleet-agent")["spec"]["template"]["spec"]
    }

    /// Returns the data of a `ConfigMap` or a `Secret`; those of a secret are encoded.
    pub(crate) fn data(&self, kind: &str, name: &str) -> Option<&serde_json::Map<String, Value>> {
        self.find(kind, name)?["data"].as_object()
    }
}

/// Returns the only container of a pod.
pub(crate) fn container(pod: &Value) -> &Value {
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1, "{pod}");
    &pod["containers"][0]
}

/// Returns a list of strings; empty if absent.
pub(crate) fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|word| word.as_str().unwrap()).collect()
}
