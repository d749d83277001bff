//! The identity of a batch, by which one that is sent again is stored once.

use bytes::Bytes;
use echo_core::error::{Code, Coded};
use echo_core::model::event::BatchKey;
use xxhash_rust::xxh3::xxh3_128;

/// Longest name of an agent instance, in characters.
const MAX_INSTANCE_CHARS: usize = 64;

/// Why the metadata do not number the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchKeyError {
    /// One half of the number is missing.
    #[error("fleet-agent-instance and fleet-batch-number belong together, one of them is missing")]
    Half,
    /// The instance is not 1 to 64 printable ASCII characters.
    #[error("fleet-agent-instance is not 1 to 64 printable ASCII characters")]
    Instance,
    /// The number is not a decimal number that fits 64 bits.
    #[error("fleet-batch-number is not a decimal number from 0 to 2^64 - 1")]
    Number,
}

impl Coded for BatchKeyError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

/// Key of a batch whose agent numbers its batches; nothing when neither half is there.
pub fn numbered(
    instance: Option<&[u8]>,
    number: Option<&[u8]>,
) -> Result<Option<BatchKey>, BatchKeyError> {
    let (instance, number) = match (instance, number) {
        (None, None) => return Ok(None),
        (Some(instance), Some(number)) => (instance, number),
        _ => return Err(BatchKeyError::Half),
    };
    let agent = printable(instance)
        .and_then(|instance| instance.parse().ok())
        .ok_or(BatchKeyError::Instance)?;
    let number = decimal(number).ok_or(BatchKeyError::Number)?;
    Ok(Some(BatchKey::Numbered { agent, number }))
}

/// Key of a batch that is not numbered: a hash of its bytes.
pub fn of_content(body: &Bytes) -> BatchKey {
    BatchKey::Content(xxh3_128(body))
}

fn printable(text: &[u8]) -> Option<&str> {
    let is_printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let text = std::str::from_utf8(text).ok()?;
    (is_printable && text.len() <= MAX_INSTANCE_CHARS).then_some(text)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_decimal = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok()?;
    is_decimal.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use echo_core::model::event::BatchKey;

    use super::{BatchKeyError, numbered, of_content};

    #[test]
    fn both_halves_number_a_batch_and_none_leaves_it_unnumbered() {
        let key = numbered(Some(b"node-1/17/abc"), Some(b"42")).unwrap();
        let agent = "node-1/17/abc".parse().unwrap();
        assert_eq!(key, Some(BatchKey::Numbered { agent, number: 42 }));
        assert_eq!(numbered(None, None), Ok(None));
    }

    #[test]
    fn one_half_is_refused() {
        assert_eq!(numbered(Some(b"a"), None), Err(BatchKeyError::Half));
        assert_eq!(numbered(None, Some(b"1")), Err(BatchKeyError::Half));
    }

    #[test]
    fn unprintable_or_overlong_instances_are_refused() {
        for instance in [&b""[..], b"a\x01", "n\u{f6}de".as_bytes(), &[b'x'; 65]] {
            let key = numbered(Some(instance), Some(b"1"));
            assert_eq!(key, Err(BatchKeyError::Instance), "{instance:?}");
        }
    }

    #[test]
    fn only_plain_decimal_numbers_are_taken() {
        for number in [&b""[..], b"+1", b"-1", b"1.0", b"18446744073709551616"] {
            let key = numbered(Some(b"a"), Some(number));
            assert_eq!(key, Err(BatchKeyError::Number), "{number:?}");
        }
    }

    #[test]
    fn equal_bytes_have_equal_keys() {
        let key = |bytes: &'static [u8]| of_content(&Bytes::from_static(bytes));
        assert_eq!(key(b"abc"), key(b"abc"));
        assert_ne!(key(b"abc"), key(b"abd"));
    }
}
