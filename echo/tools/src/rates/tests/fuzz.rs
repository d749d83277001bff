//! Fuzz test of the rates file: accepted rates can price usage, and survive a round trip.

use std::env;
use std::fmt::Write;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use echo_core::units::{GpuTime, Nanos};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rust_decimal::Decimal;

use crate::rates::{Rate, Rates};

/// Maximum peak memory of a run, kB: files are some kB, and memory must stay in proportion.
const MAX_PEAK_KB: u64 = 512 * 1024;

/// Tokens to which YAML and the table are sensitive.
const PIECES: [&str; 38] = [
    "\n",
    "\n  - ",
    "\n---\n",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "!t ",
    "? ",
    "| ",
    "~",
    ".nan",
    "-.inf",
    "1e400",
    "0x10",
    "1_000",
    "-0",
    "1000000.0000001",
    "79228162514264337593543950335",
    "-9999-01-01",
    "9999-12-31",
    "rates",
    "aliases",
    "locations: [{ cluster: '*', provider: p }]",
    "providers: { p: { X: 1 } }",
    "currency_name: USD",
    "provider: p, region: r, ",
    "effective_to: 2026-01-02, ",
    "node: n1, ",
    "\u{feff}",
    "\u{130}",
];

/// Checks a file; returns true when it is accepted.
fn check(text: &str) -> bool {
    let rates = match Rates::parse(text) {
        Ok(rates) => rates,
        Err(error) => {
            assert!(!error.mistakes.is_empty(), "{text:?}");
            assert!(
                error.mistakes.iter().all(|mistake| !mistake.is_empty()),
                "{text:?}"
            );
            return false;
        }
    };
    for rate in &rates.rates {
        check_price(rate);
    }
    assert!(rates.notes().iter().all(|note| !note.is_empty()));
    // A catalogue has a format of its own, which another test covers.
    if text.contains("providers") {
        return true;
    }
    let again = Rates::parse(&serialize(&rates));
    assert_eq!(
        again.as_ref(),
        Ok(&rates),
        "{text:?} as {}",
        serialize(&rates)
    );
    true
}

fn check_price(rate: &Rate) {
    let price = rate.per_gpu_hour;
    assert!(
        price >= Decimal::ZERO && price <= Decimal::from(1_000_000),
        "{rate:?}"
    );
    assert!(price.normalize().scale() <= 6, "{rate:?}");
    assert!(rate.to.is_none_or(|to| rate.from < to), "{rate:?}");
    let is_for_some = rate.node.is_some() || rate.cluster.is_some() || rate.gpu_model.is_some();
    let is_fallback = rate.source.as_deref() == Some("gpu_rates.yaml");
    assert!(is_for_some || is_fallback, "{rate:?}");
    // 32,000 GPUs for a decade; more does not fit.
    assert!(
        rate.cost(GpuTime::new(i64::MAX)) >= Decimal::ZERO,
        "{rate:?}"
    );
}

/// Serializes the table as a file.
fn serialize(rates: &Rates) -> String {
    let mut text = "rates:\n".to_owned();
    if rates.rates.is_empty() {
        text = "rates: []\n".to_owned();
    }
    for rate in &rates.rates {
        let mut field = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                let quoted = serde_json::to_string(&value).unwrap();
                write!(text, "{name}: {quoted}, ").unwrap();
            }
        };
        field("  - { rate", Some(rate.per_gpu_hour.to_string()));
        field("rate_class", Some(rate.class.name().to_owned()));
        field("currency", Some(rate.currency.to_string()));
        field("node", rate.node.as_ref().map(ToString::to_string));
        field("cluster", rate.cluster.as_ref().map(ToString::to_string));
        field(
            "gpu_model",
            rate.gpu_model.as_ref().map(ToString::to_string),
        );
        let from = Some(rate.from).filter(|from| *from != Nanos::EARLIEST);
        field("effective_from", from.map(date));
        field("effective_to", rate.to.map(date));
        field("provider", rate.provider.clone());
        field("region", rate.region.clone());
        field("source", rate.source.clone());
        text.push_str("}\n");
    }
    text.push_str("locations:\n");
    if rates.locations.is_empty() {
        text.push_str("  []\n");
    }
    for place in &rates.locations {
        let mut fields = vec![("provider", place.provider.as_str())];
        fields.extend(
            place
                .cluster
                .as_ref()
                .map(|name| ("cluster", name.as_str())),
        );
        fields.extend(place.node.as_ref().map(|name| ("node", name.as_str())));
        fields.extend(place.region.as_ref().map(|name| ("region", name.as_str())));
        let object: serde_json::Map<_, _> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        writeln!(text, "  - {}", serde_json::Value::Object(object)).unwrap();
    }
    text.push_str("aliases:\n");
    if rates.aliases.is_empty() {
        text.push_str("  {}\n");
    }
    for (alias, model) in &rates.aliases {
        let [alias, model] =
            [alias, model].map(|name| serde_json::to_string(&name.to_string()).unwrap());
        writeln!(text, "  ? {alias}\n  : {model}").unwrap();
    }
    text
}

fn date(midnight: Nanos) -> String {
    midnight.to_string().split('T').next().unwrap().to_owned()
}

/// Applies one mutation to the text.
fn mutate(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let place = rng.random_range(0..=chars.len());
    let end = (place + rng.random_range(0..30)).min(chars.len());
    match rng.random_range(0..6) {
        0 => drop(chars.drain(place..end)),
        1 => {
            let piece = chars[place..end].to_vec();
            let target = rng.random_range(0..=chars.len());
            drop(chars.splice(target..target, piece));
        }
        2 => {
            if let Some(char) = chars.get_mut(place) {
                *char = char::from(rng.random_range(b' '..b'~'));
            }
        }
        3 => {
            if let Some(char) = chars.get_mut(place).filter(|char| char.is_ascii_digit()) {
                *char = char::from(rng.random_range(b'0'..=b'9'));
            }
        }
        _ => {
            let piece = PIECES.choose(rng).unwrap();
            // Replaces something, or inserts.
            let end = if rng.random() { place } else { end };
            drop(chars.splice(place..end, piece.chars()));
        }
    }
    chars.into_iter().collect()
}

fn corpus() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fuzz/rates");
    let entries = read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| (path.clone(), read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn files_of_the_corpus_are_accepted_exactly_when_named_sound() {
    let corpus = corpus();
    assert!(!corpus.is_empty());
    for (path, text) in corpus {
        let is_sound = path.display().to_string().contains("sound");
        assert_eq!(check(&text), is_sound, "{}", path.display());
    }
}

/// Runs for `FLEET_FUZZ_SECONDS` (default 10): `cargo test --lib -- --ignored fuzz_the_rates`.
#[test]
#[ignore = "runs for a configured time"]
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for a time, not for a number of cases"
)]
fn fuzz_the_rates_file() {
    let seconds = env::var("FLEET_FUZZ_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(10);
    let (corpus, mut rng) = (corpus(), ChaCha8Rng::from_os_rng());
    let (start, mut files, mut accepted) = (Instant::now(), 0_u64, 0_u64);
    let mut slowest = (Duration::ZERO, String::new());
    while start.elapsed() < Duration::from_secs(seconds) {
        let (_, sound) = corpus.choose(&mut rng).unwrap();
        let mut text = sound.clone();
        for _ in 0..20 {
            let begin = Instant::now();
            let is_accepted = check(&text);
            if begin.elapsed() > slowest.0 {
                slowest = (begin.elapsed(), text.clone());
            }
            accepted += u64::from(is_accepted);
            files += 1;
            // Most mutations make a file permanently invalid, so it is replaced by a new one.
            if !is_accepted {
                text.clone_from(sound);
            }
            text = mutate(&text, &mut rng);
        }
    }
    assert!(peak_kb() < MAX_PEAK_KB, "{} kB", peak_kb());
    println!(
        "{files} files in {seconds} s, {accepted} of them accepted, the slowest in {slowest:?}"
    );
}

/// Peak memory of this process, kB; 0 where the system does not report it.
fn peak_kb() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kb.unwrap_or(0)
}
