//! Mix of operation kinds in a span of work.

use std::collections::BTreeMap;

use xxhash_rust::xxh64::xxh64;

/// Maximum number of kinds in one span; agents report fewer.
const MAX_KINDS: usize = 32;

/// Name of the attribute with its quotes, as in JSON.
const NAME: &str = "\"fleet.mix\":";

/// Number of operations of each kind. Kinds are hashes of their names.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mix(BTreeMap<u64, f64>);

impl Mix {
    /// Reads the mix from the attributes of a point; `None` if it is missing or malformed.
    pub fn from_attributes(attrs: &str) -> Option<Self> {
        // JSON escapes no character of a mix, so the text between the quotes is the whole value.
        let (_, rest) = attrs.split_once(NAME)?;
        let (_, rest) = rest.split_once('"')?;
        let (kinds, _) = rest.split_once('"')?;
        let mut mix = Self::default();
        for kind in kinds.split(' ').take(MAX_KINDS) {
            let (name, count) = kind.split_once('=')?;
            let count: u32 = count.parse().ok()?;
            *mix.0.entry(xxh64(name.as_bytes(), 0)).or_default() += f64::from(count);
        }
        (mix.operations() > 0.0).then_some(mix)
    }

    /// Adds the operations of another span, multiplied by a factor.
    pub fn add_times(&mut self, other: &Self, times: f64) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += times * count;
        }
    }

    /// Number of operations of all kinds.
    pub fn operations(&self) -> f64 {
        self.0.values().sum()
    }

    /// Number of operations of one kind.
    pub fn count_of_kind(&self, kind: u64) -> f64 {
        self.0.get(&kind).copied().unwrap_or(0.0)
    }

    /// The kinds with their operations.
    pub fn kinds(&self) -> impl Iterator<Item = (u64, f64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}

#[cfg(test)]
mod tests {
    use fleet_proto::attribute;

    use super::Mix;

    #[test]
    fn a_mix_is_read_from_the_attribute_that_agents_send() {
        let attrs = format!(
            r#"{{"other":1,"{}":"AllReduce.7.21=90 AllGather.4.0=2"}}"#,
            attribute::MIX
        );
        let mix = Mix::from_attributes(&attrs).unwrap();
        assert!((mix.operations() - 92.0).abs() < 1e-9);
        assert_eq!(mix.kinds().count(), 2);
    }

    #[test]
    fn a_malformed_mix_is_none() {
        for attrs in ["{}", "", r#"{"fleet.mix":"x"}"#, r#"{"fleet.mix":"a=0"}"#] {
            assert_eq!(Mix::from_attributes(attrs), None, "{attrs}");
        }
    }
}
