//! NCCL versions that the plugin supports. Pure.

/// Reason that a version is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A profiler slows its small all-reduces down by 4 to 13 %, since its kernels write more times
    /// than requested (NCCL issue 2355).
    SlowsCollectives,
    /// It does not report GPU times.
    TooOld,
    /// The version is unknown, and can be one that a profiler slows down.
    Unknown,
}

/// Version of the profiler interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interface {
    /// NCCL 2.27.
    V4,
    /// NCCL 2.28.
    V5,
    /// NCCL 2.29.
    V6,
    /// NCCL 2.31.
    V7,
}

/// First version with GPU times in interface 4, as `ncclGetVersion` numbers it.
const FIRST_SUPPORTED: i32 = 22_700;
/// Versions that a profiler slows down.
const SLOW: std::ops::Range<i32> = 23_100..23_200;

/// Checks whether the plugin supports a version, as far as it is known.
pub(crate) fn check(version: Option<i32>, interface: Interface) -> Result<(), Refusal> {
    match version {
        Some(version) if SLOW.contains(&version) => Err(Refusal::SlowsCollectives),
        Some(version) if version < FIRST_SUPPORTED => Err(Refusal::TooOld),
        // NCCL requests the latest interface that it knows, so one that requests an earlier
        // interface precedes the slow versions.
        None if interface == Interface::V7 => Err(Refusal::Unknown),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_that_a_profiler_slows_down_is_refused() {
        assert_eq!(
            check(Some(23_102), Interface::V7),
            Err(Refusal::SlowsCollectives)
        );
        for version in [22_703, 22_809, 22_907, 23_007, 23_203] {
            assert_eq!(check(Some(version), Interface::V6), Ok(()), "{version}");
        }
        assert_eq!(check(Some(22_603), Interface::V4), Err(Refusal::TooOld));
    }

    #[test]
    fn an_unknown_version_is_refused_if_it_can_be_a_slow_one() {
        assert_eq!(check(None, Interface::V7), Err(Refusal::Unknown));
        for interface in [Interface::V4, Interface::V5, Interface::V6] {
            assert_eq!(check(None, interface), Ok(()));
        }
    }
}
