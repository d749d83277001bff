//! Permissions, from the access file or from the claims of a token.

use std::str::FromStr;

use echo_core::pattern::{NoName, Pattern};
use serde::Deserialize;

use crate::claims::Claims;
use crate::scope::{Globs, Scope};
use crate::{QueryPermission, Rate, WritePermission};

/// Permissions of one entry of the file, or of one token.
#[derive(Debug, Clone)]
pub(super) struct Permissions {
    pub(super) query: Option<QueryPermission>,
    pub(super) write: Option<WritePermission>,
    pub(super) rate: Rate,
}

/// The claim `echo`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EchoClaim {
    clusters: Vec<String>,
    tools: Option<Vec<String>>,
    sql: bool,
    write: Vec<String>,
}

impl EchoClaim {
    /// Parses `scope` (RFC 8693, section 4.2), which has one list of clusters for queries and
    /// writes.
    fn from_scopes(scopes: &str) -> Self {
        let has = |name: &str| scopes.split(' ').any(|scope| scope == name);
        let named = scopes
            .split(' ')
            .filter_map(|scope| scope.strip_prefix("cluster:"));
        let clusters: Vec<String> = named.map(str::to_owned).collect();
        let only = |may: bool| if may { clusters.clone() } else { Vec::new() };
        Self {
            clusters: only(has("fleet:read")),
            tools: None,
            sql: has("fleet:sql"),
            write: only(has("fleet:write")),
        }
    }

    fn permissions(self, rate: Rate) -> Result<Permissions, NoName> {
        let clusters = Scope::from_patterns(patterns(&self.clusters)?);
        let tools = match self.tools {
            Some(tools) if tools.is_empty() => None,
            Some(tools) => Some(Globs::from_patterns(patterns(&tools)?)),
            None => Some(Globs::everything()),
        };
        let query = clusters
            .zip(tools)
            .map(|(clusters, tools)| QueryPermission {
                sql: self.sql && clusters.is_everything(),
                clusters,
                tools,
            });
        let write = Scope::from_patterns(patterns(&self.write)?).map(|clusters| WritePermission {
            clusters,
            node: None,
        });
        Ok(Permissions { query, write, rate })
    }
}

impl Permissions {
    /// Returns the permissions that a token claims, with this rate limit; `None` if it claims none
    /// that can be parsed.
    pub(super) fn from_claims(claims: &Claims, rate: Rate) -> Option<Self> {
        let claim = match &claims.echo {
            Some(claim) => EchoClaim::deserialize(claim).ok()?,
            None => EchoClaim::from_scopes(claims.scope.as_ref()?.as_str()?),
        };
        claim.permissions(rate).ok()
    }

    /// Returns true if anything is allowed.
    pub(super) const fn are_any(&self) -> bool {
        self.query.is_some() || self.write.is_some()
    }
}

fn patterns(names: &[String]) -> Result<Vec<Pattern>, NoName> {
    names.iter().map(|name| Pattern::from_str(name)).collect()
}
