//! Times in the formats of consumers.

use echo_core::units::Nanos;

/// Seconds since 1970.
pub(super) const fn unix_seconds(at: Nanos) -> i64 {
    at.value().div_euclid(1_000_000_000)
}

/// RFC 3339 in whole seconds, as Kubernetes writes `Time`.
pub(super) fn seconds(at: Nanos) -> String {
    let text = whole_seconds(at).to_string();
    text.replace(".000Z", "Z")
}

/// RFC 3339 with microseconds, as Kubernetes writes `MicroTime`.
pub(super) fn microseconds(at: Nanos) -> String {
    let micros = at.value().rem_euclid(1_000_000_000) / 1_000;
    seconds(at).replace('Z', &format!(".{micros:06}Z"))
}

const fn whole_seconds(at: Nanos) -> Nanos {
    Nanos::new(unix_seconds(at) * 1_000_000_000)
}
