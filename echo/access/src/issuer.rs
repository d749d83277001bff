//! Tokens that somebody else signed: JSON Web Tokens (RFC 7519).

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
use crate::published::{KeySource, Published};
use crate::{Kind, Principal, Rate, Rejected, mint};

/// Somebody who signs tokens, and who of its subjects may do what.
#[derive(Debug)]
pub(super) struct Issuer {
    pub(super) name: String,
    pub(super) audiences: Vec<String>,
    pub(super) keys: KeysOf,
    pub(super) max_age: Duration,
    pub(super) kind: Kind,
    pub(super) subjects: Subjects,
    /// How often those may call of whom nothing else is said.
    pub(super) rate: Rate,
}

/// Where the keys of an issuer come from.
#[derive(Debug)]
pub(super) enum KeysOf {
    /// From a file, which has been read.
    File(Keys),
    /// From an address, from which they may have been fetched.
    Address(KeySource),
}

/// What subjects may do. The most exact pattern decides: a name before a form, a longer form before a shorter one.
#[derive(Debug, Default)]
pub(super) struct Subjects(Vec<(Pattern, Permissions)>);

/// The part of a token's header that is looked at.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    // Extensions that have to be understood; none is.
    crit: Option<Value>,
}

/// Whose token this is.
pub(super) fn identify(
    issuers: &[Issuer],
    (token, now): (&str, Nanos),
    published: &Published,
) -> Result<Principal, Rejected> {
    let (message, signature) = token.rsplit_once('.').ok_or(Rejected::Malformed)?;
    let (header, payload) = message.split_once('.').ok_or(Rejected::Malformed)?;
    let header: Header = decoded(header)?;
    let claims: Claims = decoded(payload)?;
    if header.crit.is_some() {
        return Err(Rejected::Malformed);
    }
    let issuer = issuer_of(issuers, &claims).ok_or(Rejected::WrongIssuer)?;
    let named = (header.alg.as_str(), header.kid.as_deref());
    let keys = match &issuer.keys {
        KeysOf::File(keys) => keys,
        KeysOf::Address(source) => published.of(source).ok_or(Rejected::NoKeys)?,
    };
    keys.verify(named, message, signature)?;
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
        ask: permissions.ask,
        write: permissions.write,
        rate: permissions.rate,
        not_after: Some(not_after),
    })
}

/// Where the keys are published of the issuer that this token names, if they are.
pub(super) fn source_of<'a>(issuers: &'a [Issuer], token: &str) -> Option<&'a KeySource> {
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

/// The token's own id, if it can stand in a log, else the beginning of its hash.
fn token_id(claims: &Claims, token: &str) -> Arc<str> {
    let own = claims.jti.as_ref().and_then(Value::as_str);
    own.and_then(|own| checked_name(own).ok())
        .map_or_else(|| Arc::from(mint::short(&mint::hash(token))), Arc::from)
}

impl Issuer {
    /// Where its keys are published, if they are.
    pub(super) const fn source(&self) -> Option<&KeySource> {
        match &self.keys {
            KeysOf::File(_) => None,
            KeysOf::Address(source) => Some(source),
        }
    }

    fn permissions(&self, subject: &str, claims: &Claims) -> Result<Permissions, Rejected> {
        let listed = self.subjects.find(subject).cloned();
        let mut permissions = match self.kind {
            // Kubernetes puts no claims of ours into its tokens.
            Kind::ServiceAccount => listed,
            _ => listed.or_else(|| Permissions::claimed(claims, self.rate)),
        }
        .filter(Permissions::are_any)
        .ok_or(Rejected::NoPermission)?;
        if let (Kind::ServiceAccount, Some(write)) = (self.kind, &mut permissions.write) {
            write.node = node(claims)?;
        }
        Ok(permissions)
    }
}

/// The node that the bearer's pod runs on; Kubernetes says it of tokens that are bound to pods.
fn node(claims: &Claims) -> Result<Option<NodeId>, Rejected> {
    let name = claims
        .kubernetes
        .as_ref()
        .and_then(|claim| claim.pointer("/node/name"));
    let Some(name) = name else {
        return Ok(None);
    };
    let name = name.as_str().and_then(|name| name.parse().ok());
    // A node that cannot be read must not become leave to write for all.
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
