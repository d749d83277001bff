//! Encoded requests that are sent again and again, each time with new times and sequence numbers: encoding them would cost
//! the generator more than sending them.

use anyhow::ensure;
use bytes::Bytes;
use prost::Message;

use crate::message::Sender;

/// Sequence numbers lie where their varints take four bytes, so that one fits into the place of another.
const FIRST_SEQ: u64 = 1 << 21;
const END_SEQ: u64 = 1 << 28;

/// What marks the places to fill: values that nothing else in a request has.
const MARK_SEQ: u64 = 0x0a5a_5a5a;
const MARK_NS: u64 = 0x1a5a_5a5a_5a5a_5a5a;

/// Largest distance of a time from that of its request, nanoseconds.
const REACH_NS: u64 = 60_000_000_000;

/// Tag of an integer in an attribute.
const INT_TAG: u8 = 0x18;

/// One request, less what changes.
#[derive(Debug)]
pub(crate) struct Template {
    sender: Sender,
    body: Vec<u8>,
    /// Places of times, and how long before the request they are.
    times: Vec<(usize, u64)>,
    /// Places of sequence numbers, and how far behind the one before the request's first they are.
    seqs: Vec<(usize, u64)>,
}

impl Template {
    /// Prepares the requests of a sender, and checks that filling the places does what encoding would do.
    pub(crate) fn new(sender: Sender) -> anyhow::Result<Self> {
        let body = sender.message(MARK_SEQ, MARK_NS).encode_to_vec();
        let places = 0..body.len();
        let time = |at| Some((at, MARK_NS.checked_sub(fixed(&body, at)?)?));
        let seq = |at: usize| {
            let value = (body.get(at.checked_sub(1)?) == Some(&INT_TAG)).then(|| varint(&body, at));
            Some((at, value??.checked_sub(MARK_SEQ - 1)?))
        };
        let is_near = |(_, before): &(usize, u64)| *before < REACH_NS;
        let times = places.clone().filter_map(time).filter(is_near).collect();
        let is_covered = |(_, behind): &(usize, u64)| *behind <= sender.operations();
        let seqs = places.filter_map(seq).filter(is_covered).collect();
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
            "a request of {sender:?} that was filled in differs from one that was encoded"
        );
        Ok(template)
    }

    /// Points of a request.
    pub(crate) fn points(&self) -> u64 {
        self.sender.real_points().into()
    }

    /// Bytes of a request.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// The request of a round, as of `now_ns`.
    pub(crate) fn request(&self, round: u64, now_ns: u64) -> Bytes {
        let mut body = self.body.clone();
        for &(at, before) in &self.times {
            if let Some(place) = body.get_mut(at..at + 8) {
                place.copy_from_slice(&(now_ns - before).to_le_bytes());
            }
        }
        let before_first = self.first_seq(round) - 1;
        for &(at, behind) in &self.seqs {
            let mut value = before_first + behind;
            for byte in body.iter_mut().skip(at).take(4) {
                // The lowest seven bits, and above them whether more follow.
                *byte = value.to_le_bytes()[0] | 0x80;
                value >>= 7;
            }
            if let Some(last) = body.get_mut(at + 3) {
                *last &= 0x7f;
            }
        }
        body.into()
    }

    /// Sequence numbers go round, as they do not fit otherwise; that takes millions of requests.
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
