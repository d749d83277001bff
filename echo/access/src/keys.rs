//! The keys of an issuer. What a key is good for is decided when it is read, never by the token that names it.

use std::collections::BTreeSet;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, crypto};
use serde::Deserialize;
use serde_json::Value;

use crate::Rejected;

/// Shortest secret: as long as the hash that it keys. A shorter one can be guessed from one token.
const MIN_SECRET_BYTES: usize = 32;

/// Most keys that are taken from an address: an issuer has a handful, old ones among them.
const MAX_PUBLISHED: usize = 100;

/// The keys of one issuer, at least one.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// A set of keys as issuers publish it. Keys are read one by one: an issuer may have some that nobody here has heard of.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl Keys {
    /// A secret that Echo has in common with the issuer, for HS256. The line break at the end of a text file is no part of it.
    pub(super) fn secret(file: &[u8]) -> Result<Self, String> {
        let secret = std::str::from_utf8(file)
            .map_or(file, |text| text.trim_end_matches(['\r', '\n']).as_bytes());
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "has {} bytes, and a secret needs at least {MIN_SECRET_BYTES}",
                secret.len()
            ));
        }
        Ok(Self(vec![Key {
            id: None,
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret),
        }]))
    }

    /// One public key in PEM. RSA keys are for RS256, the others for the one algorithm of their curve.
    pub(super) fn public_key(file: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(file);
        if text.contains("PRIVATE KEY-----") {
            return Err("is a private key, and Echo needs only the public one".to_owned());
        }
        if !text.contains("PUBLIC KEY-----") {
            return Err("is no public key in PEM".to_owned());
        }
        let key = DecodingKey::from_rsa_pem(file)
            .or_else(|_other| DecodingKey::from_ec_pem(file))
            .or_else(|_other| DecodingKey::from_ed_pem(file))
            .and_then(|key| Jwk::from_decoding_key(&key, None));
        let key = key.ok().as_ref().and_then(Key::of);
        Ok(Self(vec![key.ok_or_else(|| format!("is {UNUSABLE}"))?]))
    }

    /// A JSON Web Key Set (RFC 7517). Keys for other purposes, and of kinds that are not understood, are left out.
    pub(super) fn set(file: &[u8]) -> Result<Self, String> {
        Self::of_set(key_set(file)?)
    }

    /// The same from an address, where there may be anything.
    pub(super) fn published(text: &[u8]) -> Result<Self, String> {
        let set = key_set(text)?;
        if set.keys.len() > MAX_PUBLISHED {
            return Err(format!(
                "has {} keys, and at most {MAX_PUBLISHED} are read",
                set.keys.len()
            ));
        }
        Self::of_set(set)
    }

    fn of_set(set: KeySet) -> Result<Self, String> {
        let jwks = set.keys.into_iter();
        let keys: Vec<Key> = jwks
            .filter_map(|jwk| Key::of(&serde_json::from_value(jwk).ok()?))
            .collect();
        if keys.is_empty() {
            return Err(format!("has only keys each of which is {UNUSABLE}"));
        }
        let mut ids = BTreeSet::new();
        for key in &keys {
            match &key.id {
                Some(id) if !ids.insert(id) => return Err(format!("has two keys {id:?}")),
                None if keys.len() > 1 => {
                    return Err("has several keys, and one of them is without `kid`".to_owned());
                }
                Some(_) | None => {}
            }
        }
        Ok(Self(keys))
    }

    /// Whether one of these keys signed `message`: the one that the token names, or the only one.
    pub(super) fn verify(
        &self,
        (algorithm, key_id): (&str, Option<&str>),
        message: &str,
        signature: &str,
    ) -> Result<(), Rejected> {
        let key = self.find(key_id).ok_or(Rejected::UnknownKey)?;
        if algorithm.parse() != Ok(key.algorithm) {
            return Err(Rejected::WrongAlgorithm);
        }
        match crypto::verify(signature, message.as_bytes(), &key.key, key.algorithm) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Rejected::WrongKey),
            Err(_) => Err(Rejected::Malformed),
        }
    }

    fn find(&self, id: Option<&str>) -> Option<&Key> {
        match (self.0.as_slice(), id) {
            ([only], Some(id)) => only.id.as_ref().is_none_or(|own| own == id).then_some(only),
            ([only], None) => Some(only),
            (several, id) => several
                .iter()
                .find(|key| key.id.is_some() && key.id.as_deref() == id),
        }
    }
}

fn key_set(text: &[u8]) -> Result<KeySet, String> {
    serde_json::from_slice(text).map_err(|error| format!("is no JSON Web Key Set: {error}"))
}

/// What is said of a key that no signature can be checked with.
const UNUSABLE: &str =
    "no key for signatures that is understood (RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519)";

impl Key {
    /// A public key for signatures, if that is what it is.
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures = common
            .public_key_use
            .as_ref()
            .is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
            && common
                .key_operations
                .as_ref()
                .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let algorithm = algorithm(jwk).filter(|_| is_for_signatures)?;
        let key = DecodingKey::from_jwk(jwk).ok()?;
        is_sound(&key, algorithm).then(|| Self {
            id: common.key_id.clone(),
            algorithm,
            key,
        })
    }
}

/// The algorithm that a public key is for: the one that it names if it can do that, else the usual one of its kind. A
/// secret in a set of public keys is none.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let usual = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Algorithm::ES256,
            EllipticCurve::P384 => Algorithm::ES384,
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Algorithm::EdDSA
        }
        _ => return None,
    };
    let Some(named) = jwk.common.key_algorithm else {
        return Some(usual);
    };
    let named = Algorithm::try_from(named).ok()?;
    let is_rsa = named.family() == AlgorithmFamily::Rsa && usual == Algorithm::RS256;
    (named == usual || is_rsa).then_some(named)
}

/// Whether the numbers are those of such a key; otherwise every token would be refused, and nobody would know why.
fn is_sound(key: &DecodingKey, algorithm: Algorithm) -> bool {
    const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
    let on_curve: &'static dyn VerificationAlgorithm = match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
        _ => &ED25519,
    };
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => {
            let components = RsaPublicKeyComponents { n, e };
            RSA_BYTES.contains(&n.len())
                && components
                    .to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256)
                    .is_ok()
        }
        DecodingKeyKind::SecretOrDer(point) => ParsedPublicKey::new(on_curve, point).is_ok(),
    }
}
