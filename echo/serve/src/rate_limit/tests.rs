use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use echo_access::{Principal, Rate};

use super::{FAILURES_AT_ONCE, Failures, MAX_ADDRESSES, MAX_PRINCIPALS, Rates};

fn principal(id: &str, burst: u32) -> Principal {
    let rate = Rate {
        per_second: NonZeroU32::MIN,
        burst: NonZeroU32::new(burst).unwrap(),
    };
    Principal {
        id: Arc::from(id),
        rate,
        ..Principal::local()
    }
}

#[test]
fn a_burst_is_allowed_and_further_requests_wait() {
    let (rates, grafana) = (Rates::default(), principal("grafana", 3));
    assert!((0..3).all(|_| rates.check(&grafana).is_ok()));
    let wait = rates.check(&grafana).unwrap_err();
    assert!(wait.as_secs_f64() <= 1.0, "{wait:?}");
    assert!(
        rates.check(&principal("cron", 3)).is_ok(),
        "another principal"
    );
}

#[test]
fn a_changed_rate_applies_from_the_next_request() {
    let rates = Rates::default();
    assert!(rates.check(&principal("grafana", 1)).is_ok());
    assert!(rates.check(&principal("grafana", 1)).is_err());
    assert!(rates.check(&principal("grafana", 2)).is_ok());
}

#[test]
fn the_number_of_tracked_principals_is_limited() {
    let rates = Rates::default();
    for number in 0..2 * MAX_PRINCIPALS + 10 {
        assert!(rates.check(&principal(&format!("job-{number}"), 5)).is_ok());
        assert!(rates.0.lock().unwrap().len() <= MAX_PRINCIPALS);
    }
}

#[test]
fn repeated_failures_of_an_address_are_limited() {
    let failures = Failures::default();
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    let taken = (0..FAILURES_AT_ONCE.get()).all(|_| failures.record(address).is_ok());
    assert!(taken && failures.record(address).is_err());
    assert!(failures.record(Ipv4Addr::new(10, 0, 0, 8).into()).is_ok());
}

#[test]
fn addresses_of_one_ipv6_network_count_as_one() {
    let failures = Failures::default();
    let address = |last: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 9, 9, 9, last));
    let failed = (0..100).filter(|last| failures.record(address(*last)).is_err());
    assert!(failed.count() >= 70);
    let other = Ipv6Addr::new(0x2001, 0xdb8, 1, 3, 9, 9, 9, 0);
    assert!(failures.record(other.into()).is_ok());
}

#[test]
fn the_number_of_tracked_addresses_is_limited() {
    let failures = Failures::default();
    for number in 0..u32::try_from(MAX_ADDRESSES + 1_000).unwrap() {
        let _taken = failures.record(Ipv4Addr::from_bits(number).into());
        assert!(failures.0.len() <= MAX_ADDRESSES);
    }
}
