//! Tests with answers of NCCL 2.28.9 from `testdata/nccl-ras/`.

use std::path::Path;

use fleet_agent_core::event::Op;
use fleet_agent_core::ras::{CommStatus, RankStatus, Status};

use super::{parse_json, parse_text};

/// Returns the status in the answer, after the lines in which NCCL accepts the requests.
fn status(file: &str) -> Status {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nccl-ras");
    let answer = std::fs::read_to_string(folder.join(file)).unwrap();
    let accepted = |line: &&str| !line.starts_with("SERVER PROTOCOL") && line.trim() != "OK";
    let body = answer.split_inclusive('\n').filter(accepted);
    let body = body.collect::<String>();
    let parse = if file.ends_with("json") {
        parse_json
    } else {
        parse_text
    };
    parse(&body).unwrap()
}

fn all_reduces(comm: &CommStatus) -> Vec<(u32, u64)> {
    let of = |rank: &RankStatus| (rank.member.rank, rank.launched[&Op::AllReduce]);
    comm.ranks.iter().map(of).collect()
}

#[test]
fn ranks_of_a_healthy_job_have_launched_the_same() {
    let alike = [(0, 476), (1, 476), (2, 476), (3, 476)];
    assert_eq!(all_reduces(&status("healthy.json").comms[0]), alike);
    assert_eq!(status("healthy.txt"), Status::default());
}

#[test]
fn a_rank_that_sleeps_has_launched_less_in_both_formats() {
    for file in ["behind.json", "behind.txt"] {
        let status = status(file);
        let expected = [(0, 483), (1, 483), (2, 483), (3, 476)];
        assert_eq!(all_reduces(&status.comms[0]), expected, "{file}");
    }
}

#[test]
fn a_rank_whose_process_is_stopped_is_missing_in_both_formats() {
    for file in ["stopped.json", "stopped.txt"] {
        let status = status(file);
        let [comm] = status.comms.as_slice() else {
            panic!("{status:?}")
        };
        let missing = comm.missing.iter().map(|member| member.rank);
        assert_eq!(missing.collect::<Vec<_>>(), [3], "{file}");
    }
}
