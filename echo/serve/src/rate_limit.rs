//! How often each principal may ask, and how often each address may fail to say who it is.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use echo_access::{Kind, Principal, Rate};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Most principals that are kept apart; with tokens of an issuer there may be any number. The ones that have not asked for
/// longest are forgotten, which gives them a full burst again.
const MAX_PRINCIPALS: usize = 10_000;

/// Most addresses that are kept apart.
const MAX_ADDRESSES: usize = 10_000;

/// Failures that an address may have in a second, and at once.
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(5).unwrap();
const FAILURES_AT_ONCE: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// How often each principal may ask. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates(Arc<Mutex<Principals>>);

type Principals = HashMap<(Kind, Arc<str>), Kept>;

#[derive(Debug)]
struct Kept {
    rate: Rate,
    limiter: DefaultDirectRateLimiter,
}

impl Rates {
    /// Takes one question into account. The time to wait when it is one too many.
    #[expect(
        clippy::significant_drop_tightening,
        reason = "the limiter lies behind the lock"
    )]
    pub(super) fn take(&self, principal: &Principal) -> Result<(), Duration> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The subject of an issuer may have the name of an entry of the file.
        let who = (principal.kind, Arc::clone(&principal.id));
        if kept.len() >= MAX_PRINCIPALS && !kept.contains_key(&who) {
            kept.retain(|_, kept| kept.is_used());
            if kept.len() >= MAX_PRINCIPALS {
                kept.clear();
            }
        }
        let known = kept.entry(who);
        let known = known.or_insert_with(|| Kept::new(principal.rate));
        if known.rate != principal.rate {
            *known = Kept::new(principal.rate);
        }
        let taken = known.limiter.check();
        taken.map_err(|early| early.wait_time_from(DefaultClock::default().now()))
    }
}

impl Kept {
    fn new(rate: Rate) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self {
            rate,
            limiter: RateLimiter::direct(quota),
        }
    }

    /// Whether forgetting it would give back a part of the burst.
    fn is_used(&self) -> bool {
        // A full burst at once is possible only for who has not asked lately; asking takes it.
        !matches!(self.limiter.check_n(self.rate.burst), Ok(Ok(())))
    }
}

/// How often each address failed. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Failures(Arc<DefaultKeyedRateLimiter<IpAddr>>);

impl Default for Failures {
    fn default() -> Self {
        let quota = Quota::per_second(FAILURES_PER_SECOND).allow_burst(FAILURES_AT_ONCE);
        Self(Arc::new(RateLimiter::keyed(quota)))
    }
}

impl Failures {
    /// Takes one failure into account. The time to wait when it is one too many.
    pub(super) fn take(&self, address: IpAddr) -> Result<(), Duration> {
        if self.0.len() >= MAX_ADDRESSES {
            self.0.retain_recent();
        }
        if self.0.len() >= MAX_ADDRESSES {
            return Err(Duration::from_secs(1));
        }
        let taken = self.0.check_key(&network(address));
        taken.map_err(|early| early.wait_time_from(DefaultClock::default().now()))
    }
}

/// What one host can send from: an address, and in IPv6 the whole network that a host is given.
fn network(address: IpAddr) -> IpAddr {
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
