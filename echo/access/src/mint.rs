//! Generation and format of opaque tokens.

use std::fmt::Write;
use std::io;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Prefix of every token that Echo generates, recognized by people and secret scanners.
pub const PREFIX: &str = "echo_";

/// Random bytes in a token: enough that a hash without salt is safe.
const RANDOM_BYTES: usize = 32;

/// Characters after the prefix: the random bytes in base64.
const RANDOM_CHARS: usize = 43;

/// Minimum length of a token that Echo did not generate, such as the output of `openssl rand -hex
/// 32`. A shorter one could be found from its hash.
const MIN_CHARS: usize = 32;

/// The SHA-256 of a token.
pub(super) type Hash = [u8; SHA256_OUTPUT_LEN];

/// Generates a token. Returns it with its SHA-256 in hexadecimal, which goes into the access file.
pub fn new_token() -> io::Result<(String, String)> {
    let mut random = [0; RANDOM_BYTES];
    rand::fill(&mut random)
        .map_err(|_unspecified| io::Error::other("cannot get random numbers from the system"))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
    let hash = hex(&hash(&token));
    Ok((token, hash))
}

/// Returns true if the text has the format of an opaque token: one that Echo generated, or at least
/// 32 characters of a bearer token (RFC 6750) without a dot, which would be a JWT.
pub(super) fn is_well_formed(token: &str) -> bool {
    let Some(random) = token.strip_prefix(PREFIX) else {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_~+/=".contains(c);
        return token.len() >= MIN_CHARS && token.chars().all(is_part);
    };
    random.len() == RANDOM_CHARS
        && URL_SAFE_NO_PAD
            .decode(random)
            .is_ok_and(|random| random.len() == RANDOM_BYTES)
}

pub(super) fn hash(token: &str) -> Hash {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

/// Short form of a token's hash in logs: its first eight digits.
pub(super) fn short(hash: &Hash) -> String {
    hex(hash).chars().take(8).collect()
}

/// Formats bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Parses a hash in hexadecimal.
pub(super) fn unhex(text: &str) -> Option<Hash> {
    let digits: Option<Vec<u8>> = text.chars().map(digit).collect();
    let pairs = digits?;
    let bytes: Option<Vec<u8>> = pairs
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some((high << 4) | low),
            _ => None,
        })
        .collect();
    Hash::try_from(bytes?).ok()
}

fn digit(c: char) -> Option<u8> {
    c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::{hash, is_well_formed, new_token, short, unhex};

    #[test]
    fn a_new_token_is_well_formed_and_its_hash_parses() {
        let (token, hex) = new_token().unwrap();
        assert!(is_well_formed(&token), "{token}");
        assert_eq!(token.len(), 48);
        assert_eq!(unhex(&hex), Some(hash(&token)));
        assert!(hex.starts_with(&short(&hash(&token))));
        assert_ne!(new_token().unwrap().0, token);
    }

    #[test]
    fn tokens_are_hashed_with_plain_sha256() {
        let (abc, text) = (
            hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        );
        assert_eq!(unhex(text), Some(abc));
        assert_eq!(unhex(&text.to_uppercase()), Some(abc));
        for wrong in [
            "",
            "ba",
            text.trim_start_matches('b'),
            &format!("{text}0"),
            &text.replace('a', "g"),
        ] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
