//! Parsing of the executable mappings in `/proc/PID/maps`. Pure.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Suffix of the path of a deleted file.
const DELETED: &[u8] = b" (deleted)";

/// File by device and inode, as mappings list them. In an overlay the device is that of the
/// overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileId {
    /// Major number of the device.
    pub(super) major: u32,
    /// Minor number of the device.
    pub(super) minor: u32,
    /// Inode.
    pub(super) inode: u64,
}

/// Executable mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping<'a> {
    /// First address.
    pub(super) start: u64,
    /// First address after it.
    pub(super) end: u64,
    /// Offset in the file, bytes.
    pub(super) offset: u64,
    /// File.
    pub(super) file: FileId,
    /// Path as the process sees it.
    pub(super) path: &'a OsStr,
}

impl Mapping<'_> {
    /// Returns the address of a file offset in the process.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let address = self.start.checked_add(offset.checked_sub(self.offset)?)?;
        (address < self.end).then_some(address)
    }
}

/// Returns the executable mappings of files. Other lines and malformed ones are ignored.
pub(super) fn executable(maps: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(mapping)
}

/// `7f00-7f80 r-xp 00001000 fd:01 1234      /usr/lib/libnccl.so.2`
fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let (range, rest) = field(line)?;
    let (permissions, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, path) = field(rest)?;
    if permissions.as_bytes().get(2) != Some(&b'x') || !path.starts_with(b"/") {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        file: FileId {
            major: u32::from_str_radix(major, 16).ok()?,
            minor: u32::from_str_radix(minor, 16).ok()?,
            inode: inode.parse().ok()?,
        },
        path: OsStr::from_bytes(path.strip_suffix(DELETED).unwrap_or(path)),
    })
}

/// Splits off the first word and the blanks after it.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let (word, rest) = line.split_at_checked(end)?;
    let word = str::from_utf8(word).ok()?;
    Some((word, rest.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    const MAPS: &str = "\
55d0-55d8 r--p 00000000 fd:01 99                         /usr/bin/python3.12
7f00-7f80 r-xp 00001000 fd:1a 1234                       /opt/a b/libnccl.so.2
7f80-7f90 r-xp 00000000 00:2f 77                         /tmp/libcudart.so.13 (deleted)
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
8000-8001 rwxp 00000000 00:00 0 
";

    #[test]
    fn only_executable_mappings_of_files_are_listed() {
        let listed: Vec<Mapping<'_>> = executable(MAPS.as_bytes()).collect();
        let paths: Vec<&OsStr> = listed.iter().map(|mapping| mapping.path).collect();
        assert_eq!(paths, ["/opt/a b/libnccl.so.2", "/tmp/libcudart.so.13"]);
        let file = FileId {
            major: 0xfd,
            minor: 0x1a,
            inode: 1234,
        };
        assert_eq!((listed[0].file, listed[0].offset), (file, 0x1000));
    }

    #[test]
    fn a_byte_of_the_file_is_found_in_the_process_when_it_is_mapped() {
        let mapping = executable(MAPS.as_bytes()).next().unwrap();
        assert_eq!(mapping.address_of(0x1010), Some(0x7f10));
        assert_eq!(mapping.address_of(0x0fff), None);
        assert_eq!(mapping.address_of(0x1080), None);
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _count = executable(&bytes).count();
        }
    }
}
