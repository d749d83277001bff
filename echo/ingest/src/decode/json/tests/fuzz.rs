//! Any bytes: nothing panics, nothing grows beyond its bound, and what comes out is a request that
//! the walker and `prost` understand alike.

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

/// What to put into a text: what JSON and its mapping are sensitive to.
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

/// Translates; says whether it is a request.
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

/// The text with one change.
fn mutated(mut json: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let place = rng.random_range(0..=json.len());
    let end = (place + rng.random_range(0..30)).min(json.len());
    match rng.random_range(0..6) {
        0 => drop(json.drain(place..end)),
        1 => {
            let piece = json[place..end].to_vec();
            let target = rng.random_range(0..=json.len());
            drop(json.splice(target..target, piece));
        }
        2 => json.truncate(place.max(json.len() / 2)),
        3 => {
            if let Some(byte) = json.get_mut(place) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
        _ => {
            let piece = PIECES.choose(rng).unwrap().bytes();
            // In place of something, or between two things.
            let end = if rng.random() { place } else { end };
            drop(json.splice(place..end, piece));
        }
    }
    json
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn spoilt_requests_are_refused_or_remain_requests(seed: u64, mutations in 1..5_u32) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (payload, mut json) = made(&mut rng);
        for _ in 0..mutations {
            json = mutated(json, &mut rng);
        }
        check(payload, &json);
    }

    #[test]
    fn any_bytes_are_refused_or_a_request(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        check(Payload::Metrics, &bytes);
    }
}

#[test]
fn the_corpus_of_json_requests_is_taken_or_refused_as_its_names_say() {
    for (name, payload, json) in corpus("json") {
        assert_eq!(check(payload, &json), name.contains("sound"), "{name}");
    }
}

/// Runs for `FLEET_FUZZ_SECONDS` (10 unless said): `cargo test --lib -- --ignored fuzz_json`.
#[test]
#[ignore = "runs for as long as it is told to"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
fn fuzz_json_against_the_walker_and_prost() {
    let asked = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = asked.and_then(|text| text.parse().ok()).unwrap_or(10);
    let (start, mut bodies, mut taken) = (Instant::now(), 0_u64, 0_u64);
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
            taken += u64::from(is_request);
            bodies += 1;
            // Most changes break JSON for good, so that one begins again.
            if !is_request {
                json.clone_from(&sound);
            }
            json = mutated(json, &mut rng);
        }
    }
    println!(
        "{bodies} bodies in {seconds} s, {taken} of them requests, no panic and no difference"
    );
}
