//! Tokens of every key type, valid and invalid.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

use super::describe;
use crate::signed::{Idp, NOW_SECONDS, SigningKey, at, claims, every_form, jwk, signed, unsigned};
use crate::{Kind, MAX_TOKEN_BYTES, Rejected};

/// Returns the claims with one replaced, or removed if `value` is null.
fn with(name: &str, value: Value) -> Value {
    let mut changed = claims();
    match value {
        Value::Null => changed.as_object_mut().unwrap().remove(name),
        value => changed
            .as_object_mut()
            .unwrap()
            .insert(name.to_owned(), value),
    };
    changed
}

fn with_header(idp: &Idp, name: &str, value: Value) -> String {
    let mut header = idp.header();
    header[name] = value;
    signed(&header, &claims(), idp.key)
}

/// Invalid claims and their rejection. Null means that the claim is missing.
fn wrong_claims() -> Vec<(Rejected, &'static str, Value)> {
    use Rejected::{Expired, LivesTooLong, NotYetValid};
    use Rejected::{Malformed, NoPermission, WrongAudience, WrongIssuer};
    const DAY: i64 = 24 * 3600;
    vec![
        (Expired, "exp", json!(NOW_SECONDS - 31)),
        (Expired, "exp", json!(-1e300)),
        (NotYetValid, "nbf", json!(NOW_SECONDS + 31)),
        (NotYetValid, "iat", json!(NOW_SECONDS + 31)),
        (LivesTooLong, "exp", json!(NOW_SECONDS + DAY)),
        (LivesTooLong, "exp", json!(1e300)),
        (LivesTooLong, "iat", json!(-1e300)),
        (Malformed, "exp", json!(null)),
        (Malformed, "exp", json!("2027-01-01")),
        (Malformed, "iat", json!(null)),
        (Malformed, "iat", json!(true)),
        (Malformed, "nbf", json!("now")),
        (WrongIssuer, "iss", json!("https://idp.example/")),
        (WrongIssuer, "iss", json!("")),
        (WrongIssuer, "iss", json!(null)),
        (Malformed, "iss", json!(["https://idp.example"])),
        (WrongAudience, "aud", json!("grafana")),
        (WrongAudience, "aud", json!(["Echo", "echo "])),
        (WrongAudience, "aud", json!([])),
        (WrongAudience, "aud", json!(null)),
        (Malformed, "aud", json!({ "echo": true })),
        (Malformed, "sub", json!(null)),
        (Malformed, "sub", json!("")),
        (Malformed, "sub", json!("a\nb")),
        (Malformed, "sub", json!("x".repeat(257))),
        (NoPermission, "echo", json!(null)),
        (NoPermission, "echo", json!({})),
        (NoPermission, "echo", json!({ "clusters": [] })),
    ]
}

/// Returns forged tokens.
fn forged(idp: &Idp) -> Vec<(&'static str, String, Rejected)> {
    let good = idp.token(&claims());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let unsigned = |algorithm: &str| {
        let mut header = idp.header();
        header["alg"] = json!(algorithm);
        unsigned(&header, &claims())
    };
    let none = |algorithm: &str| format!("{}.", unsigned(algorithm));
    // Algorithm confusion: the public key is not secret, so an HMAC keyed with it must not verify.
    let hmac = unsigned("HS256");
    let public = EncodingKey::from_secret(&idp.key.file);
    let by_public = crypto::sign(hmac.as_bytes(), &public, Algorithm::HS256).unwrap();
    let confused = if idp.key.algorithm == Algorithm::HS256 {
        // The line break at the end of the file is not part of the secret.
        Rejected::WrongKey
    } else {
        Rejected::WrongAlgorithm
    };
    let altered = with("echo", json!({ "clusters": ["*"], "sql": true }));
    let other_payload = crate::signed::unsigned(&idp.header(), &altered);
    let mut with_own_key = idp.header();
    with_own_key["jwk"] = jwk(idp.stranger, idp.key_id.unwrap_or("own"));
    vec![
        (
            "another key",
            signed(&idp.header(), &claims(), idp.stranger),
            Rejected::WrongKey,
        ),
        (
            "a key that came along",
            signed(&with_own_key, &claims(), idp.stranger),
            Rejected::WrongKey,
        ),
        (
            "another payload",
            format!("{other_payload}.{signature}"),
            Rejected::WrongKey,
        ),
        ("no signature", format!("{message}."), Rejected::WrongKey),
        ("unsigned", none("none"), Rejected::WrongAlgorithm),
        (
            "unsigned, in capitals",
            none("NONE"),
            Rejected::WrongAlgorithm,
        ),
        (
            "unsigned, with a signature",
            format!("{}.{signature}", unsigned("none")),
            Rejected::WrongAlgorithm,
        ),
        ("no algorithm", none(""), Rejected::WrongAlgorithm),
        (
            "the public key as a secret",
            format!("{hmac}.{by_public}"),
            confused,
        ),
        (
            "an extension",
            with_header(idp, "crit", json!(["b64"])),
            Rejected::Malformed,
        ),
    ]
}

/// Returns a token signed with the right key and the wrong algorithm.
fn by_another_algorithm(idp: &Idp) -> String {
    let (other, signs) = match idp.key.algorithm {
        Algorithm::HS256 => (Algorithm::HS384, Algorithm::HS384),
        Algorithm::RS256 => (Algorithm::PS256, Algorithm::PS256),
        Algorithm::ES256 => (Algorithm::ES384, Algorithm::ES256),
        _ => (Algorithm::ES256, Algorithm::EdDSA),
    };
    let mut header = idp.header();
    header["alg"] = json!(format!("{other:?}"));
    let key = SigningKey {
        algorithm: signs,
        private: idp.key.private.clone(),
        file: Vec::new(),
    };
    signed(&header, &claims(), &key)
}

/// Returns texts that are not tokens.
fn broken(good: &str) -> Vec<(&'static str, String, Rejected)> {
    let (header, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let garbage = URL_SAFE_NO_PAD.encode([0xff, 0xfe, 0x00]);
    let limit = "a.".repeat(MAX_TOKEN_BYTES / 2);
    vec![
        ("empty", String::new(), Rejected::Malformed),
        ("a space", " ".to_owned(), Rejected::Malformed),
        ("dots", "..".to_owned(), Rejected::Malformed),
        ("a word", "grafana".to_owned(), Rejected::Malformed),
        ("one megabyte", "a".repeat(1 << 20), Rejected::TooLong),
        (
            "one megabyte behind a token",
            format!("{good}{}", "A".repeat(1 << 20)),
            Rejected::TooLong,
        ),
        ("as long as it may be", limit, Rejected::Malformed),
        (
            "two parts",
            format!("{header}.{payload}"),
            Rejected::Malformed,
        ),
        (
            "four parts",
            format!("{good}.{signature}"),
            Rejected::Malformed,
        ),
        ("a space before", format!(" {good}"), Rejected::Malformed),
        ("a space behind", format!("{good} "), Rejected::Malformed),
        ("padding", format!("{good}="), Rejected::Malformed),
        (
            "bytes that are no text",
            format!("{garbage}.{payload}.{signature}"),
            Rejected::Malformed,
        ),
        (
            "claims that are no text",
            format!("{header}.{garbage}.{signature}"),
            Rejected::Malformed,
        ),
        (
            "other letters",
            good.replace('.', ".\u{e9}"),
            Rejected::Malformed,
        ),
    ]
}

#[test]
fn valid_tokens_of_every_key_type_are_accepted() {
    for idp in every_form() {
        let access = idp.access("");
        let principal = access.identify(&idp.token(&claims()), at(0)).unwrap();
        assert_eq!(
            describe(&principal),
            "grafana jwt: query(prod, 2 tools)",
            "{}",
            idp.name
        );
        assert_eq!(&*principal.token_id, "t-1");
        assert_eq!(principal.not_after, Some(at(3600)));
        assert_eq!(principal.kind, Kind::Jwt);
        assert_eq!(
            Err(Rejected::Expired),
            access.identify(&idp.token(&claims()), at(3630))
        );
    }
}

#[test]
fn invalid_claims_are_rejected_with_their_reason() {
    for idp in every_form() {
        let access = idp.access("");
        for (why, claim, value) in wrong_claims() {
            let about = format!("{}: {claim} {value}", idp.name);
            let token = idp.token(&with(claim, value));
            assert_eq!(access.identify(&token, at(0)), Err(why), "{about}");
        }
    }
}

#[test]
fn forged_tokens_are_rejected_with_their_reason() {
    for idp in every_form() {
        let access = idp.access("");
        let good = idp.token(&claims());
        let mut defects = vec![
            ("no claims", idp.token(&json!({})), Rejected::WrongIssuer),
            ("a list", idp.token(&json!([])), Rejected::Malformed),
        ];
        defects.extend(forged(&idp));
        defects.extend(broken(&good));
        let other = by_another_algorithm(&idp);
        defects.push(("another algorithm", other, Rejected::WrongAlgorithm));
        for (defect, token, why) in defects {
            let identified = access.identify(&token, at(0));
            assert_eq!(identified, Err(why), "{}: {defect}", idp.name);
        }
    }
}

#[test]
fn truncated_tokens_are_rejected() {
    for idp in every_form() {
        let access = idp.access("");
        let good = idp.token(&claims());
        for length in 0..good.len() {
            let (beginning, _) = good.split_at(length);
            let identified = access.identify(beginning, at(0));
            let is_header = !beginning.contains('.');
            assert!(
                matches!(identified, Err(Rejected::Malformed | Rejected::WrongKey))
                    || (is_header && identified == Err(Rejected::Unknown)),
                "{}, {length} bytes: {identified:?}",
                idp.name
            );
        }
    }
}

#[test]
fn the_key_id_selects_one_of_several_keys() {
    for idp in every_form() {
        let access = idp.access("");
        let identified = |token: String| access.identify(&token, at(0)).map(|_| ());
        let mut nameless = idp.header();
        nameless.as_object_mut().unwrap().remove("kid");
        let nameless = signed(&nameless, &claims(), idp.key);
        let unknown = with_header(&idp, "kid", json!("unknown"));
        // A single key has no id that could be wrong.
        let expected = match idp.key_id {
            Some(_) => Err(Rejected::UnknownKey),
            None => Ok(()),
        };
        assert_eq!(identified(nameless), expected, "{}", idp.name);
        assert_eq!(identified(unknown), expected, "{}", idp.name);
        if idp.key_id.is_some() {
            let lattice = with_header(&idp, "kid", json!("lattice"));
            assert_eq!(
                identified(lattice),
                Err(Rejected::UnknownKey),
                "{}",
                idp.name
            );
            for other in ["rsa", "ecdsa", "ed25519"] {
                let crossed = identified(with_header(&idp, "kid", json!(other)));
                let own = idp.key_id == Some(other);
                let expected = if own {
                    Ok(())
                } else {
                    Err(Rejected::WrongAlgorithm)
                };
                assert_eq!(crossed, expected, "{} as {other}", idp.name);
            }
        }
    }
}

#[test]
fn clock_skew_of_thirty_seconds_is_tolerated() {
    let idp = &every_form()[3];
    let access = idp.access("");
    let identified = |name: &str, seconds: i64| {
        let token = idp.token(&with(name, json!(NOW_SECONDS + seconds)));
        access.identify(&token, at(0)).map(|_| ())
    };
    assert_eq!(identified("exp", -29), Ok(()));
    assert_eq!(identified("exp", -30), Err(Rejected::Expired));
    assert_eq!(identified("nbf", 30), Ok(()));
    assert_eq!(identified("iat", 30), Ok(()));
    let fraction = idp.token(&with("exp", json!(1_780_272_000.5)));
    let principal = access.identify(&fraction, at(0)).unwrap();
    assert!(principal.not_after > Some(at(0)) && principal.not_after < Some(at(1)));
}

#[test]
fn the_file_limits_the_lifetime_of_tokens() {
    let idp = &every_form()[3];
    let token = idp.token(&claims());
    let identified = |max_age: &str| {
        let access = idp.access(&format!("    max_age: {max_age}\n"));
        access.identify(&token, at(0)).map(|_| ())
    };
    assert_eq!(identified("61m"), Ok(()));
    assert_eq!(identified("1h"), Err(Rejected::LivesTooLong));
}

#[test]
fn a_token_without_jti_is_logged_by_its_hash() {
    let idp = &every_form()[3];
    let access = idp.access("");
    for jti in [
        json!(null),
        json!(7),
        json!(""),
        json!("a\nb"),
        json!("x".repeat(300)),
    ] {
        let principal = access
            .identify(&idp.token(&with("jti", jti)), at(0))
            .unwrap();
        assert_eq!(principal.token_id.len(), 8, "{}", principal.token_id);
        assert!(
            principal
                .token_id
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
    }
}
