//! An overlay in a network of its own, with a volume, and secrets that the script of the quick start made.

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

/// Names that the cluster's DNS would know.
const NAMES: &str =
    "127.0.0.1 localhost fleet-echo fleet-echo.fleet-echo.svc kubernetes.default.svc\n";

/// What a pod knows of itself.
const FIELDS: [(&str, &str); 2] = [
    ("spec.nodeName", "gpu-host-1"),
    ("metadata.name", "fleet-echo-1"),
];

/// The certificate that an operator brings to production.
const BROUGHT: [(&str, &str); 2] = [
    ("tls.crt", "secrets/cert.pem"),
    ("tls.key", "secrets/key.pem"),
];

/// What was applied, and where it lies.
pub(super) struct Site {
    pub(super) overlay: Overlay,
    pub(super) network: Namespace,
    folder: TempDir,
}

impl Site {
    /// An overlay.
    pub(super) fn new(overlay: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "make-secrets";
        let quick_start = repository("deploy/statefulset/overlays/quickstart");
        std::fs::copy(quick_start.join(script), folder.path().join(script)).unwrap();
        let made = Command::new(folder.path().join(script))
            .env("FLEET_ECHO", ECHO)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
        let site = Self {
            overlay: Overlay::new(overlay),
            network: Namespace::new().unwrap(),
            folder,
        };
        std::fs::create_dir(site.path("data")).unwrap();
        site.belongs_to_group("data", 0o2770);
        site
    }

    /// The same volume and secrets, seen from another node.
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

    /// What `fsGroup` does to a volume.
    pub(super) fn belongs_to_group(&self, name: &str, mode: u32) {
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

    /// The files of a volume that is made of a Secret or a `ConfigMap`; nothing for others.
    fn files(&self, volume: &Value) -> Option<Vec<(String, Vec<u8>)>> {
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let read =
                |(key, path): (String, String)| (key, std::fs::read(self.path(&path)).unwrap());
            let Some(data) = self.overlay.data("Secret", secret) else {
                let brought = BROUGHT.map(|(key, path)| (key.to_owned(), path.to_owned()));
                return Some(brought.map(read).into());
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
            // The authority is made anew each time, too.
            let value = value.as_str().unwrap();
            let bytes = match value.strip_prefix("secrets/") {
                Some(_) => std::fs::read(self.path(value)).unwrap(),
                None => value.as_bytes().to_vec(),
            };
            (key.clone(), bytes)
        };
        Some(data.iter().map(text).collect())
    }

    /// The folder of a volume, as the node makes it.
    fn volume(&self, volume: &Value) -> Option<PathBuf> {
        let name = format!("volume-{}", volume["name"].as_str().unwrap());
        let files = self.files(volume)?;
        std::fs::create_dir_all(self.path(&name)).unwrap();
        self.belongs_to_group(&name, 0o750);
        for (key, bytes) in files {
            let file = format!("{name}/{key}");
            std::fs::write(self.path(&file), bytes).unwrap();
            self.belongs_to_group(&file, 0o440);
        }
        Some(self.path(&name))
    }

    /// A pod with the volumes that are not made of objects.
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

    /// The pod of Echo, with further volumes that are not made of objects.
    pub(super) fn echo_with(&self, volumes: &[(&str, PathBuf)], log: &str) -> Container {
        let image = Image::for_program(Path::new(ECHO));
        let data = ("data", self.path("data"));
        let volumes = [volumes, &[data]].concat();
        self.start(self.overlay.echo(), &image, &volumes, log)
    }

    /// The pod of Echo.
    pub(super) fn echo(&self, log: &str) -> Container {
        self.echo_with(&[], log)
    }

    /// Waits until the probe of the manifest is answered with 200.
    pub(super) fn wait_until_ready(&self) {
        let spec = container(self.overlay.echo());
        wait_for("the pod to be ready", || {
            probe(&self.network, spec, "readinessProbe") == Some(200)
        });
    }

    pub(super) fn said(&self, log: &str) -> String {
        std::fs::read_to_string(self.path(log)).unwrap()
    }

    /// Asks as the operator of the quick start.
    pub(super) fn ask(&self, words: &[&str]) -> Value {
        let mut command = self.network.run(ECHO);
        command
            .args(words)
            .args(["--json", "--server", "https://localhost:8081", "--tls-ca"])
            .arg(self.path("secrets/ca.pem"))
            .arg("--token-file")
            .arg(self.path("secrets/operator.token"));
        let answer = command.output().unwrap();
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{said}");
        serde_json::from_slice(&answer.stdout).unwrap()
    }

    /// How many rows the view has.
    pub(super) fn count(&self, view: &str) -> u64 {
        let statement = format!("SELECT count(*)::BIGINT AS n FROM {view}");
        let answer = self.ask(&["sql", &statement]);
        answer["rows"][0][0].as_u64().unwrap()
    }
}
