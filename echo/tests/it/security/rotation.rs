//! Certificates and tokens that change while they are used.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::site::{Site, metrics, printed, run};
use crate::testbed::{ECHO, Echo, wait_for};

/// Numbers of answers to two callers.
#[derive(Default)]
struct Answers([AtomicU64; 2]);

impl Answers {
    fn now(&self) -> [u64; 2] {
        self.0.each_ref().map(|answered| answered.load(Relaxed))
    }

    /// Waits until each caller has begun a query since now and got its answer.
    fn wait_for_more(&self) {
        let before = self.now();
        wait_for("answers to both callers", || {
            let mut both = self.now().into_iter().zip(before);
            both.all(|(now, before)| now >= before + 2)
        });
    }
}

fn query(echo: &Echo, authorities: &str, token: &str) -> Output {
    let mut command = Command::new(ECHO);
    command.args(["outliers", "--window", "all"]);
    command.args(["--server", &format!("https://{}", echo.http)]);
    command.args(["--tls-ca", authorities, "--token", token]);
    command.output().unwrap()
}

#[test]
fn certificates_and_tokens_change_under_load_without_a_failed_request() {
    let site = Site::new();
    let echo = site.serve(&[]);
    let (stop, answers) = (AtomicBool::new(false), Answers::default());
    let token = std::fs::read_to_string(site.path("grafana")).unwrap();
    let before = std::fs::read_to_string(site.path("tls/ca.pem")).unwrap();
    std::fs::write(site.path("both.pem"), &before).unwrap();
    std::thread::scope(|scope| {
        for answered in &answers.0 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let output = query(&echo, &site.text("both.pem"), &token);
                    assert!(output.status.success(), "{}", printed(&output));
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        answers.wait_for_more();
        // Clients trust the new authority before the server presents its certificate, as in every
        // rotation.
        let other = tempfile::tempdir().unwrap();
        run(&["dev-cert", "--dir", &other.path().display().to_string()]);
        let after = std::fs::read_to_string(other.path().join("ca.pem")).unwrap();
        std::fs::write(site.path("new.pem"), before.clone() + &after).unwrap();
        std::fs::rename(site.path("new.pem"), site.path("both.pem")).unwrap();
        // No caller that read the file before has still to connect.
        answers.wait_for_more();
        for name in ["cert.pem", "key.pem"] {
            std::fs::copy(other.path().join(name), site.path("tls").join(name)).unwrap();
        }
        echo.signal("HUP");
        let served = |authority: &str| {
            std::fs::write(site.path("one.pem"), authority).unwrap();
            query(&echo, &site.text("one.pem"), &token).status.success()
        };
        wait_for("the new certificate", || served(&after));
        assert!(!served(&before));
        // Invalid files leave the previous ones in force.
        std::fs::write(site.path("tls/cert.pem"), "garbage").unwrap();
        std::fs::write(site.path("access.yaml"), "tokens: 5").unwrap();
        echo.signal("HUP");
        let failing = || {
            let metrics = metrics(&echo, &token);
            ["certificate", "access"].iter().all(|source| {
                metrics.contains(&format!(
                    "echo_config_reload_failing{{source=\"{source}\"}} 1"
                ))
            })
        };
        wait_for("the broken files to be noticed", failing);
        answers.wait_for_more();
        stop.store(true, Relaxed);
    });
    assert_eq!(echo.terminate(), 0);
}
