//! What a JWT says of itself.
//!
//! Times are compared here and not by the library, which asks the machine's clock and nobody else.

use std::time::Duration;

use echo_core::units::Nanos;
use serde::Deserialize;
use serde_json::Value;

use crate::Rejected;

/// How far the clocks of issuers may be from ours.
const LEEWAY: Duration = Duration::from_secs(30);

/// The claims of a token, signed or not.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    pub(super) sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    // What belongs to others is read when it is needed, and may have any form until then.
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
    /// Whether the token is for one of these.
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        match &self.aud {
            None => false,
            Some(Audience::One(audience)) => audiences.contains(audience),
            Some(Audience::Several(several)) => {
                several.iter().any(|audience| audiences.contains(audience))
            }
        }
    }

    /// Checks that the token is valid at the instant `now`, and not for longer than `max_age` in all. The instant at which it
    /// ends.
    pub(super) fn valid_until(&self, now: Nanos, max_age: Duration) -> Result<Nanos, Rejected> {
        let (Some(end), Some(issued)) = (self.exp, self.iat) else {
            return Err(Rejected::Malformed);
        };
        let (end, issued) = (instant(end), instant(issued));
        if end <= now.before(LEEWAY) {
            return Err(Rejected::Expired);
        }
        // A token from the future would outlive the limit below.
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

/// The instant of a `NumericDate` (RFC 7519, section 2).
#[expect(
    clippy::cast_possible_truncation,
    reason = "the conversion holds at the ends of the range"
)]
fn instant(seconds: f64) -> Nanos {
    Nanos::new((seconds * 1e9) as i64)
}
