//! Deduplication key of a batch.

use bytes::Bytes;
use echo_core::error::{Code, Coded};
use echo_core::model::event::BatchKey;
use xxhash_rust::xxh3::xxh3_128;

/// Maximum length of an agent instance, in characters.
const MAX_INSTANCE_CHARS: usize = 64;

/// Error in the batch number metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchKeyError {
    /// Instance or number is missing.
    #[error("fleet-agent-instance and fleet-batch-number must be sent together; one is missing")]
    Incomplete,
    /// The instance is not 1 to 64 printable ASCII characters.
    #[error("fleet-agent-instance must be 1 to 64 printable ASCII characters")]
    Instance,
    /// The number is not a decimal number that fits 64 bits.
    #[error("fleet-batch-number must be a decimal number from 0 to 2^64 - 1")]
    Number,
}

impl Coded for BatchKeyError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

/// Returns the key of a numbered batch; `None` if instance and number are both absent.
pub fn key_from_headers(
    instance: Option<&[u8]>,
    number: Option<&[u8]>,
) -> Result<Option<BatchKey>, BatchKeyError> {
    let (instance, number) = match (instance, number) {
        (None, None) => return Ok(None),
        (Some(instance), Some(number)) => (instance, number),
        _ => return Err(BatchKeyError::Incomplete),
    };
    let agent = parse_printable(instance)
        .and_then(|instance| instance.parse().ok())
        .ok_or(BatchKeyError::Instance)?;
    let number = parse_decimal(number).ok_or(BatchKeyError::Number)?;
    Ok(Some(BatchKey::Numbered { agent, number }))
}

/// Returns the key of an unnumbered batch: a hash of its bytes.
pub fn key_from_content(body: &Bytes) -> BatchKey {
    BatchKey::Content(xxh3_128(body))
}

fn parse_printable(text: &[u8]) -> Option<&str> {
    let is_printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let text = std::str::from_utf8(text).ok()?;
    (is_printable && text.len() <= MAX_INSTANCE_CHARS).then_some(text)
}

fn parse_decimal(text: &[u8]) -> Option<u64> {
    let is_decimal = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok()?;
    is_decimal.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use echo_core::model::event::BatchKey;

    use super::{BatchKeyError, key_from_content, key_from_headers};

    #[test]
    fn instance_and_number_make_a_key_and_neither_makes_none() {
        let key = key_from_headers(Some(b"node-1/17/abc"), Some(b"42")).unwrap();
        let agent = "node-1/17/abc".parse().unwrap();
        assert_eq!(key, Some(BatchKey::Numbered { agent, number: 42 }));
        assert_eq!(key_from_headers(None, None), Ok(None));
    }

    #[test]
    fn instance_or_number_alone_is_rejected() {
        assert_eq!(
            key_from_headers(Some(b"a"), None),
            Err(BatchKeyError::Incomplete)
        );
        assert_eq!(
            key_from_headers(None, Some(b"1")),
            Err(BatchKeyError::Incomplete)
        );
    }

    #[test]
    fn unprintable_or_overlong_instances_are_rejected() {
        for instance in [&b""[..], b"a\x01", "n\u{f6}de".as_bytes(), &[b'x'; 65]] {
            let key = key_from_headers(Some(instance), Some(b"1"));
            assert_eq!(key, Err(BatchKeyError::Instance), "{instance:?}");
        }
    }

    #[test]
    fn only_plain_decimal_numbers_are_accepted() {
        for number in [&b""[..], b"+1", b"-1", b"1.0", b"18446744073709551616"] {
            let key = key_from_headers(Some(b"a"), Some(number));
            assert_eq!(key, Err(BatchKeyError::Number), "{number:?}");
        }
    }

    #[test]
    fn equal_bytes_have_equal_keys() {
        let key = |bytes: &'static [u8]| key_from_content(&Bytes::from_static(bytes));
        assert_eq!(key(b"abc"), key(b"abc"));
        assert_ne!(key(b"abc"), key(b"abd"));
    }
}
