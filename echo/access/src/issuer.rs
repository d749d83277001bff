//! Tokens signed by an external issuer: JSON Web Tokens (RFC 7519).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use echo_core::ids::NodeId;
use echo_core::pattern::{Pattern, checked_name};
use echo_core::units::Nanos;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::claims::Claims;
use crate::keys::Keys;
use crate::permissions::Permissions;
use crate::published::{KeySource, PublishedKeys};
use crate::{Kind, Principal, Rate, Rejected, mint};

/// A token issuer and the permissions of its subjects.
#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) name: String,
    pub(super) audiences: Vec<String>,
    pub(super) keys: KeyOrigin,
    pub(super) max_age: Duration,
    pub(super) kind: Kind,
    pub(super) subjects: Subjects,
    /// Default rate limit of its subjects.
    pub(super) rate: Rate,
}

/// Source of an issuer's keys.
#[derive(Debug)]
pub(super) enum KeyOrigin {
    /// A file, already read.
    File(Keys),
    /// A URL; the keys may have been fetched.
    Url(KeySource),
}

/// Permissions of subjects. The most specific pattern applies: an exact name before a wildcard, a
/// longer wildcard before a shorter one.
#[derive(Debug, Default)]
pub(super) struct Subjects(Vec<(Pattern, Permissions)>);

/// Fields of the token's header that are used.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    // Critical extensions; none is supported.
    crit: Option<Value>,
}

/// Verifies the token and returns its principal.
pub(super) fn identify(
    issuers: &[Issuer],
    token: &str,
    now: Nanos,
    published: &PublishedKeys,
) -> Result<Principal, Rejected> {
    let (message, signature) = token.rsplit_once('.').ok_or(Rejected::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(Rejected::Malformed)?;
    let header: Header = decoded(header)?;
    let claims: Claims = decoded(payload)?;
    if header.crit.is_some() {
        return Err(Rejected::Malformed);
    }
    let issuer = issuer_of(issuers, &claims).ok_or(Rejected::WrongIssuer)?;
    let keys = match &issuer.keys {
        KeyOrigin::File(keys) => keys,
        KeyOrigin::Url(source) => published.get(source).ok_or(Rejected::NoKeys)?,
    };
    let key_id = header.kid.as_deref();
    keys.verify(&header.alg, key_id, message, signature)?;
    if !claims.is_for(&issuer.audiences) {
        return Err(Rejected::WrongAudience);
    }
    let not_after = claims.valid_until(now, issuer.max_age)?;
    let Some(Ok(id)) = claims.sub.as_deref().map(checked_name) else {
        return Err(Rejected::Malformed);
    };
    let permissions = issuer.permissions(id, &claims)?;
    Ok(Principal {
        id: Arc::from(id),
        kind: issuer.kind,
        token_id: token_id(&claims, token),
        query: permissions.query,
        write: permissions.write,
        rate: permissions.rate,
        not_after: Some(not_after),
    })
}

/// Returns the key source of the token's issuer, if its keys are published.
pub(super) fn key_source_for<'a>(issuers: &'a [Issuer], token: &str) -> Option<&'a KeySource> {
    let claims: Claims = decoded(token.split('.').nth(1)?).ok()?;
    issuer_of(issuers, &claims)?.source()
}

fn issuer_of<'a>(issuers: &'a [Issuer], claims: &Claims) -> Option<&'a Issuer> {
    issuers
        .iter()
        .find(|issuer| claims.iss.as_ref() == Some(&issuer.name))
}

fn decoded<T: DeserializeOwned>(part: &str) -> Result<T, Rejected> {
    let json = URL_SAFE_NO_PAD.decode(part).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or(Rejected::Malformed)
}

/// Returns the token's `jti` if it is safe to log, else the first digits of its hash.
fn token_id(claims: &Claims, token: &str) -> Arc<str> {
    let own = claims.jti.as_ref().and_then(Value::as_str);
    own.and_then(|own| checked_name(own).ok())
        .map_or_else(|| Arc::from(mint::short(&mint::hash(token))), Arc::from)
}

impl Issuer {
    /// Returns the URL at which its keys are published, if any.
    pub(super) const fn source(&self) -> Option<&KeySource> {
        match &self.keys {
            KeyOrigin::File(_) => None,
            KeyOrigin::Url(source) => Some(source),
        }
    }

    fn permissions(&self, subject: &str, claims: &Claims) -> Result<Permissions, Rejected> {
        let listed = self.subjects.find(subject).cloned();
        let mut permissions = match self.kind {
            // Tokens of Kubernetes cannot carry the `echo` claim.
            Kind::ServiceAccount => listed,
            _ => listed.or_else(|| Permissions::from_claims(claims, self.rate)),
        }
        .filter(Permissions::are_any)
        .ok_or(Rejected::NoPermission)?;
        if let (Kind::ServiceAccount, Some(write)) = (self.kind, &mut permissions.write) {
            write.node = node(claims)?;
        }
        Ok(permissions)
    }
}

/// Returns the node of the bearer's pod, which Kubernetes adds to tokens bound to a pod.
fn node(claims: &Claims) -> Result<Option<NodeId>, Rejected> {
    let name = claims
        .kubernetes
        .as_ref()
        .and_then(|claim| claim.pointer("/node/name"));
    let Some(name) = name else {
        return Ok(None);
    };
    let name = name.as_str().and_then(|name| name.parse().ok());
    // An unreadable node name must not turn into permission to write for all nodes.
    name.map(Some).ok_or(Rejected::Malformed)
}

impl Subjects {
    pub(super) fn new(mut subjects: Vec<(Pattern, Permissions)>) -> Self {
        subjects.sort_by_key(|(pattern, _)| {
            let pattern = pattern.clone();
            let length = std::cmp::Reverse(pattern.as_str().len());
            (!pattern.is_one_name(), length, pattern)
        });
        Self(subjects)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, subject: &str) -> Option<&Permissions> {
        let found = self.0.iter().find(|(pattern, _)| pattern.matches(subject));
        found.map(|(_, permissions)| permissions)
    }
}
