//! Which kinds of file systems a database may lie on.
//!
//! Two processes must never write to one file, and what is acknowledged must be on the disk. Both rest on locks and on
//! `fsync` as a local file system has them. Over a network they are emulated, cached, or left out, as the server and its
//! mount options please, and none of that can be seen from here.

use std::io;
use std::path::Path;

use crate::StoreError;

/// What a kind of file system is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suitability {
    /// A local one, or one that is not known to be anything else.
    Local,
    /// It may be local or not; the name of its kind.
    Unclear(&'static str),
    /// It is reached over a network; the name of its kind.
    Network(&'static str),
}

/// Refuses a database on a network, and warns of one that may be there.
pub(super) fn check(path: &Path) -> Result<(), StoreError> {
    // The database itself may not be there yet. Where the kernel does not say, nothing speaks against it.
    let kind = kind_of(path.parent().unwrap_or(path));
    match kind.unwrap_or(Suitability::Local) {
        Suitability::Local => Ok(()),
        Suitability::Unclear(kind) => {
            tracing::warn!(
                "{} lies on {kind}, which may not keep other machines away or lose what was acknowledged: be sure that it is \
                 local and used by one machine",
                path.display()
            );
            Ok(())
        }
        Suitability::Network(kind) => Err(StoreError::Unsuitable {
            path: path.display().to_string(),
            reason: format!(
                "it lies on {kind}, a network file system, where neither locks nor durability can be relied on"
            ),
        }),
    }
}

/// The kind of file system that a file or folder lies on, by its magic number (`statfs(2)`, `linux/magic.h`).
pub(super) fn kind_of(path: &Path) -> io::Result<Suitability> {
    let stat = rustix::fs::statfs(path)?;
    Ok(suitability(magic(stat.f_type)))
}

/// The magic number, which has 32 bits and is signed on some machines.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the kernel's magic numbers have 32 bits"
)]
const fn magic(f_type: rustix::fs::FsWord) -> u32 {
    f_type as u32
}

/// What the kind with this magic number is good for.
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
        // Volumes shared by several nodes on the block level.
        0x0116_1970 => Suitability::Unclear("GFS2"),
        0x7461_636F => Suitability::Unclear("OCFS2"),
        // A folder of the host in a virtual machine or sandbox: gVisor shows every folder so.
        0x0102_1997 => Suitability::Unclear("9p"),
        // Anything from an encrypted local folder to a bucket at the other end of the world.
        0x6573_5546 => Suitability::Unclear("FUSE"),
        _ => Suitability::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::{Suitability, kind_of, suitability};

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
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
