//! Probes that an earlier agent left in place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use fleet_agent_bpf::programs::Probes;

use crate::watch::library::Version;
use crate::watch::mapping::FileId;

/// File of the probes, as encoded in the names of their pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) file: FileId,
    pub(super) version: Version,
}

/// Pinned probes of one folder.
#[derive(Debug)]
pub(super) struct StaleProbes {
    folder: Option<PathBuf>,
    probes: BTreeMap<Owner, Probes>,
}

impl StaleProbes {
    /// Loads the probes of a pin folder.
    pub(super) fn load(folder: Option<PathBuf>) -> Self {
        let entries = folder.iter().filter_map(|folder| fs::read_dir(folder).ok());
        let names = entries.flatten().flatten().map(|entry| entry.file_name());
        let mut numbers: BTreeMap<Owner, BTreeSet<usize>> = BTreeMap::new();
        for (owner, n) in names.filter_map(|name| parse(name.to_str()?)) {
            numbers.entry(owner).or_default().insert(n);
        }
        let mut stale_probes = Self {
            folder,
            probes: BTreeMap::new(),
        };
        for (owner, pins) in numbers {
            let pins = pins.into_iter().filter_map(|n| stale_probes.pin(owner, n));
            let paths: Vec<PathBuf> = pins.collect();
            match Probes::open(&paths) {
                Ok(probes) => {
                    stale_probes.probes.insert(owner, probes);
                }
                Err(error) => {
                    tracing::warn!(
                        "probes of an earlier agent cannot be opened and are removed: {error}"
                    );
                    for path in paths {
                        // Without its pin, a link is removed in any case.
                        let _gone = fs::remove_file(path);
                    }
                }
            }
        }
        stale_probes
    }

    /// Returns the pin path of link `n` of a file's probes; `None` without a pin folder.
    pub(super) fn pin(&self, owner: Owner, n: usize) -> Option<PathBuf> {
        self.folder
            .as_ref()
            .map(|folder| folder.join(name(owner, n)))
    }

    /// Returns whether probes are pinned at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.folder.is_some()
    }

    /// Takes the probes of a file if all `links` are there. An agent that was killed while
    /// attaching them has left a part, which is useless.
    pub(super) fn take(&mut self, owner: Owner, links: usize) -> Option<Probes> {
        complete(self.probes.remove(&owner)?, links)
    }

    /// Takes the probes of the same file under another device, if `is_probed` confirms that it has
    /// a probe: an overlay shows each container the files of its layers under a device of its own.
    pub(super) fn take_same_file(
        &mut self,
        owner: Owner,
        links: usize,
        is_probed: impl FnOnce() -> bool,
    ) -> Option<Probes> {
        let is_alike =
            |other: &&Owner| other.file.inode == owner.file.inode && other.version == owner.version;
        let other = *self.probes.keys().find(is_alike)?;
        is_probed().then(|| self.take(other, links)).flatten()
    }

    /// Removes the probes that were not taken.
    pub(super) fn clear(&mut self) {
        for mut probes in std::mem::take(&mut self.probes).into_values() {
            probes.unpin();
        }
    }
}

fn complete(mut probes: Probes, links: usize) -> Option<Probes> {
    if probes.n_links() == links {
        return Some(probes);
    }
    probes.unpin();
    None
}

fn name(Owner { file, version }: Owner, n: usize) -> String {
    let FileId {
        major,
        minor,
        inode,
    } = file;
    let Version { bytes, modified_ns } = version;
    format!("{major:x}-{minor:x}-{inode:x}-{bytes:x}-{modified_ns:x}-{n}")
}

fn parse(name: &str) -> Option<(Owner, usize)> {
    let mut parts = name.split('-');
    let mut hex = || u128::from_str_radix(parts.next()?, 16).ok();
    let file = FileId {
        major: u32::try_from(hex()?).ok()?,
        minor: u32::try_from(hex()?).ok()?,
        inode: u64::try_from(hex()?).ok()?,
    };
    let version = Version {
        bytes: u64::try_from(hex()?).ok()?,
        modified_ns: hex()?.cast_signed(),
    };
    let n = parts.next()?.parse().ok()?;
    parts
        .next()
        .is_none()
        .then_some((Owner { file, version }, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_name_identifies_the_file_of_a_probe() {
        let file = FileId {
            major: 0xfd,
            minor: 1,
            inode: 0x1234_5678,
        };
        // The modification time may be before 1970.
        for modified_ns in [1_700_000_000_123_456_789, -1] {
            let version = Version {
                bytes: 0x00ab_cdef,
                modified_ns,
            };
            let owner = Owner { file, version };
            assert_eq!(parse(&name(owner, 12)), Some((owner, 12)));
        }
    }

    #[test]
    fn names_of_maps_and_other_files_are_not_probes() {
        for other in [
            "events",
            "in_flight",
            "fd-1-2-3-4",
            "fd-1-2-3-4-5-6",
            "fd-1-2-3-x-0",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
