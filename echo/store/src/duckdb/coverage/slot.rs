//! Time slots, and the tiling of windows with them.

use std::collections::BTreeSet;

use echo_core::units::{Nanos, Window};

use crate::duckdb::rows::coverage::SlottedWindow;

/// Lengths of slots, nanoseconds; each is a multiple of the next. The finest limits what every
/// query counts again.
const LENGTHS: [i64; 4] = [DAY, 3_600_000_000_000, 60_000_000_000, FINEST];

const DAY: i64 = 86_400_000_000_000;

const FINEST: i64 = 10_000_000_000;

/// Longest window that is tiled, days: ten years. Longer ones result from wrong clocks.
const LONGEST_DAYS: i64 = 3_660;

/// Time slot of one of [`LENGTHS`], which begins at a multiple of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    begin: i64,
    nanos: i64,
}

impl Slot {
    /// Slot of length `nanos` that begins at `begin`.
    pub(super) const fn at(begin: Nanos, nanos: i64) -> Self {
        Self {
            begin: begin.value(),
            nanos,
        }
    }

    /// Finest slot that contains an instant.
    pub(super) const fn finest(instant: Nanos) -> Self {
        Self::around(instant.value(), FINEST)
    }

    const fn around(instant: i64, nanos: i64) -> Self {
        Self {
            begin: instant - instant.rem_euclid(nanos),
            nanos,
        }
    }

    const fn end(self) -> i64 {
        self.begin + self.nanos
    }

    /// Returns true if `inner` lies inside this slot.
    pub(super) const fn contains(self, inner: Self) -> bool {
        self.begin <= inner.begin && inner.end() <= self.end()
    }

    /// Slots of all lengths that contain the beginning of this one.
    pub(super) fn with_outer(self) -> impl Iterator<Item = Self> {
        LENGTHS
            .into_iter()
            .map(move |nanos| Self::around(self.begin, nanos))
    }

    /// Slots of the next finer length that this one consists of; none if it is one of the finest.
    pub(super) fn parts(self) -> impl Iterator<Item = Self> {
        let finer = LENGTHS.into_iter().find(|nanos| *nanos < self.nanos);
        let n_parts = finer.map_or(0, |nanos| self.nanos / nanos);
        let nanos = finer.unwrap_or(self.nanos);
        (0..n_parts).map(move |part| Self {
            begin: self.begin + part * nanos,
            nanos,
        })
    }
}

/// Returns true if the window can be tiled.
pub(super) fn is_tileable(window: Window) -> bool {
    let plausible = Nanos::EARLIEST <= window.from() && window.to() <= Nanos::LATEST;
    plausible && (window.to().value() - window.from().value()) / DAY <= LONGEST_DAYS
}

/// Returns the largest slots that fit into the window, and the remaining windows at its ends.
pub(super) fn tiles(window: Window) -> (Vec<Slot>, Vec<Window>) {
    let (from, to) = (window.from().value(), window.to().value());
    let last = to - to.rem_euclid(FINEST);
    let mut begin = from + (-from).rem_euclid(FINEST);
    if begin >= last {
        return (Vec::new(), vec![window]);
    }
    let ends = [(from, begin), (last, to)];
    let ends = ends.map(|(from, to)| Window::new(Nanos::new(from), Nanos::new(to)));
    let mut slots = Vec::new();
    while begin < last {
        let fits = |nanos: &i64| begin % nanos == 0 && begin + nanos <= last;
        let nanos = LENGTHS.into_iter().find(fits).unwrap_or(FINEST);
        slots.push(Slot { begin, nanos });
        begin += nanos;
    }
    (slots, ends.into_iter().flatten().collect())
}

/// Returns the windows to be counted; adjacent slots of one length are merged.
pub(super) fn windows_to_count(missing: &BTreeSet<Slot>, ends: &[Window]) -> Vec<SlottedWindow> {
    let missing = missing
        .iter()
        .map(|slot| (slot.begin, slot.end(), slot.nanos));
    let ends = ends
        .iter()
        .map(|end| (end.from().value(), end.to().value(), FINEST));
    let mut pieces: Vec<_> = missing.chain(ends).collect();
    pieces.sort_unstable();
    let mut joined: Vec<(i64, i64, i64)> = Vec::new();
    for (from, to, nanos) in pieces {
        match joined.last_mut() {
            Some(last) if last.1 == from && last.2 == nanos => last.1 = to,
            _ => joined.push((from, to, nanos)),
        }
    }
    let slotted = |(from, to, slot_nanos)| {
        let window = Window::new(Nanos::new(from), Nanos::new(to))?;
        Some(SlottedWindow { window, slot_nanos })
    };
    joined.into_iter().filter_map(slotted).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use echo_core::units::{Nanos, Window};
    use proptest::prelude::*;

    use super::{DAY, FINEST, LENGTHS, Slot, is_tileable, tiles, windows_to_count};

    fn window(from_s: i64, to_s: i64) -> Window {
        let at = |seconds: i64| Nanos::new(seconds * 1_000_000_000);
        Window::new(at(from_s), at(to_s)).unwrap()
    }

    /// Beginnings and lengths, seconds.
    fn seconds(slots: &[Slot]) -> Vec<(i64, i64)> {
        let second = 1_000_000_000;
        let seconds = slots
            .iter()
            .map(|slot| (slot.begin / second, slot.nanos / second));
        seconds.collect()
    }

    #[test]
    fn a_window_is_tiled_with_the_largest_slots_that_fit() {
        let (slots, ends) = tiles(window(3_535, 7_275));
        assert_eq!(
            seconds(&slots),
            [(3_540, 60), (3_600, 3_600), (7_200, 60), (7_260, 10)]
        );
        assert_eq!(ends, [window(3_535, 3_540), window(7_270, 7_275)]);
        assert_eq!(tiles(window(11, 19)), (vec![], vec![window(11, 19)]));
    }

    #[test]
    fn a_window_between_wrong_clocks_is_not_tiled() {
        assert!(!is_tileable(
            Window::new(Nanos::EARLIEST, Nanos::LATEST).unwrap()
        ));
        assert!(!is_tileable(
            Window::new(Nanos::new(i64::MIN), Nanos::EARLIEST).unwrap()
        ));
        let now = Nanos::EARLIEST.offset(5 * 365 * DAY);
        assert!(is_tileable(Window::new(Nanos::EARLIEST, now).unwrap()));
    }

    #[test]
    fn adjacent_slots_of_one_length_are_counted_together() {
        let (slots, ends) = tiles(window(3_535, 7_275));
        let all: Vec<_> = windows_to_count(&slots.into_iter().collect(), &ends);
        let seconds = all
            .iter()
            .map(|slotted| (slotted.window, slotted.slot_nanos / FINEST));
        let expected = [
            (window(3_535, 3_540), 1),
            (window(3_540, 3_600), 6),
            (window(3_600, 7_200), 360),
            (window(7_200, 7_260), 6),
            (window(7_260, 7_275), 1),
        ];
        assert!(seconds.eq(expected), "{all:?}");
    }

    #[test]
    fn the_parts_of_a_slot_cover_it() {
        let hour = Slot::at(Nanos::new(LENGTHS[1]), LENGTHS[1]);
        let minutes: Vec<_> = hour.parts().collect();
        assert_eq!(minutes.len(), 60);
        assert!(minutes.iter().all(|minute| hour.contains(*minute)));
        assert_eq!(minutes[59].parts().count(), 6);
        let finest = minutes[59].parts().last().unwrap();
        assert_eq!(finest.parts().count(), 0);
        let outer: Vec<_> = finest.with_outer().collect();
        assert_eq!(outer[1..], [hour, minutes[59], finest]);
        assert_eq!(outer[0].parts().count(), 24);
    }

    proptest! {
        #[test]
        fn every_instant_of_a_window_is_in_one_tile_or_end(from in 0_i64..20_000, length in 1_i64..20_000) {
            let whole = window(from, from + length);
            let (slots, ends) = tiles(whole);
            let slots = slots.iter().map(|slot| (slot.begin, slot.end()));
            let ends = ends.iter().map(|end| (end.from().value(), end.to().value()));
            let mut pieces: Vec<_> = slots.chain(ends).collect();
            pieces.sort_unstable();
            prop_assert_eq!(pieces[0].0, whole.from().value());
            prop_assert_eq!(pieces[pieces.len() - 1].1, whole.to().value());
            prop_assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0), "no gap, no overlap");
            let missing: BTreeSet<_> = tiles(whole).0.into_iter().collect();
            let windows = windows_to_count(&missing, &tiles(whole).1);
            let counted: i64 = windows.iter().map(|slotted| slotted.window.to().value() - slotted.window.from().value()).sum();
            prop_assert_eq!(counted, length * 1_000_000_000);
        }
    }
}
