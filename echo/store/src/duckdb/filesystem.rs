//! File systems that a database may be kept on.
//!
//! Two processes must never write to one file, and acknowledged data must be on the disk. Both rely
//! on locks and `fsync` as local file systems implement them. Network file systems emulate, cache
//! or omit them depending on the server and its mount options, which cannot be detected from here.

use std::io;
use std::path::Path;

use crate::StoreError;

/// Suitability of a kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suitability {
    /// Local, or not known to be anything else.
    Local,
    /// Local or remote; with the name of its kind.
    Unclear(&'static str),
    /// Network file system; with the name of its kind.
    Network(&'static str),
}

/// Refuses a database on a network file system, and warns about one that may be remote.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    // The database may not exist yet. If the kernel reports no kind, it is accepted.
    let kind = kind_of(path.parent().unwrap_or(path));
    match kind.unwrap_or(Suitability::Local) {
        Suitability::Local => Ok(()),
        Suitability::Unclear(kind) => {
            tracing::warn!(
                "{} is on {kind}, which may not exclude other machines and may lose acknowledged data: make sure that it is \
                 local and used by one machine",
                path.display()
            );
            Ok(())
        }
        Suitability::Network(kind) => Err(StoreError::Unsuitable {
            path: path.display().to_string(),
            reason: format!(
                "it is on {kind}, a network file system without reliable locks and durability"
            ),
        }),
    }
}

/// Kind of the file system of a file or folder, by its magic number (`statfs(2)`, `linux/magic.h`).
pub(super) fn kind_of(path: &Path) -> io::Result<Suitability> {
    let stat = rustix::fs::statfs(path)?;
    Ok(suitability(magic(stat.f_type)))
}

/// Magic number, which has 32 bits and is signed on some machines.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel's magic numbers have 32 bits"
)]
const fn magic(f_type: rustix::fs::FsWord) -> u32 {
    f_type as u32
}

/// Suitability of the kind with this magic number.
pub(super) const fn suitability(magic: u32) -> Suitability {
    match magic {
        0x6969 => Suitability::Network("NFS"),
        0x517B => Suitability::Network("SMB"),
        0xFE53_4D42 => Suitability::Network("SMB2"),
        0xFF53_4D42 => Suitability::Network("CIFS"),
        0x00C3_6400 => Suitability::Network("Ceph"),
        0x0BD0_0BD0 => Suitability::Network("Lustre"),
        0x4750_4653 => Suitability::Network("GPFS"),
        0x1983_0326 => Suitability::Network("BeeGFS"),
        0x5346_414F | 0x6B41_4653 => Suitability::Network("AFS"),
        0x7375_7245 => Suitability::Network("Coda"),
        0x564C => Suitability::Network("NCP"),
        // Block-level volumes shared by several nodes.
        0x0116_1970 => Suitability::Unclear("GFS2"),
        0x7461_636F => Suitability::Unclear("OCFS2"),
        // A host folder in a virtual machine or sandbox: gVisor reports every folder as one.
        0x0102_1997 => Suitability::Unclear("9p"),
        // FUSE: anything from a local encrypted folder to a remote bucket.
        0x6573_5546 => Suitability::Unclear("FUSE"),
        _ => Suitability::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::{Suitability, kind_of, suitability};

    #[test]
    fn network_file_systems_are_recognized_by_magic_number() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0xFE53_4D42, "SMB2"),
            (0x517B, "SMB"),
            (0x00C3_6400, "Ceph"),
            (0x0BD0_0BD0, "Lustre"),
        ] {
            assert_eq!(suitability(magic), Suitability::Network(name));
        }
        assert_eq!(suitability(0x6573_5546), Suitability::Unclear("FUSE"));
        assert_eq!(suitability(0x0102_1997), Suitability::Unclear("9p"));
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(suitability(local), Suitability::Local, "{local:x}");
        }
    }

    #[test]
    fn the_temporary_folder_and_the_shared_memory_are_local() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), std::path::Path::new("/dev/shm")] {
            assert_ne!(
                std::mem::discriminant(&kind_of(path).unwrap()),
                std::mem::discriminant(&Suitability::Network("")),
                "{}",
                path.display()
            );
        }
    }
}
