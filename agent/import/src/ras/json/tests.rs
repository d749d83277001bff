use fleet_agent_core::event::Op;
use proptest::prelude::{Just, Strategy, any, prop, proptest};
use proptest::sample::Index;

use super::*;

/// Answer as NCCL 2.30.7 writes it: rank 0 answered, rank 1 is dead, rank 2 has left.
const ANSWER: &str = r#"{
  "nccl_version": "2.30.7",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-11-24 12:00:00",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0xfedcba9876543210",
      "secondary_hash": "0x3:0x5",
      "size": 3,
      "ranks_count": 1,
      "missing_ranks_count": 2,
      "ranks": [
        {
          "rank": 0,
          "host": "10.0.0.1",
          "pid": 4711,
          "cuda_dev": 6,
          "nvml_dev": 6,
          "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": false
          },
          "collective_counts": {
            "Broadcast": 1,
            "Reduce": 0,
            "AllGather": 20,
            "ReduceScatter": 0,
            "AllReduce": 300
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "10.0.0.2",
          "pid": 4712,
          "cuda_dev": 0,
          "nvml_dev": 0,
          "status": {
            "unresponsive": true,
            "considered_dead": true
          }
        },
        {
          "rank": 2,
          "host": "10.0.0.2",
          "pid": 4713,
          "cuda_dev": 1,
          "nvml_dev": 1,
          "status": {
            "unresponsive": false,
            "considered_dead": false
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.001,
    "timeouts_count": 0
  }
}
"#;

#[test]
fn an_answer_has_the_communicators_with_counts_and_silent_ranks() {
    let status = parse_json(ANSWER).unwrap();
    let [comm] = status.comms.as_slice() else {
        panic!("{status:?}")
    };
    assert_eq!((comm.hash, comm.size), (0xfedc_ba98_7654_3210, 3));
    let rank = &comm.ranks[0];
    let expected = MemberProcess {
        host: "10.0.0.1".to_owned(),
        pid: 4711,
        device: 6,
    };
    assert_eq!(rank.member.process, Some(expected));
    assert_eq!(rank.launched[&Op::AllReduce], 300);
    assert!(!rank.is_leaving);
    let missing: Vec<u32> = comm.missing.iter().map(|member| member.rank).collect();
    assert_eq!(missing, [1]);
}

#[test]
fn omitted_commas_are_inserted() {
    let whole = parse_json(ANSWER).unwrap();
    let between_members = ANSWER.replace("},\n        {", "}\n        {");
    let between_fields = ANSWER.replace("\"nvml_dev\": 0,", "\"nvml_dev\": 0");
    let after_a_text = ANSWER.replace("\"host\": \"10.0.0.2\",", "\"host\": \"10.0.0.2\"");
    for broken in [between_members, between_fields, after_a_text] {
        assert_ne!(broken, ANSWER);
        serde_json::from_str::<Value>(&broken).unwrap_err();
        assert_eq!(parse_json(&broken).unwrap(), whole);
    }
}

#[test]
fn a_rank_that_leaves_or_has_not_joined_is_marked() {
    for (field, value) in [
        ("\"init_state\": 0", "\"init_state\": 7"),
        ("\"finalize_called\": false", "\"finalize_called\": true"),
        ("\"destroy_flag\": false", "\"destroy_flag\": true"),
        ("\"abort_flag\": false", "\"abort_flag\": true"),
    ] {
        let status = parse_json(&ANSWER.replace(field, value)).unwrap();
        assert!(status.comms[0].ranks[0].is_leaving, "{value}");
    }
}

#[test]
fn a_rank_whose_status_is_null_counts_as_running() {
    let (before, rest) = ANSWER.split_once("\"status\": {").unwrap();
    let (_, after) = rest.split_once('}').unwrap();
    let answer = format!("{before}\"status\": null{after}");
    let rank = &parse_json(&answer).unwrap().comms[0].ranks[0];
    assert_eq!(rank.launched[&Op::AllReduce], 300);
    assert!(!rank.is_leaving);
}

#[test]
fn a_process_that_nccl_does_not_know_is_none() {
    let status = parse_json(&ANSWER.replace("10.0.0.1", "unknown")).unwrap();
    assert_eq!(status.comms[0].ranks[0].member.process, None);
}

/// The answer with one byte replaced, cut, or repeated.
fn damaged() -> impl Strategy<Value = String> {
    let change = (any::<Index>(), any::<u8>(), 0..3_u8);
    (Just(ANSWER), prop::collection::vec(change, 1..6)).prop_map(|(answer, changes)| {
        let mut bytes = answer.as_bytes().to_vec();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

proptest! {
    #[test]
    fn a_damaged_answer_does_not_panic(answer in damaged()) {
        let _status = parse_json(&answer);
    }

    #[test]
    fn garbage_does_not_panic(answer in any::<String>()) {
        let _status = parse_json(&answer);
    }
}
