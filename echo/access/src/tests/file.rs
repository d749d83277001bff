//! Errors in the access file, each reported with its position.

use std::io;
use std::path::Path;

use serde_json::json;

use super::without_files;
use crate::Access;
use crate::signed::{every_form, jwk, pem};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Returns all errors of a file; every key file contains `keys`.
fn mistakes(yaml: &str, keys: &[u8]) -> String {
    let read = |path: &Path| match path.to_str() {
        Some("keys") => Ok(keys.to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let parsed = Access::parse(yaml, &read).map(|_| ());
    parsed.map_or_else(|error| error.mistakes.join("\n"), |()| "none".to_owned())
}

#[test]
fn all_errors_of_tokens_are_reported_together() {
    let yaml = format!(
        "
tokens:
  - {{ id: good, sha256: {HASH}, query: {{ clusters: ['*'] }} }}
  - {{ id: again, sha256: {HASH}, query: {{ clusters: ['*'] }} }}
  - {{ sha256: abc, not_after: soon, colour: red }}
  - {{ id: \"a\\nb\", write: {{ clusters: [] }}, rate: {{ per_second: 0, burst: many }} }}
  - {{ id: x, sha256: {HASH}, query: {{ clusters: [prod, ''], tools: fleet, sql: perhaps, more: 1 }} }}
  - {{ id: x, sha256: {HASH}, query: {{ clusters: [prod], sql: true }}, write: {{ }} }}
  - {{ id: x, sha256: {HASH}, query: {{ }}, not_before: 2026-02-01, not_after: 2026-01-30 }}
  - {{ id: x, sha256: {HASH}, query: all, rate: fast }}
  - 7
people: []
"
    );
    insta::assert_snapshot!(mistakes(&yaml, b""), @r#"
    people: is not a known field
    tokens[2].sha256: is not a SHA-256 of 64 hexadecimal digits
    tokens[2].not_after: is neither a date such as 2027-01-31 nor a time such as 2027-01-31T12:00:00Z
    tokens[2].query: is missing, and so is `write`: nothing would be allowed
    tokens[2].id: is missing
    tokens[2].colour: is not a known field
    tokens[3].id: is no name of 1 to 256 bytes without control characters
    tokens[3].write.clusters: is empty
    tokens[3].rate.per_second: is not a whole number from 1 to 4294967295
    tokens[3].rate.burst: is not a whole number from 1 to 4294967295
    tokens[3].sha256: is missing
    tokens[4].query.clusters[1]: is no name of 1 to 256 bytes without control characters
    tokens[4].query.tools: is not a list
    tokens[4].query.sql: is neither true nor false
    tokens[4].query.more: is not a known field
    tokens[5].query.sql: needs clusters ["*"], because a statement sees the rows of all clusters
    tokens[5].write.clusters: is missing
    tokens[6].query.clusters: is missing
    tokens[6].not_after: is before not_before
    tokens[7].query: is not a mapping of fields
    tokens[7].rate: is not a mapping of fields
    tokens[8]: is not a mapping of fields
    tokens[1].sha256: is the same token as tokens[0]
    "#);
}

#[test]
fn all_errors_of_issuers_are_reported_together() {
    let yaml = "
issuers:
  - {}
  - { issuer: a, audience: echo, keys: nowhere }
  - { issuer: a, audience: echo, secret: keys }
  - { issuer: b, audience: echo, secret: keys, public_key: keys }
  - { issuer: c, audience: [], secret: keys, max_age: 1 day, kind: robot }
  - { issuer: d, audience: [echo, 7], secret: keys, max_age: 0s, subjects: [x] }
  - { issuer: e, audience: echo, secret: keys, kind: service_account }
  - { issuer: f, audience: echo, secret: keys, max_age: -1h, subjects: { x: { }, '': { }, y: { query: { clusters: [a], sql: true } }, z: 3 } }
  - { issuer: a, audience: echo, secret: keys }
  - { issuer: g, audience: echo, jwks_url: 'http://idp.example/keys' }
  - { issuer: h, audience: echo, jwks_url: 'https://idp.example/keys', jwks_ca: nowhere, jwks_token: keys }
  - { issuer: i, audience: echo, jwks_url: 'https://idp.example/keys', secret: keys }
  - { issuer: j, audience: echo, jwks_ca: keys, secret: keys, rate: { per_second: 0 } }
";
    insta::assert_snapshot!(mistakes(yaml, &[b'x'; 32]), @r#"
    issuers[0].keys: give exactly one of `keys`, `secret`, `public_key` and `jwks_url` (with `jwks_ca` and `jwks_token`)
    issuers[0].issuer: is missing
    issuers[0].audience: is missing
    issuers[1].keys: nowhere cannot be read: entity not found
    issuers[3].keys: give exactly one of `keys`, `secret`, `public_key` and `jwks_url` (with `jwks_ca` and `jwks_token`)
    issuers[4].audience: is neither a text nor a list of texts
    issuers[4].max_age: is not a duration such as 1h or 30m
    issuers[4].kind: is neither jwt nor service_account
    issuers[5].audience: is not a list of texts
    issuers[5].max_age: is not a duration such as 1h or 30m
    issuers[5].subjects: is not a mapping of subjects
    issuers[6].subjects: is missing: Kubernetes tokens contain no permissions
    issuers[7].max_age: is not a duration such as 1h or 30m
    issuers[7].subjects["x"].query: is missing, and so is `write`: nothing would be allowed
    issuers[7].subjects: has a subject that is not a valid name
    issuers[7].subjects["y"].query.sql: needs clusters ["*"], because a statement sees the rows of all clusters
    issuers[7].subjects["z"]: is not a mapping of fields
    issuers[8].issuer: is a duplicate
    issuers[9].jwks_url: is not a URL of the form https://HOST/PATH (http:// only for the local host)
    issuers[10].jwks_ca: nowhere cannot be read: entity not found
    issuers[11].keys: give exactly one of `keys`, `secret`, `public_key` and `jwks_url` (with `jwks_ca` and `jwks_token`)
    issuers[12].keys: give exactly one of `keys`, `secret`, `public_key` and `jwks_url` (with `jwks_ca` and `jwks_token`)
    issuers[12].rate.per_second: is not a whole number from 1 to 4294967295
    "#);
}

#[test]
fn a_file_without_tokens_and_issuers_is_rejected() {
    for (yaml, expected) in [
        (
            "{}",
            "tokens: is missing or empty, and so is `issuers`: no caller would be allowed",
        ),
        (
            "tokens: []",
            "tokens: is missing or empty, and so is `issuers`: no caller would be allowed",
        ),
        ("tokens: { a: b }", "tokens: is not a list"),
        ("", "the file: is not a mapping of fields"),
    ] {
        assert_eq!(mistakes(yaml, b""), expected, "{yaml:?}");
    }
    let error = without_files("tokens:\n  - { id: 1\n").unwrap_err();
    assert!(error.to_string().contains("line"), "{error}");
}

/// Returns the error of a key file.
fn parse_error(field: &str, file: &[u8]) -> String {
    let yaml = format!("issuers: [{{ issuer: a, audience: echo, {field}: keys }}]");
    let error = mistakes(&yaml, file);
    let place = format!("issuers[0].{field}: keys ");
    let why = error.strip_prefix(&place);
    why.map_or_else(|| panic!("{error}"), str::to_owned)
}

const SUPPORTED_KEY: &str =
    "supported signature key (RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519)";

#[test]
fn a_secret_needs_32_bytes_without_its_line_break() {
    for (file, bytes) in [
        (b"short".to_vec(), 5),
        (b"\n".repeat(40), 0),
        ([b"x".repeat(31), b"\r\n".to_vec()].concat(), 31),
    ] {
        let expected = format!("has {bytes} bytes, but a secret needs at least 32");
        assert_eq!(parse_error("secret", &file), expected);
    }
}

#[test]
fn a_public_key_must_be_public_and_in_pem() {
    let forms = every_form();
    let (secret, rsa) = (&forms[0], &forms[1]);
    let (other, private) = (
        "is not a public key in PEM",
        "is a private key, but Echo needs only the public one",
    );
    for (file, expected) in [
        (secret.key.file.clone(), other),
        (pem("CERTIFICATE", b"nonsense"), other),
        (pem("PRIVATE KEY", rsa.key.private.as_bytes()), private),
        (
            pem("PUBLIC KEY", b"nonsense"),
            &format!("is not a {SUPPORTED_KEY}"),
        ),
    ] {
        assert_eq!(parse_error("public_key", &file), expected);
    }
}

#[test]
fn a_key_set_needs_a_supported_signature_key() {
    let rsa = &every_form()[1];
    let unusable = format!("has no {SUPPORTED_KEY}");
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["sign"])),
        ("alg", json!("HS256")),
        ("alg", json!("ES256")),
        ("alg", json!("RSA-OAEP")),
        ("n", json!("AQAB")),
        ("n", json!("!")),
        ("kty", json!("EC")),
        ("kty", json!(7)),
    ] {
        let mut key = jwk(rsa.key, "a");
        key[name] = value;
        let set = json!({ "keys": [key] }).to_string();
        assert_eq!(parse_error("keys", set.as_bytes()), unusable, "{set}");
    }
    let secret = json!({ "kty": "oct", "alg": "HS256", "k": "A".repeat(64) });
    for set in [json!({ "keys": [] }), json!({ "keys": [secret] })] {
        let set = set.to_string();
        assert_eq!(parse_error("keys", set.as_bytes()), unusable);
    }
    for no_set in [
        "[]",
        "{}",
        "{\"keys\":{}}",
        "-----BEGIN PUBLIC KEY-----",
        "",
    ] {
        let error = parse_error("keys", no_set.as_bytes());
        assert!(error.starts_with("is not a JSON Web Key Set: "), "{error}");
    }
}

#[test]
fn several_keys_need_distinct_ids() {
    let forms = every_form();
    let (rsa, ecdsa) = (jwk(forms[1].key, "a"), jwk(forms[2].key, "a"));
    let mut nameless = rsa.clone();
    nameless.as_object_mut().unwrap().remove("kid");
    let set_error = |keys: &[&serde_json::Value]| {
        let set = json!({ "keys": keys }).to_string();
        parse_error("keys", set.as_bytes())
    };
    let without = "has several keys, one of them without `kid`";
    assert_eq!(set_error(&[&nameless, &ecdsa]), without);
    assert_eq!(set_error(&[&rsa, &ecdsa]), "has two keys with the id \"a\"");
}

#[test]
fn the_example_file_parses() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/access.yaml");
    let yaml = std::fs::read_to_string(path).unwrap();
    let keys = json!({ "keys": [jwk(every_form()[3].key, "a")] }).to_string();
    let access = Access::parse(&yaml, &|_| Ok(keys.clone().into_bytes())).unwrap();
    assert_eq!(access.files(), [Path::new("jwks.json")]);
    let addresses: Vec<_> = access
        .key_sources()
        .map(|source| source.url.as_str())
        .collect();
    assert_eq!(addresses, ["https://kubernetes.default.svc/openid/v1/jwks"]);
}
