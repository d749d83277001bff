//! Comparison of the reader with `prost` and the OTLP messages: for any bytes both return the same
//! messages, or both an error.

use std::collections::BTreeSet;
use std::env;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use proptest::prelude::*;
use prost::Message;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::decode::tests::corpus::corpus;
use crate::decode::{Payload, decode_body};
use crate::fixture::RECEIVED;

pub(in crate::decode) mod made;
mod mutate;
mod pieces;
mod read;
mod stripped;

/// Compares both on these bytes. Returns whether they are a valid request.
#[track_caller]
pub(in crate::decode) fn decode_differential(payload: Payload, body: &[u8]) -> bool {
    let decoded = decode_body(payload, body, RECEIVED, None);
    let (reference, walked) = match payload {
        Payload::Metrics => {
            let reference = ExportMetricsServiceRequest::decode(body).ok();
            let walked = read::metrics(body).map(|request| request.encode_to_vec());
            let reference = reference.map(|request| {
                let canonical = decode_body(payload, &request.encode_to_vec(), RECEIVED, None);
                assert_eq!(decoded, canonical, "{body:02x?}");
                stripped::metrics(request).encode_to_vec()
            });
            (reference, walked)
        }
        Payload::Logs => {
            let reference = ExportLogsServiceRequest::decode(body).ok();
            let walked = read::logs(body).map(|request| request.encode_to_vec());
            let reference = reference.map(|request| {
                let canonical = decode_body(payload, &request.encode_to_vec(), RECEIVED, None);
                assert_eq!(decoded, canonical, "{body:02x?}");
                stripped::logs(request).encode_to_vec()
            });
            (reference, walked)
        }
        Payload::Traces => {
            let reference = ExportTraceServiceRequest::decode(body).ok();
            let walked = read::traces(body).map(|request| request.encode_to_vec());
            let reference = reference.map(|request| {
                let canonical = decode_body(payload, &request.encode_to_vec(), RECEIVED, None);
                assert_eq!(decoded, canonical, "{body:02x?}");
                stripped::traces(request).encode_to_vec()
            });
            (reference, walked)
        }
    };
    assert_eq!(decoded.is_ok(), reference.is_some(), "{body:02x?}");
    assert!(walked.ok() == reference, "{body:02x?}");
    reference.is_some()
}

/// Returns a random request of any kind, with this number of mutations.
fn body(rng: &mut ChaCha8Rng, mutations: u32) -> (Payload, Vec<u8>) {
    let (payload, mut body) = match rng.random_range(0..4) {
        0 => (Payload::Metrics, made::metrics(rng).encode_to_vec()),
        1 => (Payload::Logs, made::logs(rng).encode_to_vec()),
        2 => (Payload::Traces, made::traces(rng).encode_to_vec()),
        _ => pieces::broken_up(rng),
    };
    for _ in 0..mutations {
        body = mutate::mutated(&body, rng);
    }
    (payload, body)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_valid_request_is_read_as_by_prost(seed: u64) {
        let (payload, body) = body(&mut ChaCha8Rng::seed_from_u64(seed), 0);
        prop_assert!(decode_differential(payload, &body));
    }

    #[test]
    fn every_mutated_request_is_accepted_or_rejected_as_by_prost(seed: u64, mutations in 1..6_u32) {
        let (payload, body) = body(&mut ChaCha8Rng::seed_from_u64(seed), mutations);
        decode_differential(payload, &body);
    }

    #[test]
    fn any_bytes_are_accepted_or_rejected_as_by_prost(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        decode_differential(Payload::Metrics, &bytes);
        decode_differential(Payload::Logs, &bytes);
        decode_differential(Payload::Traces, &bytes);
    }
}

#[test]
fn mutations_leave_many_requests_intact_and_break_many() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let accepted = (0..400).filter(|_| {
        let (payload, body) = body(&mut rng, 2);
        decode_differential(payload, &body)
    });
    let accepted = accepted.count();
    assert!(
        (100..350).contains(&accepted),
        "{accepted} of 400 were accepted"
    );
}

#[test]
fn the_maximum_nesting_depth_is_that_of_prost() {
    let mut verdicts = BTreeSet::new();
    for lists in 0..36_u32 {
        // An array takes two levels and a list of keys three, of some 93.
        let parent = (93_u32.saturating_sub(3 * lists)) / 2;
        for arrays in parent.saturating_sub(3)..parent + 3 {
            verdicts.insert(decode_differential(
                Payload::Metrics,
                &pieces::nested(arrays, lists),
            ));
            decode_differential(Payload::Metrics, &pieces::unknown_inside(arrays, lists));
        }
    }
    for levels in 90..110 {
        verdicts.insert(decode_differential(
            Payload::Metrics,
            &pieces::groups(levels),
        ));
    }
    assert_eq!(verdicts.len(), 2);
}

#[test]
fn requests_of_the_corpus_are_accepted_if_their_names_contain_sound() {
    for (name, payload, body) in corpus("walker") {
        let accepted = decode_differential(payload, &body);
        assert_eq!(accepted, name.contains("sound"), "{name}");
    }
}

/// Runs for `FLEET_FUZZ_SECONDS` (default 10): `cargo test --lib -- --ignored fuzz_the_walker`.
#[test]
#[ignore = "runs for FLEET_FUZZ_SECONDS"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
fn fuzz_the_walker_against_prost() {
    let configured = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = configured.and_then(|text| text.parse().ok()).unwrap_or(10);
    let (start, mut bodies, mut accepted) = (Instant::now(), 0_u64, 0_u64);
    let (corpus, mut rng) = (corpus("walker"), ChaCha8Rng::from_os_rng());
    while start.elapsed() < Duration::from_secs(seconds) {
        let (payload, mut body) = if rng.random_bool(0.25) {
            let (_, payload, body) = corpus.choose(&mut rng).unwrap().clone();
            (payload, body)
        } else {
            body(&mut rng, 0)
        };
        for _ in 0..40 {
            accepted += u64::from(decode_differential(payload, &body));
            bodies += 1;
            let mutations = rng.random_range(1..4);
            for _ in 0..mutations {
                body = mutate::mutated(&body, &mut rng);
            }
        }
    }
    println!("{bodies} bodies in {seconds} s, {accepted} of them requests, no difference");
}
