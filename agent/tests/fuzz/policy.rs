//! Policies: arbitrary bytes never corrupt blocks, samples or verdicts.

use fleet_agent_core::classify::Classifier;
use fleet_agent_core::event::Op;
use fleet_agent_core::policy::{PolicyChanges, Settings, decode, find_cohort};
use fleet_agent_core::signal::{Block, CommId, Role, Summary};
use fleet_proto::metadata::POLICY_MAX_BYTES;
use fleet_proto::policy::{CohortPolicy, PolicySet};
use prost::Message;

use super::mutate::{corpus, fuzz};

/// Fields of both messages with extreme values.
const PIECES: [&[u8]; 16] = [
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x20\x00",
    b"\x1a\x00",
    b"\x1a\x02\x48\x00",
    b"\x1a\x02\x48\x01",
    b"\x21\x00\x00\x00\x00\x00\x00\xf8\x7f",
    b"\x29\x00\x00\x00\x00\x00\x00\xf0\x7f",
    b"\x29\x00\x00\x00\x00\x00\x00\xf0\xff",
    b"\x31\x00\x00\x00\x00\x00\x00\x00\x80",
    b"\x39\xff\xff\xff\xff\xff\xff\xef\x7f",
    b"\x41\x01\x00\x00\x00\x00\x00\x00\x00",
    b"\x68\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x68\x40",
    b"\x58\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x62\x05\xff\xff\xff\xff\x0f",
    b"\x1a\x0ahost_gap\x21",
];

/// The role in the corpus.
fn role() -> Role {
    Role::new(0x9c5e_1d0b_7a3f_2468)
}

/// Nanoseconds of the host's wall clock.
const NOW_NS: u64 = 1_800_000_000_000_000_000;

/// Checks a policy; returns whether it can be decoded.
fn check(bytes: &[u8]) -> bool {
    let Ok(set) = decode(bytes) else {
        return false;
    };
    // Bytes are compared instead of messages, since NaN is not equal to itself.
    let encoded = set.encode_to_vec();
    let again = decode(&encoded).unwrap();
    assert_eq!(encoded, again.encode_to_vec(), "{bytes:02x?}");
    check_settings(&set);
    check_changes(&set);
    for cohort in &set.cohorts {
        check_verdicts(&set, cohort);
    }
    true
}

fn check_settings(set: &PolicySet) {
    for (role, job) in [
        (None, None),
        (Some(role()), None),
        (Some(role()), Some("train-7b-0042")),
    ] {
        let settings = Settings::for_process(set, role, job);
        assert!(settings.sample_mod > 0, "{set:?}");
    }
}

fn check_changes(set: &PolicySet) {
    let mut changes = PolicyChanges::default();
    assert!(changes.update(set).len() <= set.cohorts.len(), "{set:?}");
    assert!(changes.update(set).is_empty(), "{set:?}");
    assert_eq!(changes.version(), Some(set.version));
    assert!(
        set.cohorts
            .iter()
            .all(|cohort| find_cohort(set, &cohort.cohort).is_some())
    );
}

/// A process that compares itself with an invalid policy reports only finite numbers.
fn check_verdicts(set: &PolicySet, cohort: &CohortPolicy) {
    let mut classifier = Classifier::default();
    classifier.record_period(45.5);
    for number in 0..8_u32 {
        let now_ns = NOW_NS + u64::from(number) * 1_000_000_000;
        classifier.set_policy(set.version, set.computed_unix_nano, cohort, now_ns);
        let gap_ms = if number % 4 < 2 { 2.0 } else { 2e3 };
        let gaps = Summary {
            count: 32,
            sum_ms: 32.0 * gap_ms,
            min_ms: gap_ms,
            max_ms: gap_ms,
        };
        let Some(verdict) = classifier.judge(&block(number), &gaps, now_ns) else {
            continue;
        };
        if let Some(measure) = verdict.measure {
            let figures = [measure.lag_ms, measure.z, measure.effect_ratio];
            assert!(
                figures.iter().all(|figure| figure.is_finite()),
                "{verdict:?} by {cohort:?}"
            );
        }
    }
}

fn block(number: u32) -> Block {
    let first = u64::from(number) * 32;
    Block {
        comm: CommId::new(7),
        comm_rank: 3,
        comm_nranks: 8,
        source: fleet_agent_core::signal::Source::Host,
        op: Op::AllReduce,
        seq_first: first,
        seq_last: first + 31,
        iterations: Some(32.0),
        role: Some(role()),
    }
}

#[test]
fn policies_of_the_corpus_are_decoded_as_their_names_state() {
    for (path, bytes) in corpus("policy") {
        assert!(bytes.len() <= POLICY_MAX_BYTES, "{}", path.display());
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check(&bytes), is_sound, "{}", path.display());
    }
}

/// Runs for `FLEET_FUZZ_SECONDS`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
fn fuzz_the_policy_decoder() {
    fuzz("policy", &PIECES, check);
}
