//! Keys of an issuer. The algorithm of a key is fixed when it is parsed, never taken from a token.

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

/// Shortest secret, in bytes: the length of the hash. A shorter one could be brute-forced from one
/// token.
const MIN_SECRET_BYTES: usize = 32;

/// Most keys accepted from a URL: an issuer publishes a handful, including old ones.
const MAX_PUBLISHED: usize = 100;

/// Keys of one issuer, at least one.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// A published key set. Keys are parsed one by one, because a set may contain unsupported key
/// types.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

impl Keys {
    /// Parses a secret shared with the issuer, for HS256. Line breaks at the end of the file are
    /// ignored.
    pub(super) fn secret(file: &[u8]) -> Result<Self, String> {
        let secret = std::str::from_utf8(file)
            .map_or(file, |text| text.trim_end_matches(['\r', '\n']).as_bytes());
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "has {} bytes, but a secret needs at least {MIN_SECRET_BYTES}",
                secret.len()
            ));
        }
        Ok(Self(vec![Key {
            id: None,
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret),
        }]))
    }

    /// Parses one public key in PEM. RSA keys are used for RS256, others for the one algorithm of
    /// their curve.
    pub(super) fn public_key(file: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(file);
        if text.contains("PRIVATE KEY-----") {
            return Err("is a private key, but Echo needs only the public one".to_owned());
        }
        if !text.contains("PUBLIC KEY-----") {
            return Err("is not a public key in PEM".to_owned());
        }
        let key = DecodingKey::from_rsa_pem(file)
            .or_else(|_other| DecodingKey::from_ec_pem(file))
            .or_else(|_other| DecodingKey::from_ed_pem(file))
            .and_then(|key| Jwk::from_decoding_key(&key, None));
        let key = key.ok().as_ref().and_then(Key::from_jwk);
        Ok(Self(vec![
            key.ok_or_else(|| format!("is not a {SUPPORTED_KEY}"))?,
        ]))
    }

    /// Parses a JSON Web Key Set (RFC 7517). Keys for other purposes and of unsupported types are
    /// skipped.
    pub(super) fn set(file: &[u8]) -> Result<Self, String> {
        Self::from_set(key_set(file)?)
    }

    /// Parses a key set fetched from a URL, with a limit on the number of keys.
    pub(super) fn published(text: &[u8]) -> Result<Self, String> {
        let set = key_set(text)?;
        if set.keys.len() > MAX_PUBLISHED {
            return Err(format!(
                "has {} keys, more than the limit of {MAX_PUBLISHED}",
                set.keys.len()
            ));
        }
        Self::from_set(set)
    }

    fn from_set(set: KeySet) -> Result<Self, String> {
        let jwks = set.keys.into_iter();
        let keys: Vec<Key> = jwks
            .filter_map(|jwk| Key::from_jwk(&serde_json::from_value(jwk).ok()?))
            .collect();
        if keys.is_empty() {
            return Err(format!("has no {SUPPORTED_KEY}"));
        }
        let mut ids = BTreeSet::new();
        for key in &keys {
            match &key.id {
                Some(id) if !ids.insert(id) => {
                    return Err(format!("has two keys with the id {id:?}"));
                }
                None if keys.len() > 1 => {
                    return Err("has several keys, one of them without `kid`".to_owned());
                }
                Some(_) | None => {}
            }
        }
        Ok(Self(keys))
    }

    /// Verifies the signature of `message` with the key that the token names, or the only key.
    pub(super) fn verify(
        &self,
        algorithm: &str,
        key_id: Option<&str>,
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
    serde_json::from_slice(text).map_err(|error| format!("is not a JSON Web Key Set: {error}"))
}

/// Keys that can verify signatures, for error messages.
const SUPPORTED_KEY: &str =
    "supported signature key (RSA of 2048 to 8192 bits, P-256, P-384 or Ed25519)";

impl Key {
    /// Returns the key if it is a supported public key for signatures.
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
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
        is_valid_key(&key, algorithm).then(|| Self {
            id: common.key_id.clone(),
            algorithm,
            key,
        })
    }
}

/// Returns the algorithm of a public key: its `alg` if the key type supports it, else the default
/// of the type. A symmetric secret in a public set is rejected.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let default = match &jwk.algorithm {
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
        return Some(default);
    };
    let named = Algorithm::try_from(named).ok()?;
    let is_rsa = named.family() == AlgorithmFamily::Rsa && default == Algorithm::RS256;
    (named == default || is_rsa).then_some(named)
}

/// Returns true if the key material is valid. An invalid key would reject every token without a
/// visible reason.
fn is_valid_key(key: &DecodingKey, algorithm: Algorithm) -> bool {
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
