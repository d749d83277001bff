//! Keys that issuers publish at a URL. Fetching them is the caller's task.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::keys::Keys;

/// Location of one issuer's keys. Paths are as written in the access file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySource {
    /// Issuer, as in the `iss` claim of its tokens.
    pub issuer: String,
    /// URL of the key set.
    pub url: KeyUrl,
    /// CA certificates, in PEM, that the server is verified with; those of the system when absent.
    pub ca: Option<PathBuf>,
    /// File with the bearer token for requests to the URL.
    pub token: Option<PathBuf>,
}

/// A URL that cannot be spoofed: over TLS, or on the local host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyUrl(String);

/// Error of a URL that is not allowed for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a URL of the form https://HOST/PATH (http:// only for the local host)")]
pub struct InvalidKeyUrl;

/// Keys of one issuer, as published.
#[derive(Debug, Clone)]
pub struct KeySet(Arc<Keys>);

/// Published keys of all issuers, as far as they have been fetched.
#[derive(Debug, Clone, Default)]
pub struct PublishedKeys(BTreeMap<KeySource, KeySet>);

impl KeyUrl {
    /// Returns the URL as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyUrl {
    type Err = InvalidKeyUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains('#');
        let (scheme, rest) = text.split_once("://").ok_or(InvalidKeyUrl)?;
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        let is_known = matches!(scheme, "https" | "http");
        let is_named = !authority.is_empty() && !authority.contains('@');
        if is_plain && is_known && is_named && !is_insecure_url(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidKeyUrl)
    }
}

impl KeySet {
    /// Parses a JSON Web Key Set from an untrusted source: public keys only.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        Keys::published(text).map(|keys| Self(Arc::new(keys)))
    }
}

impl PublishedKeys {
    /// Replaces the keys of an issuer.
    pub fn insert(&mut self, source: KeySource, keys: KeySet) {
        self.0.insert(source, keys);
    }

    /// Removes the keys of sources for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&KeySource) -> bool) {
        self.0.retain(|source, _| keep(source));
    }

    pub(super) fn get(&self, source: &KeySource) -> Option<&Keys> {
        self.0.get(source).map(|keys| &*keys.0)
    }
}

/// Returns true if another host could read or answer requests to this URL.
pub fn is_insecure_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = match authority.strip_prefix('[') {
        // User information before `@` is not a host.
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
    use super::{KeyUrl, is_insecure_url};

    #[test]
    fn keys_are_fetched_only_over_tls_or_from_the_local_host() {
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
    fn user_information_in_a_url_is_not_its_host() {
        assert!(is_insecure_url("http://localhost:1@echo.example:8081"));
        assert!(!is_insecure_url("http://localhost:8081"));
    }
}
