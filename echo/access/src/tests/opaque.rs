//! Opaque tokens: identity and validity.

use echo_core::units::Nanos;
use proptest::prelude::*;

use super::{cluster, describe, without_files};
use crate::mint::{self, new_token};
use crate::signed::at;
use crate::{Access, Kind, Rejected};

fn entry(id: &str, hash: &str, more: &str) -> String {
    format!("  - {{ id: {id}, sha256: '{hash}', {more} }}\n")
}

/// Returns a token and an access file with only that token.
fn one(more: &str) -> (String, Access) {
    let (token, hash) = new_token().unwrap();
    let yaml = format!("tokens:\n{}", entry("grafana", &hash, more));
    (token, without_files(&yaml).unwrap())
}

fn nanos(timestamp: &str) -> Nanos {
    let timestamp: jiff::Timestamp = timestamp.parse().unwrap();
    Nanos::new(timestamp.as_second() * 1_000_000_000)
}

#[test]
fn a_token_has_the_permissions_in_the_file() {
    let (token, access) = one("query: { clusters: ['*'], sql: true }");
    let principal = access.identify(&token, at(0)).unwrap();
    assert_eq!(
        describe(&principal),
        "grafana opaque: query(prod+lab-1, 2 tools sql)"
    );
    assert_eq!(principal.kind, Kind::Opaque);
    assert_eq!(
        (principal.rate.per_second.get(), principal.rate.burst.get()),
        (10, 20)
    );
    assert_eq!(principal.not_after, None);
    assert_eq!(principal.token_id.len(), 8);
    assert!(!token.contains(&*principal.token_id));

    let more = "write: { clusters: [prod] }, rate: { per_second: 5, burst: 7 }";
    let (token, access) = one(more);
    let principal = access.identify(&token, at(0)).unwrap();
    assert_eq!(describe(&principal), "grafana opaque: write(prod)");
    assert_eq!(
        (principal.rate.per_second.get(), principal.rate.burst.get()),
        (5, 7)
    );
}

#[test]
fn unknown_and_malformed_tokens_are_rejected() {
    let (token, access) = one("query: { clusters: ['*'] }");
    let (stranger, hash) = new_token().unwrap();
    let flipped = if token.ends_with('A') { 'E' } else { 'A' };
    let mut short = token.clone();
    short.pop();
    let almost = format!("{short}{flipped}");
    for (defect, text, why) in [
        ("another token", stranger, Rejected::Unknown),
        ("another last letter", almost, Rejected::Unknown),
        ("its hash", hash, Rejected::Unknown),
        (
            "a password",
            "correct-horse-battery".to_owned(),
            Rejected::Malformed,
        ),
        (
            "its hash behind the prefix",
            format!("echo_{}", "a".repeat(64)),
            Rejected::Malformed,
        ),
        ("the prefix", "echo_".to_owned(), Rejected::Malformed),
        ("too short", short, Rejected::Malformed),
        ("too long", format!("{token}A"), Rejected::Malformed),
        ("in capitals", token.to_uppercase(), Rejected::Unknown),
        ("a space before", format!(" {token}"), Rejected::Malformed),
        ("a space behind", format!("{token} "), Rejected::Malformed),
        (
            "a line break behind",
            format!("{token}\n"),
            Rejected::Malformed,
        ),
        ("twice", format!("{token}{token}"), Rejected::Malformed),
        (
            "one megabyte",
            format!("echo_{}", "A".repeat(1 << 20)),
            Rejected::TooLong,
        ),
        (
            "other letters",
            format!("echo_{}", "\u{e9}".repeat(43)),
            Rejected::Malformed,
        ),
        ("empty", String::new(), Rejected::Malformed),
        ("a space", " ".to_owned(), Rejected::Malformed),
        (
            "an unsigned JWT without claims",
            "e30.e30.e30".to_owned(),
            Rejected::Malformed,
        ),
    ] {
        assert_eq!(access.identify(&text, at(0)), Err(why), "{defect}");
    }
    assert!(access.identify(&token, at(0)).is_ok());
}

#[test]
fn a_token_from_another_generator_is_accepted_when_its_hash_is_listed() {
    for token in [
        // openssl rand -hex 32, openssl rand -base64 32, uuidgen
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "0d0ee4a3-3f0b-4d67-9c0f-6b1c7c5cf0f3",
    ] {
        let hash = mint::hex(&mint::hash(token));
        let entry = entry("grafana", &hash, "query: { clusters: ['*'] }");
        let access = without_files(&format!("tokens:\n{entry}")).unwrap();
        let principal = access.identify(token, at(0)).unwrap();
        assert_eq!(&*principal.id, "grafana", "{token}");
        let other = access.identify(&token.replace('5', "6"), at(0));
        assert_eq!(other, Err(Rejected::Unknown), "{token}");
    }
}

#[test]
fn validity_dates_include_the_whole_day() {
    let more = "query: { clusters: ['*'] }, not_before: 2026-01-31, not_after: 2026-02-28";
    let (token, access) = one(more);
    let identified_at = |timestamp: &str| access.identify(&token, nanos(timestamp)).map(|_| ());
    assert_eq!(
        identified_at("2026-01-30T23:59:59Z"),
        Err(Rejected::NotYetValid)
    );
    assert_eq!(identified_at("2026-01-31T00:00:00Z"), Ok(()));
    assert_eq!(identified_at("2026-02-28T23:59:59Z"), Ok(()));
    assert_eq!(
        identified_at("2026-03-01T00:00:00Z"),
        Err(Rejected::Expired)
    );
}

#[test]
fn validity_times_are_exact() {
    let more = "query: { clusters: ['*'] }, not_after: '2026-02-28T12:00:00+02:00'";
    let (token, access) = one(more);
    let identified_at = |timestamp: &str| access.identify(&token, nanos(timestamp)).map(|_| ());
    assert_eq!(identified_at("2026-02-28T09:59:59Z"), Ok(()));
    assert_eq!(
        identified_at("2026-02-28T10:00:00Z"),
        Err(Rejected::Expired)
    );
}

#[test]
fn two_tokens_of_one_caller_can_overlap_during_rotation() {
    let (old, old_hash) = new_token().unwrap();
    let (new, new_hash) = new_token().unwrap();
    let may = "query: { clusters: ['*'] }";
    let yaml = format!(
        "tokens:\n{}{}",
        entry(
            "grafana",
            &old_hash,
            &format!("{may}, not_after: 2026-06-01")
        ),
        entry("grafana", &new_hash.to_uppercase(), may),
    );
    let access = without_files(&yaml).unwrap();
    let (before, after) = (at(0), at(2 * 86_400));
    let [first, second] = [&old, &new].map(|token| access.identify(token, before).unwrap());
    assert_eq!(first.id, second.id);
    assert_ne!(first.token_id, second.token_id);
    assert_eq!(access.identify(&old, after), Err(Rejected::Expired));
    assert!(access.identify(&new, after).is_ok());
}

proptest! {
    #[test]
    fn no_token_identifies_another_caller(count in 1_usize..12, chosen in 0_usize..12) {
        let chosen = chosen % count;
        let tokens: Vec<(String, String)> = (0..count).map(|_| new_token().unwrap()).collect();
        let entries = tokens.iter().enumerate().map(|(index, (_, hash))| {
            let may = format!("write: {{ clusters: [c{index}] }}");
            entry(&format!("caller-{index}"), hash, &may)
        });
        let entries: Vec<String> = entries.collect();
        let access = without_files(&format!("tokens:\n{}", entries.concat())).unwrap();
        let token = &tokens[chosen].0;
        let principal = access.identify(token, at(0)).unwrap();
        prop_assert_eq!(&*principal.id, format!("caller-{chosen}"));
        let clusters = &principal.write.as_ref().unwrap().clusters;
        for index in 0..count {
            prop_assert_eq!(clusters.allows(&cluster(&format!("c{index}"))), index == chosen);
        }
        let mut others = entries;
        others.remove(chosen);
        if count > 1 {
            let without = without_files(&format!("tokens:\n{}", others.concat())).unwrap();
            prop_assert_eq!(without.identify(token, at(0)), Err(Rejected::Unknown));
        }
    }

    #[test]
    fn arbitrary_text_is_never_a_valid_token(text in "(echo_)?[ -~é]{0,80}(\\.[A-Za-z0-9_-]{0,40}){0,3}") {
        let (_, access) = one("query: { clusters: ['*'] }");
        prop_assert!(access.identify(&text, at(0)).is_err());
    }
}
