//! Rate limits: requests per principal, and failed authentications per address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use echo_access::{Kind, Principal, Rate};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Most principals tracked; an issuer may have any number of subjects. Those with a full burst are
/// removed first; if none has one, all are removed.
const MAX_PRINCIPALS: usize = 10_000;

/// Most addresses tracked.
const MAX_ADDRESSES: usize = 10_000;

/// Failures per second, and in one burst, of an address.
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(5).unwrap();
const FAILURES_AT_ONCE: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// Request rate limit per principal. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates(Arc<Mutex<Principals>>);

type Principals = HashMap<(Kind, Arc<str>), Entry>;

#[derive(Debug)]
struct Entry {
    rate: Rate,
    limiter: DefaultDirectRateLimiter,
}

impl Rates {
    /// Counts a request. Returns the time to wait if it is over the limit.
    #[expect(
        clippy::significant_drop_tightening,
        reason = "the limiter is behind the lock"
    )]
    pub(super) fn check(&self, principal: &Principal) -> Result<(), Duration> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A subject of an issuer may have the same name as an entry of the file.
        let key = (principal.kind, Arc::clone(&principal.id));
        if entries.len() >= MAX_PRINCIPALS && !entries.contains_key(&key) {
            entries.retain(|_, entry| entry.has_spent());
            if entries.len() >= MAX_PRINCIPALS {
                entries.clear();
            }
        }
        let known = entries.entry(key);
        let known = known.or_insert_with(|| Entry::new(principal.rate));
        if known.rate != principal.rate {
            *known = Entry::new(principal.rate);
        }
        let taken = known.limiter.check();
        taken.map_err(|early| early.wait_time_from(DefaultClock::default().now()))
    }
}

impl Entry {
    fn new(rate: Rate) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self {
            rate,
            limiter: RateLimiter::direct(quota),
        }
    }

    /// Returns whether removing it would restore a part of the burst.
    fn has_spent(&self) -> bool {
        // The check succeeds, and takes the burst, only for a principal that has not sent requests
        // lately.
        !matches!(self.limiter.check_n(self.rate.burst), Ok(Ok(())))
    }
}

/// Failed authentications per address. Clones share the counts.
#[derive(Debug, Clone)]
pub(super) struct Failures(Arc<DefaultKeyedRateLimiter<IpAddr>>);

impl Default for Failures {
    fn default() -> Self {
        let quota = Quota::per_second(FAILURES_PER_SECOND).allow_burst(FAILURES_AT_ONCE);
        Self(Arc::new(RateLimiter::keyed(quota)))
    }
}

impl Failures {
    /// Counts a failure. Returns the time to wait if it is over the limit.
    pub(super) fn record(&self, address: IpAddr) -> Result<(), Duration> {
        if self.0.len() >= MAX_ADDRESSES {
            self.0.retain_recent();
        }
        if self.0.len() >= MAX_ADDRESSES {
            return Err(Duration::from_secs(1));
        }
        let taken = self.0.check_key(&client_network(address));
        taken.map_err(|early| early.wait_time_from(DefaultClock::default().now()))
    }
}

/// Returns the address, or for IPv6 the /64 network assigned to a host.
fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        },
    }
}

#[cfg(test)]
mod tests;
