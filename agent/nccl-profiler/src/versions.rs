//! Which releases of NCCL the plugin works with. Pure.

/// Why a release is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its kernels write more times than were asked for: 4 to 13 % of small all-reduces (issue 2355 of NCCL).
    Dear,
    /// It gives no times of the GPU.
    Old,
    /// Nobody knows which release it is, and it may be one of the dear ones.
    Unknown,
}

/// Versions of the profiler's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interface {
    /// Of NCCL 2.27.
    V4,
    /// Of NCCL 2.28.
    V5,
    /// Of NCCL 2.29.
    V6,
    /// Of NCCL 2.31.
    V7,
}

/// First release with times of the GPU in interface 4, as `ncclGetVersion` numbers it.
const FIRST: i32 = 22_700;
/// The dear ones.
const DEAR: std::ops::Range<i32> = 23_100..23_200;

/// Whether to work with a release, as far as it is known.
pub(crate) fn judge(version: Option<i32>, interface: Interface) -> Result<(), Refusal> {
    match version {
        Some(version) if DEAR.contains(&version) => Err(Refusal::Dear),
        Some(version) if version < FIRST => Err(Refusal::Old),
        // A release asks for the latest interface that it knows, so one that asks for an earlier one came before the dear ones.
        None if interface == Interface::V7 => Err(Refusal::Unknown),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dear_release_is_refused_and_its_neighbours_are_not() {
        assert_eq!(judge(Some(23_102), Interface::V7), Err(Refusal::Dear));
        for version in [22_703, 22_809, 22_907, 23_007, 23_203] {
            assert_eq!(judge(Some(version), Interface::V6), Ok(()), "{version}");
        }
        assert_eq!(judge(Some(22_603), Interface::V4), Err(Refusal::Old));
    }

    #[test]
    fn an_unknown_release_is_refused_where_it_may_be_a_dear_one() {
        assert_eq!(judge(None, Interface::V7), Err(Refusal::Unknown));
        for interface in [Interface::V4, Interface::V5, Interface::V6] {
            assert_eq!(judge(None, interface), Ok(()));
        }
    }
}
