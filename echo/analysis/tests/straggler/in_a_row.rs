//! Jobs with several faults, 8 to 11 s apart: each is named and priced on its own, so no fault is learned as
//! the usual, and none is billed to the rank of the one before.

use std::path::Path;

use echo_analysis::straggler::incident::Finding;
use echo_analysis::straggler::rule::Rule;

use crate::recording::Recording;
use crate::score::{Score, Shown, Truth, cost, play, score, seconds};

/// Rank that was slow for 16 to 18 s, and GPU time lost, seconds.
const CASES: [(&str, &[(u32, f64)]); 3] = [
    ("ddp-in-a-row", &[(2, 28.5), (1, 12.9), (3, 46.4)]),
    ("fsdp-in-a-row", &[(0, 13.6), (1, 51.2)]),
    ("rl-in-a-row", &[(0, 29.1), (2, 18.2)]),
];

#[test]
fn faults_in_a_row_are_named_and_priced_one_by_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/straggler");
    for (name, faults) in CASES {
        let recording = Recording::read(&folder.join(format!("{name}.gz")));
        let mut incidents = play(&recording, Rule::default());
        incidents.retain(|one| one.finding != Finding::UniformSlowdown);
        incidents.sort_by(|a, b| seconds(a.since).total_cmp(&seconds(b.since)));
        let shown = Shown(&incidents).to_string();
        assert_eq!(incidents.len(), faults.len(), "{name}: {shown}");
        for (incident, (rank, lost_gpu_s)) in incidents.iter().zip(faults) {
            let one = std::slice::from_ref(incident);
            let result = score(one, Truth::Rank(*rank));
            assert_eq!(result, Score::Right, "{name}: {shown}");
            let error = cost(one, f64::INFINITY) / lost_gpu_s - 1.0;
            assert!(error.abs() <= 0.15, "{name}: {error:+.2} of {shown}");
        }
    }
}

/// Of two ranks, one is named or none, so two faults must not be taken for ranks that are late by turns.
#[test]
fn both_ranks_of_a_pair_are_named_if_a_healthy_pause_is_between_their_faults() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/straggler");
    let recording = Recording::read(&folder.join("rl2-in-a-row.gz"));
    for recording in [recording.clone(), recording.in_blocks_of(1.0)] {
        let mut incidents = play(&recording, Rule::default());
        incidents.sort_by(|a, b| seconds(a.since).total_cmp(&seconds(b.since)));
        let shown = Shown(&incidents).to_string();
        assert_eq!(incidents.len(), 3, "{shown}");
        for (incident, rank) in incidents.iter().zip([1, 0, 1]) {
            let result = score(std::slice::from_ref(incident), Truth::Rank(rank));
            assert_eq!(result, Score::Right, "{shown}");
        }
    }
}
