//! How long and how much is kept, and how much room on the volume is left to others.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bytes in one mebibyte.
const MIB: u64 = 1024 * 1024;

/// Share of its limit that the database may take before retention begins to delete.
const BEGIN_AT: f64 = 0.8;

/// Limits of what is kept. DetectorOutput are small and stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Events received longer ago are deleted; nothing keeps them for ever.
    pub age: Option<Duration>,
    /// Closed hours of costs that began longer ago are deleted; nothing keeps them for ever.
    pub cost_age: Option<Duration>,
    /// Most that the database may take; nothing lets it fill the volume up to the floor.
    pub size: Option<Amount>,
    /// Room on the volume below which nothing is taken any more; [`Self::FLOOR`] when absent.
    pub floor: Option<Amount>,
    /// Size of the file that is given up when the floor is reached, bytes; 0 for none.
    pub ballast_bytes: u64,
    /// Series and origins that are kept at most.
    pub entries: EntryLimits,
}

/// How many series, origins and clusters are kept at most. They are in memory all the time: some 200 bytes a series, 500 an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLimits {
    /// Series: a metric with its unit, and of collectives the communicator, operation and role.
    pub series: usize,
    /// Senders: what is known of a rank, or of a node.
    pub origins: usize,
    /// Clusters that the senders belong to.
    pub clusters: usize,
}

impl EntryLimits {
    /// Nothing of each.
    pub const NONE: Self = Self {
        series: 0,
        origins: 0,
        clusters: 0,
    };

    /// One part in `n` of each.
    #[must_use]
    pub const fn part(self, n: usize) -> Self {
        Self {
            series: self.series / n,
            origins: self.origins / n,
            clusters: self.clusters / n,
        }
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            series: self.series.saturating_add(more.series),
            origins: self.origins.saturating_add(more.origins),
            clusters: self.clusters.saturating_add(more.clusters),
        }
    }

    /// What is left of each.
    #[must_use]
    pub const fn minus(self, less: Self) -> Self {
        Self {
            series: self.series.saturating_sub(less.series),
            origins: self.origins.saturating_sub(less.origins),
            clusters: self.clusters.saturating_sub(less.clusters),
        }
    }

    /// Whether there is as much of each.
    pub const fn fits(self, room: Self) -> bool {
        self.series <= room.series && self.origins <= room.origins && self.clusters <= room.clusters
    }
}

impl Default for EntryLimits {
    fn default() -> Self {
        Self {
            series: 1_000_000,
            origins: 1_000_000,
            clusters: 10_000,
        }
    }
}

/// An amount of storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Share of what there is, 0 to 1.
    Share(f64),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            age: Some(Duration::from_hours(30 * 24)),
            cost_age: Some(Duration::from_hours(400 * 24)),
            size: Some(Amount::Share(1.0)),
            floor: None,
            ballast_bytes: 64 * MIB,
            entries: EntryLimits::default(),
        }
    }
}

impl Limits {
    /// Floor unless the operator says otherwise: this share of the volume, but no less and no more than that.
    pub const FLOOR: (f64, u64, u64) = (0.02, 256 * MIB, 4 * 1024 * MIB);

    /// Bytes that have to stay free on a volume of `total` bytes.
    pub fn floor_bytes(&self, total: u64) -> u64 {
        let usual = || {
            let (share, least, most) = Self::FLOOR;
            Amount::Share(share).of(total).clamp(least, most)
        };
        self.floor.map_or_else(usual, |floor| floor.of(total))
    }

    /// Bytes in use from which on retention deletes. `room` is what the database has and could still get on a volume of
    /// `total` bytes; nothing when there is no limit.
    pub fn begin_bytes(&self, total: u64, room: u64) -> Option<u64> {
        let limit = self.size?.of(total).min(room);
        Some(Amount::Share(BEGIN_AT).of(limit))
    }
}

impl Amount {
    /// Bytes, of `total`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a size is a size, and its last digits do not matter"
    )]
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (total as f64 * share) as u64,
        }
    }
}

/// Reads `50GB`, `512MiB`, `1000000` and `80%`.
impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size such as 50GB, 512MiB or 80%");
        let text = text.trim();
        let digits = text
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
        if unit.trim() == "%" {
            let percent: f64 = number.parse().map_err(|_not_a_number| wrong())?;
            let is_share = percent > 0.0 && percent <= 100.0;
            return is_share
                .then_some(Self::Share(percent / 100.0))
                .ok_or_else(|| format!("{text:?} is not above 0 and up to 100 %"));
        }
        let factor = match unit.trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" => 1024,
            "MiB" => MIB,
            "GiB" => 1024 * MIB,
            "TiB" => 1024 * 1024 * MIB,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_not_a_number| wrong())?;
        number
            .checked_mul(factor)
            .map(Self::Bytes)
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) if *bytes >= MIB => write!(f, "{} MiB", bytes / MIB),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Share(share) => write!(f, "{:.0} %", share * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, Limits, MIB};

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, amount) in [
            ("50GB", Amount::Bytes(50_000_000_000)),
            ("512 MiB", Amount::Bytes(512 * MIB)),
            ("1000000", Amount::Bytes(1_000_000)),
            ("80%", Amount::Share(0.8)),
        ] {
            assert_eq!(text.parse(), Ok(amount), "{text}");
        }
        for wrong in ["", "GB", "-1", "120%", "0%", "5 parsecs", "99999999TB"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_floor_is_the_larger_of_two_unless_it_is_said() {
        let usual = Limits::default();
        assert_eq!(usual.floor_bytes(1_000 * MIB), 256 * MIB);
        assert_eq!(usual.floor_bytes(100_000 * MIB), 2_000 * MIB);
        let said = Limits {
            floor: Some(Amount::Bytes(7)),
            ..usual
        };
        assert_eq!(said.floor_bytes(100_000 * MIB), 7);
    }

    #[test]
    fn retention_begins_at_four_fifths_of_what_there_is_room_for() {
        let half = Limits {
            size: Some(Amount::Share(0.5)),
            ..Limits::default()
        };
        assert_eq!(half.begin_bytes(1_000, 2_000), Some(400));
        assert_eq!(
            half.begin_bytes(1_000, 100),
            Some(80),
            "others take the rest"
        );
        let without = Limits { size: None, ..half };
        assert_eq!(without.begin_bytes(1_000, 100), None);
    }
}
