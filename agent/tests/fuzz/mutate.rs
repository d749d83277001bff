//! Corpus of a target, and mutations of it.

use std::env;
use std::fs::{read, read_dir};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Maximum memory of a run, kB: inputs are some kB, and memory must stay in proportion.
const MAX_KB: u64 = 512 * 1024;

/// Returns the files of a target, in order of their names.
pub(crate) fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/fuzz");
    let entries = read_dir(testdata.join(target)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no corpus");
    let file = |path: PathBuf| (path.clone(), read(path).unwrap());
    paths.into_iter().map(file).collect()
}

/// Mutates the corpus of a target and checks the outcome, until the time is up. A check returns
/// whether its input was valid.
pub(crate) fn fuzz(target: &str, pieces: &[&[u8]], check: impl Fn(&[u8]) -> bool) {
    fuzz_files(target, &corpus(target), pieces, check);
}

/// Does the same with some files of a corpus.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a duration, not for a number of cases"
)]
pub(crate) fn fuzz_files(
    target: &str,
    corpus: &[(PathBuf, Vec<u8>)],
    pieces: &[&[u8]],
    check: impl Fn(&[u8]) -> bool,
) {
    let requested = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = requested.and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut rng = ChaCha8Rng::from_os_rng();
    let (start, mut inputs, mut valid) = (Instant::now(), 0_u64, 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        let (_, whole) = corpus.choose(&mut rng).unwrap();
        let mut input = whole.clone();
        for _ in 0..20 {
            input = mutated(input, pieces, &mut rng);
            let is_valid = check(&input);
            inputs += 1;
            valid += u64::from(is_valid);
            // Most mutations invalidate an input for good, so start over from a valid one.
            if !is_valid {
                input.clone_from(whole);
            }
        }
    }
    assert!(peak_kb() < MAX_KB, "{target}: {} kB", peak_kb());
    println!("{target}: {inputs} inputs in {seconds} s, {valid} of them valid");
}

/// Returns the bytes with one mutation.
fn mutated(mut bytes: Vec<u8>, pieces: &[&[u8]], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let place = rng.random_range(0..=bytes.len());
    let end = (place + rng.random_range(0..40)).min(bytes.len());
    match rng.random_range(0..8) {
        0 => drop(bytes.drain(place..end)),
        1 => {
            let piece = bytes[place..end].to_vec();
            let target = rng.random_range(0..=bytes.len());
            drop(bytes.splice(target..target, piece));
        }
        2 => bytes.truncate(place.max(bytes.len() / 2)),
        3 | 4 => {
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << rng.random_range(0..8);
            }
        }
        5 => bytes.insert(place, rng.random()),
        _ => {
            let piece = pieces.choose(rng).unwrap();
            // Replaces a range, or inserts.
            let end = if rng.random() { place } else { end };
            drop(bytes.splice(place..end, piece.iter().copied()));
        }
    }
    bytes
}

/// Returns the peak memory of this process; 0 where the system does not report it.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kb.unwrap_or(0)
}
