//! Addresses in the files for Prometheus and Grafana: the Service of the manifests, under a name of
//! its certificate.

use crate::deploy::rendered::{Overlay, words};
use crate::testbed::repository;

#[test]
fn prometheus_and_grafana_use_the_service_that_the_manifests_create() {
    let overlay = Overlay::new("production-cert-manager");
    let service = overlay.object("Service", "fleet-echo");
    let namespace = service["metadata"]["namespace"].as_str().unwrap();
    let host = format!("fleet-echo.{namespace}.svc");
    let ports = service["spec"]["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == "http").unwrap();
    let address = format!("{host}:{}", port["port"]);

    let names = words(&overlay.object("Certificate", "fleet-echo")["spec"]["dnsNames"]);
    assert!(names.contains(&host.as_str()), "{names:?}");
    for (file, expected) in [
        (
            "deploy/prometheus/prometheus.yml",
            format!("[\"{address}\"]"),
        ),
        (
            "deploy/grafana/provisioning/datasources/echo.yaml",
            format!("url: https://{address}\n"),
        ),
        (
            "deploy/grafana/provisioning/datasources/echo.yaml",
            format!("allowedHosts: [\"https://{address}\"]"),
        ),
    ] {
        let text = std::fs::read_to_string(repository(file)).unwrap();
        assert!(text.contains(&expected), "{file}: no {expected}");
    }
}
