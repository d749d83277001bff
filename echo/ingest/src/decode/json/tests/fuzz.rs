//! Fuzzing of the transcoder: for any bytes it does not panic, its output stays within the growth
//! factor, and the reader and `prost` read the output as the same request.

use std::env;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::LIMIT;
use crate::decode::Payload;
use crate::decode::json::{MAX_GROWTH, to_protobuf};
use crate::decode::tests::corpus::corpus;
use crate::decode::tests::differential::{decode_differential, made};

/// Texts that are inserted: syntax of JSON and names of the JSON mapping.
const PIECES: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "null",
    "true",
    "0",
    "-",
    "1e309",
    "1.5",
    "18446744073709551616",
    "-9223372036854775809",
    "\"NaN\"",
    "\"-Infinity\"",
    "\"7\"",
    "\"asInt\":",
    "\"asDouble\":",
    "\"attributes\":[",
    "\"value\":{",
    "\"arrayValue\":{\"values\":[{",
    "\"kvlistValue\":{\"values\":[{",
    "\"bytesValue\":\"",
    "\"traceId\":\"0f",
    "\"new\":",
    " ",
    "\0",
    "\u{e9}",
    "\u{feff}",
];

/// Transcodes the text and checks the result. Returns whether it is a valid request.
#[track_caller]
fn check(payload: Payload, json: &[u8]) -> bool {
    let Ok(body) = to_protobuf(payload, json, LIMIT) else {
        return false;
    };
    assert!(body.len() <= MAX_GROWTH * json.len(), "{json:02x?}");
    assert!(decode_differential(payload, &body), "{json:02x?}");
    true
}

fn made(rng: &mut ChaCha8Rng) -> (Payload, Vec<u8>) {
    let (payload, json) = match rng.random_range(0..3) {
        0 => (Payload::Metrics, serde_json::to_vec(&made::metrics(rng))),
        1 => (Payload::Logs, serde_json::to_vec(&made::logs(rng))),
        _ => (Payload::Traces, serde_json::to_vec(&made::traces(rng))),
    };
    (payload, json.unwrap())
}

/// Returns the text with one change.
fn mutated(mut json: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let index = rng.random_range(0..=json.len());
    let end = (index + rng.random_range(0..30)).min(json.len());
    match rng.random_range(0..6) {
        0 => drop(json.drain(index..end)),
        1 => {
            let piece = json[index..end].to_vec();
            let target = rng.random_range(0..=json.len());
            drop(json.splice(target..target, piece));
        }
        2 => json.truncate(index.max(json.len() / 2)),
        3 => {
            if let Some(byte) = json.get_mut(index) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
        _ => {
            let piece = PIECES.choose(rng).unwrap().bytes();
            // Replace a range, or insert.
            let end = if rng.random() { index } else { end };
            drop(json.splice(index..end, piece));
        }
    }
    json
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_requests_are_rejected_or_still_valid(seed: u64, mutations in 1..5_u32) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (payload, mut json) = made(&mut rng);
        for _ in 0..mutations {
            json = mutated(json, &mut rng);
        }
        check(payload, &json);
    }

    #[test]
    fn any_bytes_are_rejected_or_a_valid_request(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        check(Payload::Metrics, &bytes);
    }
}

#[test]
fn json_requests_of_the_corpus_are_accepted_if_their_names_contain_sound() {
    for (name, payload, json) in corpus("json") {
        assert_eq!(check(payload, &json), name.contains("sound"), "{name}");
    }
}

/// Runs for `FLEET_FUZZ_SECONDS` (default 10): `cargo test --lib -- --ignored fuzz_json`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
fn fuzz_json_against_the_walker_and_prost() {
    let configured = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = configured.and_then(|text| text.parse().ok()).unwrap_or(10);
    let (start, mut bodies, mut accepted) = (Instant::now(), 0_u64, 0_u64);
    let (corpus, mut rng) = (corpus("json"), ChaCha8Rng::from_os_rng());
    while start.elapsed() < Duration::from_secs(seconds) {
        let (payload, sound) = if rng.random_bool(0.25) {
            let (_, payload, json) = corpus.choose(&mut rng).unwrap().clone();
            (payload, json)
        } else {
            made(&mut rng)
        };
        let mut json = sound.clone();
        for _ in 0..40 {
            let is_request = check(payload, &json);
            accepted += u64::from(is_request);
            bodies += 1;
            // Most changes make the JSON invalid for good, so start again.
            if !is_request {
                json.clone_from(&sound);
            }
            json = mutated(json, &mut rng);
        }
    }
    println!(
        "{bodies} bodies in {seconds} s, {accepted} of them requests, no panic and no difference"
    );
}
