//! Keys that issuers publish at an address: where they are, and what of them counts. Who fetches them is not said here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::keys::Keys;

/// Where the keys of one issuer are. Paths are as the access file writes them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySource {
    /// The issuer, as its tokens name it.
    pub issuer: String,
    /// The address of the set.
    pub url: KeyUrl,
    /// Authorities, in PEM, that vouch for the address; those of the system when absent.
    pub ca: Option<PathBuf>,
    /// The file with the bearer token that is shown there.
    pub token: Option<PathBuf>,
}

/// An address that nobody else can answer for: over TLS, or on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyUrl(String);

/// Why an address is not one for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no address of the form https://HOST/PATH (http:// only on this machine)")]
pub struct NoKeyUrl;

/// The keys of one issuer as it published them.
#[derive(Debug, Clone)]
pub struct KeySet(Arc<Keys>);

/// What issuers have published, as far as it was fetched.
#[derive(Debug, Clone, Default)]
pub struct Published(BTreeMap<KeySource, KeySet>);

impl KeyUrl {
    /// The address as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyUrl {
    type Err = NoKeyUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains('#');
        let (scheme, rest) = text.split_once("://").ok_or(NoKeyUrl)?;
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        let is_known = matches!(scheme, "https" | "http");
        let is_named = !authority.is_empty() && !authority.contains('@');
        if is_plain && is_known && is_named && !is_overheard(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(NoKeyUrl)
    }
}

impl KeySet {
    /// Reads a JSON Web Key Set that came from outside: public keys only.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        Keys::published(text).map(|keys| Self(Arc::new(keys)))
    }
}

impl Published {
    /// Takes over what an issuer publishes now, in place of what it published before.
    pub fn insert(&mut self, source: KeySource, keys: KeySet) {
        self.0.insert(source, keys);
    }

    /// Forgets the keys of those that `keep` does not name.
    pub fn retain(&mut self, keep: impl Fn(&KeySource) -> bool) {
        self.0.retain(|source, _| keep(source));
    }

    pub(super) fn of(&self, source: &KeySource) -> Option<&Keys> {
        self.0.get(source).map(|keys| &*keys.0)
    }
}

/// Whether others than this machine can read what is sent to this address, and answer in its place.
pub fn is_overheard(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = match authority.strip_prefix('[') {
        // What stands before `@` is no host.
        _ if authority.contains('@') => None,
        Some(address) => address.split(']').next(),
        None => authority.split(':').next(),
    };
    let is_local = |host: &str| {
        let address = host.parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    };
    !host.is_some_and(is_local)
}

#[cfg(test)]
mod tests {
    use super::{KeyUrl, is_overheard};

    #[test]
    fn keys_come_from_where_nobody_else_can_answer() {
        for good in [
            "https://idp.example/keys",
            "https://idp.example:8443/keys?v=2",
            "https://kubernetes.default.svc/openid/v1/jwks",
            "http://127.0.0.1:8080/keys",
            "http://[::1]/keys",
            "http://localhost/keys",
        ] {
            assert_eq!(good.parse::<KeyUrl>().unwrap().as_str(), good);
        }
        for wrong in [
            "",
            "idp.example/keys",
            "http://idp.example/keys",
            "http://localhost.attacker.example/keys",
            "http://127.0.0.1:80@attacker.example/keys",
            "https://user:word@idp.example/keys",
            "https:///keys",
            "https://idp.example/a b",
            "https://idp.example/keys#first",
            "file:///etc/passwd",
            "ftp://idp.example/keys",
        ] {
            assert!(wrong.parse::<KeyUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_stands_before_an_at_sign_is_no_host() {
        assert!(is_overheard("http://localhost:1@echo.example:8081"));
        assert!(!is_overheard("http://localhost:8081"));
    }
}
