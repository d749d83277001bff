//! The Helm chart: it renders the objects of an overlay, of which it contains a copy.

use std::path::PathBuf;

use crate::deploy::rendered::{Overlay, container, file};
use crate::testbed::repository;

/// Overlay that the chart equals with its default values.
pub(crate) const CHART_OVERLAY: &str = "production";

/// Returns the folder of the chart.
pub(crate) fn chart() -> PathBuf {
    repository("deploy/helm/fleet-echo")
}

#[test]
fn the_chart_contains_the_objects_of_the_overlay() {
    let copy = std::fs::read_to_string(chart().join("objects.yaml")).unwrap();
    let overlay = std::fs::read_to_string(file(CHART_OVERLAY)).unwrap();
    let is_equal = copy == overlay;
    assert!(is_equal, "run INSTA_UPDATE=always make clients to copy it");
}

#[test]
fn the_version_of_the_chart_is_that_of_the_programs_and_images() {
    let metadata = std::fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for field in ["version", "appVersion"] {
        let line = format!("\n{field}: {version}\n");
        assert!(metadata.contains(&line), "no {line}");
    }
    let values = std::fs::read_to_string(chart().join("values.yaml")).unwrap();
    let overlay = Overlay::new(CHART_OVERLAY);
    for pod in [overlay.echo(), overlay.agent()] {
        let image = container(pod)["image"].as_str().unwrap();
        assert!(values.contains(&format!(": {image}\n")), "no {image}");
    }
}
