//! Rendered overlays.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::testbed::repository;

/// All overlays of `deploy/statefulset/overlays`.
pub(crate) const OVERLAYS: [&str; 5] = [
    "quickstart",
    "production",
    "production-cert-manager",
    "airgapped",
    "sharded",
];

/// Where the rendered text of an overlay is kept. The secrets of the quick start hold the paths of the files that they are made
/// of, because the files themselves are new each time.
pub(crate) fn file(overlay: &str) -> PathBuf {
    repository("testdata/deploy").join(format!("{overlay}.yaml"))
}

/// The objects of a file.
pub(crate) fn objects(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let documents = serde_norway::Deserializer::from_str(&text);
    let read = |document| Value::deserialize(document).unwrap();
    documents.map(read).collect()
}

/// What copies the database, which no overlay contains.
pub(crate) fn backup_job() -> PathBuf {
    repository("deploy/statefulset/backup-job.yaml")
}

/// The objects of an overlay.
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

    /// The object of a kind with a name.
    #[track_caller]
    pub(crate) fn object(&self, kind: &str, name: &str) -> &Value {
        let found = self.find(kind, name);
        found.unwrap_or_else(|| panic!("{}: no {kind} {name}", self.name))
    }

    /// The pod of Echo.
    pub(crate) fn echo(&self) -> &Value {
        &self.object("StatefulSet", "fleet-echo")["spec"]["template"]["spec"]
    }

    /// The pod of the agent.
    pub(crate) fn agent(&self) -> &Value {
        &self.object("DaemonSet", "fleet-agent")["spec"]["template"]["spec"]
    }

    /// The data of a `ConfigMap` or a `Secret`; those of a secret are encoded.
    pub(crate) fn data(&self, kind: &str, name: &str) -> Option<&serde_json::Map<String, Value>> {
        self.find(kind, name)?["data"].as_object()
    }
}

/// The only container of a pod.
pub(crate) fn container(pod: &Value) -> &Value {
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1, "{pod}");
    &pod["containers"][0]
}

/// A list of strings.
pub(crate) fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|word| word.as_str().unwrap()).collect()
}
