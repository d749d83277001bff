//! The access file: YAML with `tokens`, a list of opaque tokens, and `issuers`, a list of trusted
//! token issuers.

use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use echo_core::fields::Fields;
use echo_core::pattern::{Pattern, checked_name};
use echo_core::units::Nanos;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_norway::Value;

use crate::mint::{self, Hash};
use crate::opaque::{OpaqueToken, OpaqueTokens};
use crate::permissions::Permissions;
use crate::scope::{Globs, Scope};
use crate::{Access, AccessError, Kind, Principal, QueryPermission, Rate, WritePermission};

mod issuers;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Parses the file.
pub(super) fn parse(
    yaml: &str,
    read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Access, AccessError> {
    // The parser's message contains line and column.
    let document: Value = serde_norway::from_str(yaml).map_err(|error| AccessError {
        mistakes: vec![error.to_string()],
    })?;
    let mut mistakes = Vec::new();
    let Some(mut top) = Fields::from_value("", document, &mut mistakes) else {
        return Err(AccessError { mistakes });
    };
    let tokens = top.list("tokens").unwrap_or_default();
    let issuers = top.list("issuers").unwrap_or_default();
    if tokens.is_empty() && issuers.is_empty() && top.mistakes().is_empty() {
        let why = "is missing or empty, and so is `issuers`: no caller would be allowed";
        top.mistake("tokens", why);
    }
    top.report_unknown_fields();
    let tokens = tokens
        .into_iter()
        .filter_map(|(place, entry)| {
            let token = read_token(&place, entry, &mut mistakes)?;
            Some((place, token))
        })
        .collect();
    let tokens = OpaqueTokens::new(tokens, &mut mistakes);
    let (issuers, files) = issuers::read_issuers(issuers, read, &mut mistakes);
    if mistakes.is_empty() {
        Ok(Access {
            tokens,
            issuers,
            files,
        })
    } else {
        Err(AccessError { mistakes })
    }
}

fn read_token(place: &str, entry: Value, mistakes: &mut Vec<String>) -> Option<OpaqueToken> {
    let mut fields = Fields::from_value(place, entry, mistakes)?;
    let id = name(&mut fields, "id");
    let hash = hash(&mut fields, "sha256");
    let not_before = instant(&mut fields, "not_before", Bound::Begin);
    let not_after = instant(&mut fields, "not_after", Bound::End);
    let permissions = permissions(&mut fields, Rate::DEFAULT);
    fields.require("id", id.is_none());
    fields.require("sha256", hash.is_none());
    if let (Some(begin), Some(end)) = (not_before, not_after)
        && end <= begin
    {
        fields.mistake("not_after", "is before not_before");
    }
    fields.report_unknown_fields();
    let (hash, permissions) = (hash?, permissions?);
    let principal = Principal {
        id: Arc::from(id?),
        kind: Kind::Opaque,
        token_id: Arc::from(mint::short(&hash)),
        query: permissions.query,
        write: permissions.write,
        rate: permissions.rate,
        not_after,
    };
    Some(OpaqueToken {
        hash,
        not_before,
        principal: Arc::new(principal),
    })
}

/// Kind of limit that an instant is: a date includes the whole day.
#[derive(Clone, Copy)]
enum Bound {
    Begin,
    End,
}

fn name(fields: &mut Fields<'_>, field: &str) -> Option<String> {
    let text = fields.text(field)?;
    if let Err(why) = checked_name(&text) {
        fields.mistake(field, &why.to_string());
        return None;
    }
    Some(text)
}

fn hash(fields: &mut Fields<'_>, field: &str) -> Option<Hash> {
    let hash = mint::unhex(&fields.text(field)?);
    if hash.is_none() {
        fields.mistake(field, "is not a SHA-256 of 64 hexadecimal digits");
    }
    hash
}

fn instant(fields: &mut Fields<'_>, field: &str, bound: Bound) -> Option<Nanos> {
    let text = fields.text(field)?;
    let at = |seconds: i64| Nanos::new(seconds.saturating_mul(NANOS_PER_SECOND));
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(at(instant.as_second()));
    }
    let Ok(day) = text.parse::<Date>() else {
        fields.mistake(
            field,
            "is neither a date such as 2027-01-31 nor a time such as 2027-01-31T12:00:00Z",
        );
        return None;
    };
    let day = match bound {
        Bound::Begin => day,
        Bound::End => day.tomorrow().unwrap_or(day),
    };
    Some(at(day.duration_since(Date::constant(1970, 1, 1)).as_secs()))
}

/// Parses `query`, `write` and `rate`; `None` if one of them is invalid. `default` is the rate
/// without `rate`.
fn permissions(fields: &mut Fields<'_>, default: Rate) -> Option<Permissions> {
    let before = fields.mistakes().len();
    let query = fields.nested("query").and_then(read_query);
    let write = fields.nested("write").and_then(read_write);
    let rate = rate(fields, default);
    let permissions = Permissions {
        query,
        write,
        rate: rate.unwrap_or(default),
    };
    if fields.mistakes().len() > before {
        return None;
    }
    if !permissions.are_any() {
        let why = "is missing, and so is `write`: nothing would be allowed";
        fields.mistake("query", why);
        return None;
    }
    Some(permissions)
}

fn rate(fields: &mut Fields<'_>, default: Rate) -> Option<Rate> {
    let rate = fields.nested("rate");
    rate.map_or(Some(default), |fields| read_rate(fields, default))
}

fn clusters(fields: &mut Fields<'_>) -> Option<Scope> {
    let clusters: Option<Vec<Pattern>> = fields.all_parsed("clusters");
    fields.require("clusters", clusters.is_none());
    Scope::from_patterns(clusters?)
}

fn positive(fields: &mut Fields<'_>, field: &str, default: NonZeroU32) -> Option<NonZeroU32> {
    let Some(value) = fields.take(field) else {
        return Some(default);
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.and_then(NonZeroU32::new);
    if number.is_none() {
        fields.mistake(field, "is not a whole number from 1 to 4294967295");
    }
    number
}

fn read_query(mut fields: Fields<'_>) -> Option<QueryPermission> {
    let clusters = clusters(&mut fields);
    let tools: Option<Vec<Pattern>> = fields.all_parsed("tools");
    let sql = fields.flag("sql").unwrap_or_default();
    if sql
        && clusters
            .as_ref()
            .is_some_and(|scope| !scope.is_everything())
    {
        fields.mistake(
            "sql",
            "needs clusters [\"*\"], because a statement sees the rows of all clusters",
        );
    }
    fields.report_unknown_fields();
    Some(QueryPermission {
        clusters: clusters?,
        tools: tools.map_or_else(Globs::everything, Globs::from_patterns),
        sql,
    })
}

fn read_write(mut fields: Fields<'_>) -> Option<WritePermission> {
    let clusters = clusters(&mut fields);
    fields.report_unknown_fields();
    Some(WritePermission {
        clusters: clusters?,
        node: None,
    })
}

fn read_rate(mut fields: Fields<'_>, default: Rate) -> Option<Rate> {
    let per_second = positive(&mut fields, "per_second", default.per_second);
    let burst = positive(&mut fields, "burst", default.burst);
    fields.report_unknown_fields();
    Some(Rate {
        per_second: per_second?,
        burst: burst?,
    })
}
