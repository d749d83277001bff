use std::path::Path;

use fleet_hang::Hang;
use serde_json::json;

use super::*;

fn analyse(dumps: &BTreeMap<u32, Dump>) -> Hang {
    fleet_hang::analyse(&job(dumps))
}

/// Reads the dumps of a folder of the test data.
fn dumps(set: &str) -> BTreeMap<u32, Dump> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/thirdparty");
    let files = std::fs::read_dir(testdata.join(set)).unwrap();
    let files = files.map(|file| file.unwrap());
    let mut dumps = BTreeMap::new();
    for file in files {
        let name = file.file_name().into_string().unwrap();
        if name != "fault_injection.log" {
            let dump = Dump::read(&std::fs::read(file.path()).unwrap()).unwrap();
            let rank = dump.rank(&name).unwrap();
            assert!(dumps.insert(rank, dump).is_none(), "{rank} twice");
        }
    }
    dumps
}

/// A dump with pending collectives: group, ranks of the group, number.
fn pending(ops: &[(&str, &str, i64)]) -> Dump {
    let config: serde_json::Map<_, _> = ops
        .iter()
        .map(|(group, ranks, _)| ((*group).to_owned(), json!({"ranks": ranks})))
        .collect();
    let entry = |(record, (group, _, seq)): (usize, &(&str, &str, i64))| {
        json!({"record_id": record, "process_group": [group, ""], "collective_seq_id": seq,
               "profiling_name": "nccl:all_reduce", "state": "scheduled"})
    };
    let entries: Vec<_> = ops.iter().enumerate().map(entry).collect();
    let text = json!({"pg_config": config, "entries": entries}).to_string();
    Dump::read(text.as_bytes()).unwrap()
}

#[test]
fn the_dumps_of_a_gpu_error_name_exactly_its_rank() {
    let hang = analyse(&dumps("flight-recorder/gpu_error_1st"));
    assert_eq!(hang.missing, [12], "{hang:#?}");
    assert!(hang.links.is_empty() && hang.unobserved.is_empty());
    assert_eq!(hang.blocked[0].group, "41");
    assert_eq!(hang.blocked[0].waiting, [13]);
}

#[test]
fn the_dumps_of_two_locked_interpreters_name_exactly_their_ranks() {
    let hang = analyse(&dumps("flight-recorder/lock_gil_2nd"));
    assert_eq!(hang.missing, [10, 15], "{hang:#?}");
    assert!(hang.links.is_empty() && hang.unobserved.is_empty());
}

#[test]
fn a_job_whose_operations_have_completed_does_not_hang() {
    let hang = analyse(&dumps("bytedance-AR/flight-recorder"));
    assert_eq!(hang, Hang::default());
}

#[test]
fn a_rank_without_a_dump_is_named_when_its_peers_wait_for_it_alone() {
    let mut all = dumps("flight-recorder/lock_gil_2nd");
    all.remove(&10);
    let hang = analyse(&all);
    assert_eq!((hang.missing, hang.unobserved), (vec![15], vec![10]));
}

#[test]
fn a_rank_that_waits_for_a_missing_one_is_a_link_of_the_chain() {
    // 2 has not joined `b`, for which 1 waits; 0 waits for 1 in `a`.
    let dumps = BTreeMap::from([
        (0, pending(&[("a", "[0, 1]", 8)])),
        (1, pending(&[("a", "[0, 1]", 7), ("b", "[1, 2]", 5)])),
        (2, pending(&[("b", "[1, 2]", 4)])),
    ]);
    let hang = analyse(&dumps);
    assert_eq!((hang.missing, hang.links), (vec![2], vec![1]));
    assert_eq!(hang.blocked[0].group, "b");
}

#[test]
fn all_ranks_of_a_circle_are_named() {
    let dumps = BTreeMap::from([
        (0, pending(&[("b", "[0, 1]", 4), ("a", "[0, 1]", 8)])),
        (1, pending(&[("a", "[0, 1]", 7), ("b", "[0, 1]", 5)])),
    ]);
    assert_eq!(analyse(&dumps).missing, [0, 1]);
}
