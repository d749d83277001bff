//! Encoded requests that are sent repeatedly with new times and sequence numbers: encoding each one
//! would cost the generator more than sending it.

use anyhow::ensure;
use bytes::Bytes;
use prost::Message;

use crate::message::Sender;

/// First sequence number: all later ones have varints of four bytes, so each fits in place of another.
const FIRST_SEQ: u64 = 1 << 21;
const END_SEQ: u64 = 1 << 28;

/// Values that mark the positions to fill: nothing else in a request has them.
const MARK_SEQ: u64 = 0x0a5a_5a5a;
const MARK_NS: u64 = 0x1a5a_5a5a_5a5a_5a5a;

/// Largest difference between a point's time and its request's time, nanoseconds.
const REACH_NS: u64 = 60_000_000_000;

/// Tag of an integer in an attribute.
const INT_TAG: u8 = 0x18;

/// One encoded request, with the positions of its variable parts.
#[derive(Debug)]
pub(crate) struct Template {
    sender: Sender,
    body: Vec<u8>,
    /// Positions of times, and their offsets before the time of the request.
    times: Vec<(usize, u64)>,
    /// Positions of sequence numbers, and their offsets from the last one before the request.
    seqs: Vec<(usize, u64)>,
}

impl Template {
    /// Prepares the requests of a sender, and checks that filling gives the same bytes as encoding.
    pub(crate) fn new(sender: Sender) -> anyhow::Result<Self> {
        let body = sender.message(MARK_SEQ, MARK_NS).encode_to_vec();
        let positions = 0..body.len();
        let time = |at| Some((at, MARK_NS.checked_sub(fixed(&body, at)?)?));
        let seq = |at: usize| {
            let value = (body.get(at.checked_sub(1)?) == Some(&INT_TAG)).then(|| varint(&body, at));
            Some((at, value??.checked_sub(MARK_SEQ - 1)?))
        };
        let is_near = |(_, before): &(usize, u64)| *before < REACH_NS;
        let times = positions.clone().filter_map(time).filter(is_near).collect();
        let is_covered = |(_, behind): &(usize, u64)| *behind <= sender.operations();
        let seqs = positions.filter_map(seq).filter(is_covered).collect();
        let template = Self {
            sender,
            body,
            times,
            seqs,
        };
        let (round, now_ns) = (3, 1_800_000_000_000_000_000);
        let encoded = sender
            .message(template.first_seq(round), now_ns)
            .encode_to_vec();
        ensure!(
            template.request(round, now_ns) == encoded,
            "the filled-in request of {sender:?} differs from the encoded one"
        );
        Ok(template)
    }

    /// Returns the number of points of a request.
    pub(crate) fn points(&self) -> u64 {
        self.sender.real_points().into()
    }

    /// Returns the size of a request in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Returns the request of a round with the time `now_ns`.
    pub(crate) fn request(&self, round: u64, now_ns: u64) -> Bytes {
        let mut body = self.body.clone();
        for &(at, before) in &self.times {
            if let Some(bytes) = body.get_mut(at..at + 8) {
                bytes.copy_from_slice(&(now_ns - before).to_le_bytes());
            }
        }
        let before_first = self.first_seq(round) - 1;
        for &(at, behind) in &self.seqs {
            let mut value = before_first + behind;
            for byte in body.iter_mut().skip(at).take(4) {
                // The lowest seven bits, and the continuation bit above them.
                *byte = value.to_le_bytes()[0] | 0x80;
                value >>= 7;
            }
            if let Some(last) = body.get_mut(at + 3) {
                *last &= 0x7f;
            }
        }
        body.into()
    }

    /// Returns the first sequence number of a round; numbers wrap around after millions of requests.
    fn first_seq(&self, round: u64) -> u64 {
        let operations = self.sender.operations();
        let rounds = (END_SEQ - FIRST_SEQ) / operations - 1;
        FIRST_SEQ + 1 + round % rounds * operations
    }
}

fn fixed(body: &[u8], at: usize) -> Option<u64> {
    let (bytes, _) = body.get(at..)?.split_first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

fn varint(body: &[u8], at: usize) -> Option<u64> {
    let (&[a, b, c, d], _) = body.get(at..)?.split_first_chunk()?;
    let is_four_bytes = a & b & c & 0x80 != 0 && d & 0x80 == 0;
    let bits = [a, b, c, d].map(|byte| u64::from(byte & 0x7f));
    let value = bits.iter().rev().fold(0, |value, bits| value << 7 | bits);
    is_four_bytes.then_some(value)
}
