//! Bill: the lost time of one subject, evaluation by evaluation, in bounded memory.

/// Largest number of entries; the older half is merged beyond it.
const MAX_ENTRIES: usize = 512;

/// Ripples before, between and after a fault lose less than this share of its median loss.
pub(super) const RIPPLE: f64 = 0.25;

/// A loss right before a fault is part of it from this share of its median loss on.
const SIMILAR: f64 = 0.5;

/// Distance within which one loss follows another, seconds.
const GAP_S: f64 = 0.1;

/// Lost time that is a fault of its own, seconds: the least that makes a verdict.
const LEAST_OWN_S: f64 = 1.0;

/// After so many seconds without a loss, what comes next may be another fault.
pub(super) const PAUSE_S: f64 = 4.0;

/// Number of entries of a bill of recent losses.
const RECENT: usize = 32;

/// Lost time of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    /// Beginning and end, job time, seconds.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Lost share of the time.
    pub(super) loss: f64,
    /// Share of the loss that peers waited for the subject in this very evaluation, 0 to 1.
    pub(super) weight: f64,
    /// GPU time lost, seconds.
    pub(super) gpu_s: f64,
    /// Time that each peer waited beyond the usual, as a share.
    pub(super) waited: f64,
    /// Time by which the subject's host enqueued later than the others, beyond the usual, seconds; 0
    /// unless that names it.
    pub(super) late: f64,
}

/// The instant that is as far before `at` as this one is after it.
pub(super) fn mirrored(instant: f64, at: f64) -> f64 {
    2.0_f64.mul_add(at, -instant)
}

/// Lost time of one subject, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Bill {
    entries: Vec<Entry>,
}

impl Bill {
    /// Adds an evaluation.
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        if self.entries.len() > MAX_ENTRIES {
            let recent = self.entries.split_off(MAX_ENTRIES / 2);
            let older = std::mem::replace(&mut self.entries, recent);
            let older = Self { entries: older }.without_ripples();
            if let Some(merged) = older.into_iter().reduce(|one, next| one.merge(&next)) {
                self.entries.insert(0, merged);
            }
        }
    }

    /// Adds an evaluation and forgets all but the latest.
    pub(super) fn push_recent(&mut self, entry: Entry) {
        if self.entries.len() >= RECENT {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    /// The same with another size of all losses.
    pub(super) fn scaled(&self, ratio: f64) -> Self {
        let scaled = self.entries.iter().map(|entry| Entry {
            loss: ratio * entry.loss,
            gpu_s: ratio * entry.gpu_s,
            ..*entry
        });
        Self {
            entries: scaled.collect(),
        }
    }

    /// The part of it before an instant.
    pub(super) fn before(&self, until: f64) -> Self {
        let entries = self.entries.iter().filter(|entry| entry.from < until);
        let before = entries.map(|entry| {
            let to = entry.to.min(until);
            let kept = (to - entry.from) / (entry.to - entry.from);
            Entry {
                to,
                gpu_s: kept * entry.gpu_s,
                ..*entry
            }
        });
        Self {
            entries: before.collect(),
        }
    }

    /// The same before an instant as it is after it, and the other way round.
    pub(super) fn mirrored(&self, at: f64) -> Self {
        let mirrored = self.entries.iter().rev().map(|entry| Entry {
            from: mirrored(entry.to, at),
            to: mirrored(entry.from, at),
            ..*entry
        });
        Self {
            entries: mirrored.collect(),
        }
    }

    /// The latest entry.
    pub(super) fn last(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// Returns true if nothing is on it.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes over the entries of another bill, except those of time that is on this one already.
    pub(super) fn absorb(&mut self, other: Self) {
        let is_new = |entry: &Entry| {
            let own = self.entries.iter();
            !own.clone()
                .any(|own| entry.from < own.to && own.from < entry.to)
        };
        let new: Vec<Entry> = other.entries.into_iter().filter(is_new).collect();
        self.entries.extend(new);
        self.entries.sort_by(|a, b| a.from.total_cmp(&b.from));
    }

    /// Takes over the entries of another bill that lead up to these without a gap and
    /// are of similar size.
    pub(super) fn absorb_before(&mut self, other: &Self) {
        let least = SIMILAR * self.median(|entry| entry.loss);
        let mut first = self.entries.first().map_or(f64::INFINITY, |one| one.from);
        for entry in other.entries.iter().rev() {
            let gap = first - entry.to;
            let is_next = (-GAP_S..=GAP_S).contains(&gap);
            if entry.loss >= least && is_next {
                self.entries.push(*entry);
                first = first.min(entry.from);
            }
        }
        self.entries.sort_by(|a, b| a.from.total_cmp(&b.from));
    }

    /// Takes over the entries of another bill that may be of the same fault: those since its last pause,
    /// from the first of similar size on. Others before them stay if they make a fault of their own.
    pub(super) fn absorb_similar(&mut self, other: &mut Self) {
        let least = SIMILAR * self.median(|entry| entry.loss);
        let entries = std::mem::take(&mut other.entries);
        let mut first = entries.len();
        for (at, entry) in entries.iter().enumerate().rev() {
            let next = entries.get(first).map_or(entry.to, |next| next.from);
            if entry.loss >= least && next - entry.to > PAUSE_S {
                break;
            }
            first = if entry.loss >= least { at } else { first };
        }
        let (smaller, similar) = entries.split_at(first);
        let lost = |entry: &Entry| entry.loss * (entry.to - entry.from);
        let is_own = smaller.iter().map(lost).sum::<f64>() >= LEAST_OWN_S;
        let (kept, taken) = if is_own {
            (smaller.to_vec(), similar.to_vec())
        } else {
            (Vec::new(), entries)
        };
        other.entries = kept;
        self.absorb(Self { entries: taken });
    }

    /// Entries that belong to the fault.
    pub(super) fn without_ripples(&self) -> Vec<Entry> {
        let least = RIPPLE * self.median(|entry| entry.loss);
        let entries = self.entries.iter();
        entries
            .filter(|entry| entry.loss >= least)
            .copied()
            .collect()
    }

    /// Time that the losses would have taken at the largest share of them, seconds.
    pub(super) fn lasting_s(&self) -> f64 {
        let lost = self
            .entries
            .iter()
            .map(|one| one.loss * (one.to - one.from));
        let largest = self.entries.iter().map(|one| one.loss).fold(0.0, f64::max);
        lost.sum::<f64>() / largest
    }

    /// Median of a value of the entries.
    pub(super) fn median(&self, value: impl Fn(&Entry) -> f64) -> f64 {
        let values: Vec<f64> = self.entries.iter().map(value).collect();
        echo_core::stats::median(&values).unwrap_or(0.0)
    }
}

impl Entry {
    fn merge(self, next: &Self) -> Self {
        let weight = next.gpu_s / (self.gpu_s + next.gpu_s).max(f64::MIN_POSITIVE);
        Self {
            from: self.from,
            to: next.to,
            loss: weight.mul_add(next.loss - self.loss, self.loss),
            weight: 1.0,
            gpu_s: self.gpu_s + next.gpu_s,
            waited: weight.mul_add(next.waited - self.waited, self.waited),
            late: weight.mul_add(next.late - self.late, self.late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bill, Entry, MAX_ENTRIES};

    fn entry(from: f64, loss: f64) -> Entry {
        Entry {
            from,
            to: from + 2.0,
            loss,
            weight: 1.0,
            gpu_s: 2.0 * loss,
            waited: 0.0,
            late: 0.0,
        }
    }

    #[test]
    fn ripples_do_not_belong_to_a_fault() {
        let mut bill = Bill::default();
        for (second, loss) in [0.4, 0.5, 0.05, 0.4].into_iter().enumerate() {
            bill.push(entry(2.0 * second as f64, loss));
        }
        assert_eq!(bill.without_ripples().len(), 3);
    }

    #[test]
    fn a_long_fault_is_kept_in_bounded_memory_and_costs_the_same() {
        let mut bill = Bill::default();
        for second in 0..10 * MAX_ENTRIES {
            bill.push(entry(2.0 * second as f64, 0.5));
        }
        let entries = bill.without_ripples();
        let cost: f64 = entries.iter().map(|entry| entry.gpu_s).sum();
        assert!(entries.len() <= MAX_ENTRIES);
        let all = 10 * MAX_ENTRIES;
        assert!((cost - all as f64).abs() < 1e-6);
        assert!(entries[0].from.abs() < 1e-9);
    }

    #[test]
    fn a_similar_loss_right_before_a_fault_is_part_of_it() {
        let mut before = Bill::default();
        before.push_recent(entry(0.0, 0.5));
        before.push_recent(entry(8.0, 0.1));
        before.push_recent(entry(10.0, 0.4));
        let mut bill = Bill::default();
        bill.push(entry(12.0, 0.5));
        bill.absorb_before(&before);
        let begins: Vec<f64> = bill.entries.iter().map(|entry| entry.from).collect();
        assert_eq!(begins, [10.0, 12.0]);
    }

    /// Begins of the entries that stay and of those that are taken over.
    fn split(earlier: &[(f64, f64)], named: (f64, f64)) -> (Vec<f64>, Vec<f64>) {
        let begins = |bill: &Bill| bill.entries.iter().map(|entry| entry.from).collect();
        let mut before = Bill::default();
        for (from, loss) in earlier {
            before.push(entry(*from, *loss));
        }
        let mut bill = Bill::default();
        bill.push(entry(named.0, named.1));
        bill.absorb_similar(&mut before);
        (begins(&before), begins(&bill))
    }

    #[test]
    fn similar_losses_belong_to_a_rank_that_is_found_later() {
        let earlier = [(0.0, 0.3), (2.0, 0.4), (4.0, 0.1), (6.0, 0.5)];
        let (kept, taken) = split(&earlier, (8.0, 0.4));
        assert_eq!((kept.len(), taken.len()), (0, 5));
    }

    #[test]
    fn a_fault_before_a_pause_and_one_of_another_size_stay_on_their_own() {
        let paused = [(0.0, 0.6), (2.0, 0.6), (4.0, 0.05), (10.0, 0.4)];
        assert_eq!(
            split(&paused, (12.0, 0.4)),
            (vec![0.0, 2.0, 4.0], vec![10.0, 12.0])
        );
        let smaller = [(0.0, 0.2), (2.0, 0.2), (4.0, 0.2), (6.0, 0.7)];
        assert_eq!(
            split(&smaller, (8.0, 0.7)),
            (vec![0.0, 2.0, 4.0], vec![6.0, 8.0])
        );
    }

    #[test]
    fn what_is_too_little_for_a_fault_goes_to_the_rank_that_is_found_later() {
        let (kept, taken) = split(&[(0.0, 0.1), (2.0, 0.1)], (20.0, 0.5));
        assert_eq!((kept.len(), taken.len()), (0, 3));
    }
}
