//! Test issuers with generated keys of each type, and tokens signed by them.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use serde_json::{Value, json};

use echo_core::units::Nanos;

use crate::Access;

/// 2026-06-01, in seconds since 1970.
pub const NOW_SECONDS: i64 = 1_780_272_000;

/// Returns the instant this many seconds after [`NOW_SECONDS`].
pub fn at(seconds: i64) -> Nanos {
    Nanos::new((NOW_SECONDS + seconds) * 1_000_000_000)
}

/// A signing key and the file that verifies its signatures.
#[derive(Debug)]
pub struct SigningKey {
    /// Signature algorithm.
    pub algorithm: Algorithm,
    /// Private key or secret.
    pub private: EncodingKey,
    /// Contents of the key file: the secret, or the public key in PEM.
    pub file: Vec<u8>,
}

/// An issuer with its entry in an access file.
#[derive(Debug)]
pub struct Idp {
    /// Name of the test case.
    pub name: &'static str,
    /// Key that it signs with.
    pub key: &'static SigningKey,
    /// Unknown key of the same type.
    pub stranger: &'static SigningKey,
    /// Field that names the key file.
    field: &'static str,
    /// Name of the key file.
    pub file_name: &'static str,
    file: Arc<[u8]>,
    /// Key id in token headers, if any.
    pub key_id: Option<&'static str>,
}

static KEYS: LazyLock<[SigningKey; 8]> = LazyLock::new(|| {
    [
        secret(b"a secret of thirty-two bytes, ok"),
        rsa(),
        ecdsa(),
        ed25519(),
        secret(b"another one of thirty-two bytes."),
        rsa(),
        ecdsa(),
        ed25519(),
    ]
});

fn secret(secret: &[u8]) -> SigningKey {
    SigningKey {
        algorithm: Algorithm::HS256,
        private: EncodingKey::from_secret(secret),
        file: [secret, b"\n"].concat(),
    }
}

fn rsa() -> SigningKey {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let private = pem("PRIVATE KEY", private.as_ref());
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    SigningKey {
        algorithm: Algorithm::RS256,
        private: EncodingKey::from_rsa_pem(&private).unwrap(),
        file: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn ecdsa() -> SigningKey {
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref()).unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    SigningKey {
        algorithm: Algorithm::ES256,
        private: EncodingKey::from_ec_der(private.as_ref()),
        file: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn ed25519() -> SigningKey {
    let pair = Ed25519KeyPair::generate().unwrap();
    let private: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    SigningKey {
        algorithm: Algorithm::EdDSA,
        private: EncodingKey::from_ed_der(private.as_ref()),
        file: pem("PUBLIC KEY", public.as_ref()),
    }
}

/// Encodes bytes as PEM.
pub fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let lines = lines.join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n").into_bytes()
}

/// Returns the public key as an entry of a key set.
pub fn jwk(key: &SigningKey, id: &str) -> Value {
    let jwk = Jwk::from_encoding_key(&key.private, key.algorithm).unwrap();
    let mut jwk = serde_json::to_value(jwk).unwrap();
    jwk["kid"] = json!(id);
    jwk
}

/// Returns a set of the three public keys, among keys that are not for signatures.
fn key_set() -> Arc<[u8]> {
    let [_, rsa, ecdsa, ed25519, _, strange_rsa, ..] = &*KEYS;
    let mut for_encryption = jwk(strange_rsa, "rsa");
    for_encryption["use"] = json!("enc");
    let set = json!({ "keys": [
        { "kty": "AKP", "kid": "lattice", "alg": "ML-DSA-44", "pub": "AAAA" },
        for_encryption,
        jwk(rsa, "rsa"),
        jwk(ecdsa, "ecdsa"),
        jwk(ed25519, "ed25519"),
    ]});
    Arc::from(set.to_string().into_bytes())
}

/// Returns issuers with every key type in every file format.
pub fn every_form() -> Vec<Idp> {
    let [
        secret,
        rsa,
        ecdsa,
        ed25519,
        other_secret,
        other_rsa,
        other_ecdsa,
        other_ed25519,
    ] = &*KEYS;
    let alone = |name, field, key: &'static SigningKey, stranger| Idp {
        name,
        key,
        stranger,
        field,
        file_name: "keys/one.pem",
        file: Arc::from(key.file.as_slice()),
        key_id: None,
    };
    let set = key_set();
    let in_set = |name, key_id, key, stranger| Idp {
        name,
        key,
        stranger,
        field: "keys",
        file_name: "jwks.json",
        file: Arc::clone(&set),
        key_id: Some(key_id),
    };
    vec![
        alone("HS256", "secret", secret, other_secret),
        alone("RS256", "public_key", rsa, other_rsa),
        alone("ES256", "public_key", ecdsa, other_ecdsa),
        alone("EdDSA", "public_key", ed25519, other_ed25519),
        in_set("RS256 in a set", "rsa", rsa, other_rsa),
        in_set("ES256 in a set", "ecdsa", ecdsa, other_ecdsa),
        in_set("EdDSA in a set", "ed25519", ed25519, other_ed25519),
    ]
}

/// Valid claims of a dashboard.
pub fn claims() -> Value {
    json!({
        "iss": "https://idp.example",
        "sub": "grafana",
        "aud": ["other", "echo"],
        "iat": NOW_SECONDS - 60,
        "exp": NOW_SECONDS + 3600,
        "jti": "t-1",
        "echo": { "clusters": ["prod"] },
    })
}

/// Returns the signing input of a token.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Returns a token: header and claims, signed with the key.
pub fn signed(header: &Value, claims: &Value, key: &SigningKey) -> String {
    let message = unsigned(header, claims);
    let signature = crypto::sign(message.as_bytes(), &key.private, key.algorithm).unwrap();
    format!("{message}.{signature}")
}

impl Idp {
    /// Parses an access file with only this issuer and these additional lines in its entry.
    pub fn access(&self, more: &str) -> Access {
        let (field, file_name) = (self.field, self.file_name);
        let yaml = format!(
            "issuers:\n  - issuer: https://idp.example\n    audience: echo\n    {field}: {file_name}\n{more}"
        );
        let read = |path: &Path| {
            assert_eq!(path, Path::new(self.file_name));
            Ok(self.file.to_vec())
        };
        Access::parse(&yaml, &read).unwrap()
    }

    /// Returns the header of its tokens.
    pub fn header(&self) -> Value {
        let algorithm = format!("{:?}", self.key.algorithm);
        match self.key_id {
            Some(id) => json!({ "typ": "JWT", "alg": algorithm, "kid": id }),
            None => json!({ "typ": "JWT", "alg": algorithm }),
        }
    }

    /// Returns a token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        signed(&self.header(), claims, self.key)
    }
}
