//! An overlay in its own network namespace, with a volume, and secrets created by the script of the
//! quick start.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;

use super::container::{Container, Image, Surroundings, probe};
use super::rendered::{Overlay, container};
use crate::testbed::namespace::Namespace;
use crate::testbed::{ECHO, repository, wait_for};

/// Host names that the DNS of the cluster would resolve.
const NAMES: &str =
    "127.0.0.1 localhost fleet-echo fleet-echo.fleet-echo.svc kubernetes.default.svc\n";

/// Fields of the pod for the downward API.
const FIELDS: [(&str, &str); 2] = [
    ("spec.nodeName", "gpu-host-1"),
    ("metadata.name", "fleet-echo-1"),
];

/// The certificate that an operator provides in production.
const CERTIFICATE: [(&str, &str); 2] = [
    ("tls.crt", "secrets/cert.pem"),
    ("tls.key", "secrets/key.pem"),
];

/// An applied overlay with its network and files.
pub(super) struct Site {
    pub(super) overlay: Overlay,
    pub(super) network: Namespace,
    folder: TempDir,
}

impl Site {
    /// Applies an overlay.
    pub(super) fn new(overlay: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "make-secrets";
        let quick_start = repository("deploy/statefulset/overlays/quickstart");
        std::fs::copy(quick_start.join(script), folder.path().join(script)).unwrap();
        let made = Command::new(folder.path().join(script))
            .env("FLEET_ECHO", ECHO)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{stderr}");
        let site = Self {
            overlay: Overlay::new(overlay),
            network: Namespace::new().unwrap(),
            folder,
        };
        std::fs::create_dir(site.path("data")).unwrap();
        site.set_group("data", 0o2770);
        site
    }

    /// Returns another node with the same volume and secrets.
    pub(super) fn on_another_node(&self) -> Self {
        let copy = Self::new(self.overlay.name);
        for shared in ["data", "secrets"] {
            let own = copy.path(shared);
            std::fs::remove_dir_all(&own).unwrap();
            std::os::unix::fs::symlink(self.path(shared), own).unwrap();
        }
        copy
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Changes group and mode of a path, as `fsGroup` does for a volume.
    pub(super) fn set_group(&self, name: &str, mode: u32) {
        let group = &self.overlay.echo()["securityContext"]["fsGroup"];
        let path = self.path(name);
        chown(
            &path,
            None,
            group.as_u64().and_then(|id| id.try_into().ok()),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns the files of a volume made of a `Secret` or a `ConfigMap`; `None` for others.
    fn files(&self, volume: &Value) -> Option<Vec<(String, Vec<u8>)>> {
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let read =
                |(key, path): (String, String)| (key, std::fs::read(self.path(&path)).unwrap());
            let Some(data) = self.overlay.data("Secret", secret) else {
                let certificate = CERTIFICATE.map(|(key, path)| (key.to_owned(), path.to_owned()));
                return Some(certificate.map(read).into());
            };
            let path = |(key, encoded): (&String, &Value)| {
                let path = STANDARD.decode(encoded.as_str().unwrap()).unwrap();
                (key.clone(), String::from_utf8(path).unwrap())
            };
            return Some(data.iter().map(path).map(read).collect());
        }
        let map = volume["configMap"]["name"].as_str()?;
        let Some(data) = self.overlay.data("ConfigMap", map) else {
            panic!("no ConfigMap {map}");
        };
        let text = |(key, value): (&String, &Value)| {
            // The certificate authority differs in each run, too.
            let value = value.as_str().unwrap();
            let bytes = match value.strip_prefix("secrets/") {
                Some(_) => std::fs::read(self.path(value)).unwrap(),
                None => value.as_bytes().to_vec(),
            };
            (key.clone(), bytes)
        };
        Some(data.iter().map(text).collect())
    }

    /// Creates the folder of a volume, as the node does.
    fn volume(&self, volume: &Value) -> Option<PathBuf> {
        let name = format!("volume-{}", volume["name"].as_str().unwrap());
        let files = self.files(volume)?;
        std::fs::create_dir_all(self.path(&name)).unwrap();
        self.set_group(&name, 0o750);
        for (key, bytes) in files {
            let file = format!("{name}/{key}");
            std::fs::write(self.path(&file), bytes).unwrap();
            self.set_group(&file, 0o440);
        }
        Some(self.path(&name))
    }

    /// Starts a pod with these volumes in addition to those made of objects.
    pub(super) fn start(
        &self,
        pod: &Value,
        image: &Image,
        volumes: &[(&str, PathBuf)],
        log: &str,
    ) -> Container {
        let made = pod["volumes"].as_array().unwrap().iter();
        let made = made.filter_map(|volume| {
            let name = volume["name"].as_str().unwrap().to_owned();
            Some((name, self.volume(volume)?))
        });
        let others = volumes
            .iter()
            .map(|(name, path)| ((*name).to_owned(), path.clone()));
        let settings = container(pod)["envFrom"][0]["configMapRef"]["name"].as_str();
        let settings = settings.map(|name| self.overlay.data("ConfigMap", name).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let around = Surroundings {
            network: &self.network,
            volumes: made.chain(others).collect(),
            environment: settings
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
            fields: FIELDS
                .map(|(path, value)| (path.to_owned(), value.to_owned()))
                .into(),
        };
        image.write("etc/hosts", NAMES);
        Container::start(image, pod, &around, &self.path(log))
    }

    /// Starts the pod of Echo with additional volumes.
    pub(super) fn echo_with(&self, volumes: &[(&str, PathBuf)], log: &str) -> Container {
        let image = Image::for_program(Path::new(ECHO));
        let data = ("data", self.path("data"));
        let volumes = [volumes, &[data]].concat();
        self.start(self.overlay.echo(), &image, &volumes, log)
    }

    /// Starts the pod of Echo.
    pub(super) fn echo(&self, log: &str) -> Container {
        self.echo_with(&[], log)
    }

    /// Waits until the readiness probe returns 200.
    pub(super) fn wait_until_ready(&self) {
        let spec = container(self.overlay.echo());
        wait_for("the pod to be ready", || {
            probe(&self.network, spec, "readinessProbe") == Some(200)
        });
    }

    /// Returns the log of a pod.
    pub(super) fn log(&self, log: &str) -> String {
        std::fs::read_to_string(self.path(log)).unwrap()
    }

    /// Runs a client command with the operator token of the quick start.
    pub(super) fn query(&self, words: &[&str]) -> Value {
        let mut command = self.network.run(ECHO);
        command
            .args(words)
            .args(["--json", "--server", "https://localhost:8081", "--tls-ca"])
            .arg(self.path("secrets/ca.pem"))
            .arg("--token-file")
            .arg(self.path("secrets/operator.token"));
        let answer = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{stderr}");
        serde_json::from_slice(&answer.stdout).unwrap()
    }

    /// Returns the number of rows of a view.
    pub(super) fn count(&self, view: &str) -> u64 {
        let statement = format!("SELECT count(*)::BIGINT AS n FROM {view}");
        let answer = self.query(&["sql", &statement]);
        answer["rows"][0]["n"].as_u64().unwrap()
    }
}
