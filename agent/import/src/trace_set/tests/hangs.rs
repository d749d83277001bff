//! Files of jobs that hang or seem to, from `testdata/hangs`, with what is right about each.

use fleet_hang::{Hang, Kind};

use super::{Imported, import};

/// Reads a folder, or one file of it.
fn read(folder: &str, file: &str) -> Imported {
    import(&format!("../hangs/{folder}"), |name| name.starts_with(file))
}

fn hang(folder: &str) -> Hang {
    read(folder, "").report.hang.unwrap()
}

#[test]
fn the_findings_about_each_folder_are_right() {
    let one = |kind, ranks: &[u32], seq| vec![(kind, ranks.to_vec(), seq)];
    for (folder, expected) in [
        ("one-missing", one(Kind::DidNotJoin, &[5], 101)),
        ("all-joined", one(Kind::DoesNotEnd, &[], 101)),
        ("one-gpu-not-begun", one(Kind::NotBegun, &[2], 101)),
        (
            "one-gpu-not-begun-run-ahead",
            one(Kind::NotBegun, &[2], 101),
        ),
        ("groups-of-one-name", one(Kind::DidNotJoin, &[3], 7)),
        ("mismatch-sizes", one(Kind::Mismatch, &[2, 5], 38)),
        ("mismatch-operations", one(Kind::Mismatch, &[3], 11)),
        ("mismatch-of-two", one(Kind::Mismatch, &[0, 1], 7)),
        ("other-order", one(Kind::OtherOrder, &[0, 1], 216)),
        ("numbers-as-text", one(Kind::DidNotJoin, &[1], 3)),
        ("list-of-pytorch-2.2", one(Kind::DidNotJoin, &[1], 3)),
        ("watchdog", one(Kind::NotObserved, &[2], 101)),
    ] {
        let hang = hang(folder);
        let seq = hang.blocked[0].seq;
        let findings = hang.findings.iter();
        let found: Vec<_> = findings
            .map(|one| (one.kind, one.ranks.clone(), seq))
            .collect();
        assert_eq!(found, expected, "{folder}: {hang:#?}");
    }
}

#[test]
fn the_group_of_one_name_that_waits_is_named_by_its_ranks() {
    let hang = hang("groups-of-one-name");
    assert_eq!(
        (&hang.blocked[0].waiting[..], &hang.blocked[0].behind[..]),
        (&[2][..], &[3][..])
    );
}

#[test]
fn answers_of_nccl_name_the_rank_that_launched_least() {
    for (file, rank) in [
        ("ahead.json", 7),
        ("ahead-of-four", 0),
        ("one-behind", 7),
        ("null-status", 7),
    ] {
        let report = read("ras", file).report;
        let hang = report.hang.unwrap();
        assert_eq!(hang.missing, [rank], "{file}: {hang:#?}");
    }
    let stopped = import("../nccl-ras", |name| name == "stopped.json");
    let findings = stopped.report.hang.unwrap().findings;
    assert_eq!(
        (findings[0].kind, &findings[0].ranks[..]),
        (Kind::ProcessDead, &[3][..])
    );
    let healthy = import("../nccl-ras", |name| name == "healthy.json");
    let refusal = healthy.report.refusal.unwrap();
    assert!(
        refusal.starts_with("no rank is behind another one"),
        "{refusal}"
    );
}

#[test]
fn dumps_of_different_moments_of_a_healthy_job_show_no_hang() {
    let proof = "rank 7 has completed operation 500 of communicator 0, rank 2 had enqueued no more than 498";
    let report = read("healthy", "").report;
    assert_eq!(report.hang, None);
    assert!(report.refusal.unwrap().starts_with(proof));
    let timed = read("healthy-timed", "").report;
    assert_eq!(
        (timed.hang, timed.refusal, timed.late[0].rank),
        (None, None, 6)
    );
}

#[test]
fn a_hang_that_all_ranks_joined_is_reported_as_a_wait_of_all() {
    assert_eq!(read("all-joined", "").progress.len(), 8);
}

#[test]
fn pending_transfers_that_both_sides_enqueued_are_said_to_be_pending() {
    let mut set = super::TraceSet::default();
    for (rank, name) in [(0, "nccl:send 0->1"), (1, "nccl:recv 1<-0")] {
        let entry = serde_json::json!({"process_group": ["0", ""], "profiling_name": name,
            "is_p2p": true, "p2p_seq_id": 3, "state": "scheduled"});
        let dump = serde_json::json!({"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [entry]});
        set.add(&format!("rank_{rank}"), dump.to_string().as_bytes())
            .unwrap();
    }
    let refusal = set.finish().unwrap().report.refusal.unwrap();
    assert!(
        refusal.starts_with("sends and receives are pending"),
        "{refusal}"
    );
}
