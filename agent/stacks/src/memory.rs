//! Memory of another process, read in pages.

use std::collections::BTreeMap;

use remoteprocess::{Process, ProcessMemory};

/// Size of a page that is read at once, bytes.
const PAGE: u64 = 4096;

/// Maximum number of pages read for one stack.
const MAX_PAGES: usize = 64;

/// Pages of a process, read once for each stack.
pub(crate) struct Pages<'a> {
    process: &'a Process,
    read: BTreeMap<u64, Option<Vec<u8>>>,
}

impl<'a> Pages<'a> {
    /// Starts with no page.
    pub(crate) fn new(process: &'a Process) -> Self {
        Self {
            process,
            read: BTreeMap::new(),
        }
    }

    /// Returns the eight bytes at an aligned address; `None` if they cannot be read.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let (page, offset) = (address / PAGE, usize::try_from(address % PAGE).ok()?);
        if self.read.len() >= MAX_PAGES && !self.read.contains_key(&page) {
            return None;
        }
        let process = self.process;
        let bytes = self.read.entry(page).or_insert_with(|| {
            let start = usize::try_from(page * PAGE).ok()?;
            process.copy(start, usize::try_from(PAGE).ok()?).ok()
        });
        word(bytes.as_ref()?, offset)
    }
}

/// Returns the eight bytes at an offset.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let word = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}
