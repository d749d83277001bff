//! Who may call, and what they may do: the operator's file.
//!
//! The file knows two kinds of tokens. An opaque one is a random text that Echo made; the file has its hash. A JWT is
//! signed by an issuer; the file says by which key, and who of its subjects may do what. Nothing is kept between two calls,
//! so a token that is taken out of the file is refused from the next call on.
//!
//! A caller who is refused learns nothing of the reason; [`Rejected`] is for the audit log.

use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use echo_core::error::{Code, Coded};
use echo_core::ids::{ClusterId, NodeId};
use echo_core::units::Nanos;

mod claims;
mod file;
mod issuer;
mod keys;
pub mod mint;
mod opaque;
mod permissions;
pub mod published;
pub mod scope;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod signed;

use issuer::Issuer;
use opaque::OpaqueTokens;
use published::{KeySource, Published};
use scope::{Globs, Scope};

/// Longest token that is looked at, in bytes. Those of Kubernetes have about one thousand.
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Who calls, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name in logs, and the key of rate limits.
    pub id: Arc<str>,
    /// How the caller is known.
    pub kind: Kind,
    /// What tells tokens of one caller apart, in logs: the JWT's own id, or the beginning of the token's hash.
    pub token_id: Arc<str>,
    /// What the caller may ask; nothing when absent.
    pub ask: Option<Ask>,
    /// What the caller may send; nothing when absent.
    pub write: Option<Write>,
    /// How often the caller may call.
    pub rate: Rate,
    /// First instant at which the token is no longer valid, if there is one.
    pub not_after: Option<Nanos>,
}

/// How a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// By an opaque token.
    Opaque,
    /// By a token that an issuer signed.
    Jwt,
    /// By the token of a Kubernetes service account.
    ServiceAccount,
    /// By the listener, which asks nobody.
    Local,
    /// Not at all.
    Unknown,
}

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// About which clusters.
    pub clusters: Scope,
    /// With which tools.
    pub tools: Globs,
    /// Whether in SQL, too. Only where `clusters` is everything: no statement is held to a part of the rows.
    pub sql: bool,
}

/// What may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Of which clusters.
    pub clusters: Scope,
    /// Of which node only, when the token says where its bearer runs.
    pub node: Option<NodeId>,
}

/// How often a caller may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Calls per second that are never too many.
    pub per_second: NonZeroU32,
    /// Calls at once after a pause.
    pub burst: NonZeroU32,
}

/// Everybody who may call.
#[derive(Debug)]
pub struct Access {
    tokens: OpaqueTokens,
    issuers: Vec<Issuer>,
    files: Vec<PathBuf>,
}

/// Why a token is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}", self.name())]
pub enum Rejected {
    /// An opaque token that the file does not have.
    Unknown,
    /// No token of any kind, or one without a claim that every token has.
    Malformed,
    /// More than [`MAX_TOKEN_BYTES`].
    TooLong,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// It is valid for longer than its issuer's tokens may be.
    LivesTooLong,
    /// Of an issuer that the file does not have.
    WrongIssuer,
    /// For somebody else.
    WrongAudience,
    /// Signed with another key.
    WrongKey,
    /// Signed in a way that its key is not for, or not at all.
    WrongAlgorithm,
    /// Signed with a key that its issuer does not have.
    UnknownKey,
    /// Of an issuer whose keys could not be fetched yet.
    NoKeys,
    /// Genuine, and allowed nothing.
    NoPermission,
}

/// Everything that is wrong with an access file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the access file has mistakes: {}", self.mistakes.join("; "))]
pub struct AccessError {
    /// One sentence per mistake, each with its place.
    pub mistakes: Vec<String>,
}

impl Principal {
    /// Whoever reaches a listener that asks nobody: may do everything.
    pub fn local() -> Self {
        Self {
            id: Arc::from(Kind::Local.name()),
            kind: Kind::Local,
            token_id: Arc::from(""),
            ask: Some(Ask {
                clusters: Scope::everything(),
                tools: Globs::everything(),
                sql: true,
            }),
            write: Some(Write {
                clusters: Scope::everything(),
                node: None,
            }),
            rate: Rate {
                per_second: NonZeroU32::MAX,
                burst: NonZeroU32::MAX,
            },
            not_after: None,
        }
    }
}

impl Principal {
    /// Whoever was not let in: may do nothing.
    pub fn nobody() -> Self {
        Self {
            id: Arc::from("nobody"),
            kind: Kind::Unknown,
            ask: None,
            write: None,
            ..Self::local()
        }
    }

    /// Whether the caller may ask about all clusters.
    pub fn sees_everything(&self) -> bool {
        self.ask
            .as_ref()
            .is_some_and(|ask| ask.clusters.is_everything())
    }

    /// Whether the caller may ask about this cluster.
    pub fn may_see(&self, cluster: &ClusterId) -> bool {
        self.ask
            .as_ref()
            .is_some_and(|ask| ask.clusters.allows(cluster))
    }
}

impl Principal {
    /// Whether the caller asks about this cluster or sends for it: who sends for one knows that it is there.
    pub fn knows(&self, cluster: &ClusterId) -> bool {
        let sends = self.write.as_ref();
        self.may_see(cluster) || sends.is_some_and(|write| write.clusters.allows(cluster))
    }
}

impl Kind {
    /// The name that logs carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opaque => "opaque",
            Self::Jwt => "jwt",
            Self::ServiceAccount => "service_account",
            Self::Local => "local",
            Self::Unknown => "unknown",
        }
    }
}

impl Rate {
    /// What holds for callers of whom the file says nothing else: a dashboard stays below it.
    pub const USUAL: Self = Self {
        per_second: NonZeroU32::new(10).unwrap(),
        burst: NonZeroU32::new(20).unwrap(),
    };
}

impl Access {
    /// Reads the file, and reports all mistakes in it together. `read` gives the bytes of a file of keys; its path is as the
    /// access file writes it.
    pub fn parse(
        yaml: &str,
        read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<Self, AccessError> {
        file::parse(yaml, read)
    }

    /// The files of keys that it was made from, as the access file writes them.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whose token this is at the instant `now`. `published` has the keys of issuers that publish them.
    pub fn identify_with(
        &self,
        (token, now): (&str, Nanos),
        published: &Published,
    ) -> Result<Arc<Principal>, Rejected> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Rejected::TooLong);
        }
        if token.starts_with(mint::PREFIX) {
            return self.tokens.identify(token, now);
        }
        issuer::identify(&self.issuers, (token, now), published).map(Arc::new)
    }

    /// Where issuers publish their keys.
    pub fn key_sources(&self) -> impl Iterator<Item = &KeySource> {
        self.issuers.iter().filter_map(Issuer::source)
    }

    /// Where the keys are published that this token would be checked with, if they are.
    pub fn key_source_of(&self, token: &str) -> Option<&KeySource> {
        issuer::source_of(&self.issuers, token)
    }
}

impl Rejected {
    /// The name that the audit log carries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::LivesTooLong => "lives_too_long",
            Self::WrongIssuer => "wrong_issuer",
            Self::WrongAudience => "wrong_audience",
            Self::WrongKey => "wrong_key",
            Self::WrongAlgorithm => "wrong_algorithm",
            Self::UnknownKey => "unknown_key",
            Self::NoKeys => "no_keys",
            Self::NoPermission => "no_permission",
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl Access {
    /// Whose token this is where nobody publishes keys.
    pub fn identify(&self, token: &str, now: Nanos) -> Result<Arc<Principal>, Rejected> {
        self.identify_with((token, now), &Published::default())
    }
}

impl Coded for AccessError {
    fn code(&self) -> Code {
        Code::Invalid
    }
}

#[cfg(test)]
mod tests;
