//! Selection of operations that are reported individually: those that every rank picks by the same
//! hash, so that they can be compared across ranks, and the two slowest of each block.

use crate::signal::{CommId, Exemplar};

/// Default sampling modulus: one operation in so many is sampled, unless a policy sets another one.
pub const DEFAULT_MODULUS: u32 = 16;

const MAX_SAMPLED: usize = 64;

/// Returns whether all ranks report this operation.
pub fn is_sampled(comm: CommId, seq: u64, modulus: u32) -> bool {
    let mut key = [0; 16];
    let (low, high) = key.split_at_mut(8);
    low.copy_from_slice(&comm.to_bits().to_le_bytes());
    high.copy_from_slice(&seq.to_le_bytes());
    modulus != 0 && xxhash_rust::xxh64::xxh64(&key, 0).is_multiple_of(u64::from(modulus))
}

/// Selects operations of one block.
#[derive(Debug, Clone, Default)]
pub struct Sampler {
    sampled: Vec<Exemplar>,
    slowest: [Option<Exemplar>; 2],
}

impl Sampler {
    /// Offers an operation; `is_sampled` marks those that all ranks report.
    pub fn offer(&mut self, exemplar: Exemplar, is_sampled: bool) {
        if is_sampled && self.sampled.len() < MAX_SAMPLED {
            self.sampled.push(exemplar);
        }
        let slower_than = |slot: &Option<Exemplar>| {
            slot.is_none_or(|kept| exemplar.wait_ms.total_cmp(&kept.wait_ms).is_gt())
        };
        let [first, second] = &mut self.slowest;
        if slower_than(first) {
            *second = first.replace(exemplar);
        } else if slower_than(second) {
            *second = Some(exemplar);
        }
    }

    /// Returns the selected operations in order, each once.
    pub fn into_exemplars(self) -> Vec<Exemplar> {
        let mut picked = self.sampled;
        picked.extend(self.slowest.into_iter().flatten());
        picked.sort_by_key(|exemplar| (exemplar.seq, exemplar.time_ns));
        picked.dedup_by_key(|exemplar| (exemplar.seq, exemplar.time_ns));
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(seq: u64, wait_ms: f64) -> Exemplar {
        Exemplar {
            seq,
            time_ns: seq,
            wait_ms,
        }
    }

    #[test]
    fn about_one_in_m_operations_is_sampled() {
        let comm = CommId::new(7);
        let sampled = (0..16_000).filter(|seq| is_sampled(comm, *seq, 16)).count();
        assert!((800..1200).contains(&sampled), "{sampled}");
    }

    #[test]
    fn a_modulus_of_one_samples_all_and_of_zero_none() {
        let comm = CommId::new(7);
        assert!((0..100).all(|seq| is_sampled(comm, seq, 1)));
        assert!(!(0..100).any(|seq| is_sampled(comm, seq, 0)));
    }

    #[test]
    fn the_two_slowest_are_kept_besides_the_sampled_ones() {
        let mut sampler = Sampler::default();
        for (seq, wait_ms) in [(1, 5.0), (2, 9.0), (3, 1.0), (4, 7.0)] {
            sampler.offer(exemplar(seq, wait_ms), seq == 3);
        }
        let seqs: Vec<u64> = sampler
            .into_exemplars()
            .iter()
            .map(|picked| picked.seq)
            .collect();
        assert_eq!(seqs, [2, 3, 4]);
    }

    #[test]
    fn an_operation_that_is_sampled_and_slowest_appears_once() {
        let mut sampler = Sampler::default();
        sampler.offer(exemplar(1, 5.0), true);
        assert_eq!(sampler.into_exemplars().len(), 1);
    }
}
