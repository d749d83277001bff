use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::DetectorOutput;

use super::{IncidentBundle, find_incident, others, window};
use crate::fixture::{captured_file, context, culprit, process_reports};
use crate::quality::Presence;
use crate::registry::Registry;
use crate::{ToolContext, ToolError};

fn bundle(id: &str) -> IncidentBundle {
    IncidentBundle {
        cluster: None,
        incident: id.to_owned(),
    }
}

/// Files by path, without the folder.
async fn files(context: &ToolContext) -> BTreeMap<String, String> {
    let id = culprit().id.to_string();
    let archive = bundle(&id).archive(&Registry::standard(), context).await;
    let archive = archive.unwrap();
    let mut read = tar::Archive::new(GzDecoder::new(archive.bytes.as_slice()));
    let files = read.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let path = path.strip_prefix(&format!("incident-{id}/")).unwrap();
        (path.to_owned(), text)
    });
    files.collect()
}

#[tokio::test]
async fn the_bundle_of_a_culprit_has_its_stacks_chains_and_costs_and_those_of_a_peer() {
    let context = context().await;
    context.store.append(process_reports()).await.unwrap();
    let files = files(&context).await;
    assert!(files["rank-2/stacks.json"].contains("train.py:142 in forward()"));
    assert!(files["rank-2/chains.json"].contains("cpu_contention"));
    assert!(files["incidents.json"].contains(&culprit().id.to_string()));
    for path in files.keys().filter(|path| *path != "README.md") {
        serde_json::from_str::<serde_json::Value>(&files[path]).unwrap();
        assert!(
            files["README.md"].contains(&format!("`{path}`: ")),
            "{path}"
        );
    }
    assert!(
        files.contains_key("rank-0/explanation.json"),
        "{:?}",
        files.keys()
    );
}

#[tokio::test]
async fn the_bundle_has_the_files_that_the_agent_made_when_the_job_hung() {
    let context = context().await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"4711  S  python3  futex_do_wait\n")
        .unwrap();
    let made = captured_file("threads.txt", &gzip.finish().unwrap());
    context.store.append(made).await.unwrap();
    let files = files(&context).await;
    assert_eq!(
        files["rank-2/threads.txt"],
        "4711  S  python3  futex_do_wait\n"
    );
    assert!(files["README.md"].contains("`rank-2/threads.txt`: states of its threads"));
    assert!(!files.contains_key("rank-0/threads.txt"));
}

#[tokio::test]
async fn an_incident_that_names_no_rank_has_two_ranks_of_its_job_those_with_files_first() {
    let context = context().await;
    let incident = culprit();
    let window = window(&incident).unwrap();
    let presence = Presence::load(&context, Some(&incident.cluster), window);
    let presence = context.run_limited(presence).await.unwrap();
    let others = |named: &[u32], captured: &[u32]| {
        let [named, captured] = [named, captured].map(|own| own.iter().copied().map(Rank::new));
        let named: Vec<Rank> = named.collect();
        let others = others(&incident, &named, &presence, &captured.collect());
        others.iter().map(|rank| rank.value()).collect::<Vec<_>>()
    };
    assert_eq!(others(&[], &[]), [0, 1]);
    assert_eq!(others(&[], &[2, 3]), [2, 3]);
    assert_eq!(others(&[2], &[3]), [3]);
}

#[tokio::test]
async fn a_file_of_an_agent_does_not_replace_an_answer() {
    let context = context().await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"made up").unwrap();
    let made = captured_file("explanation.json", &gzip.finish().unwrap());
    context.store.append(made).await.unwrap();
    let files = files(&context).await;
    assert!(files["rank-2/explanation.json"].contains("\"summary\""));
    let listed = files["README.md"].matches("`rank-2/explanation.json`");
    assert_eq!(listed.count(), 1);
}

#[tokio::test]
async fn an_unknown_incident_is_an_error() {
    let (context, registry) = (context().await, Registry::standard());
    let bundle = bundle("00000000000000ff");
    let found = bundle.archive(&registry, &context).await;
    assert!(matches!(found, Err(ToolError::UnknownIncident { .. })));
}

#[tokio::test]
async fn the_cluster_of_an_incident_is_found_by_its_id() {
    let (context, registry) = (context().await, Registry::standard());
    let mut other = culprit();
    other.cluster = "other".parse().unwrap();
    other.id = IncidentId::new(0x18);
    let id = other.id.to_string();
    let output = DetectorOutput {
        incidents: vec![other.clone()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let found = find_incident(&registry, &context, None, &id).await.unwrap();
    assert_eq!(found.unwrap().cluster, other.cluster);
}
