//! Claims of a JWT.
//!
//! Times are compared here and not by the library, which reads only the system clock.

use std::time::Duration;

use echo_core::units::Nanos;
use serde::Deserialize;
use serde_json::Value;

use crate::Rejected;

/// Tolerated difference between the clocks of an issuer and this host.
const LEEWAY: Duration = Duration::from_secs(30);

/// Claims of a token, before or after its signature is verified.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    pub(super) sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    // Claims defined elsewhere: any JSON is accepted here and parsed when the claim is used.
    pub(super) jti: Option<Value>,
    pub(super) scope: Option<Value>,
    pub(super) echo: Option<Value>,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Claims {
    /// Returns true if the token's audience is one of these.
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        match &self.aud {
            None => false,
            Some(Audience::One(audience)) => audiences.contains(audience),
            Some(Audience::Several(several)) => {
                several.iter().any(|audience| audiences.contains(audience))
            }
        }
    }

    /// Checks that the token is valid at `now` and that its lifetime is at most `max_age`. Returns
    /// the instant at which it expires.
    pub(super) fn valid_until(&self, now: Nanos, max_age: Duration) -> Result<Nanos, Rejected> {
        let (Some(end), Some(issued)) = (self.exp, self.iat) else {
            return Err(Rejected::Malformed);
        };
        let (end, issued) = (instant(end), instant(issued));
        if end <= now.before(LEEWAY) {
            return Err(Rejected::Expired);
        }
        // A token issued in the future would exceed the lifetime limit below.
        let begin = self.nbf.map_or(issued, |begin| instant(begin).max(issued));
        if begin.before(LEEWAY) > now {
            return Err(Rejected::NotYetValid);
        }
        if end.before(max_age) > issued {
            return Err(Rejected::LivesTooLong);
        }
        Ok(end)
    }
}

/// Converts a `NumericDate` (RFC 7519, section 2).
#[expect(
    clippy::cast_possible_truncation,
    reason = "the conversion holds at the ends of the range"
)]
fn instant(seconds: f64) -> Nanos {
    Nanos::new((seconds * 1e9) as i64)
}
