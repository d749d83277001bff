//! The `issuers` section of the access file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use echo_core::fields::Fields;
use echo_core::pattern::Pattern;
use serde_norway::{Mapping, Value};

use super::{permissions, rate};
use crate::issuer::{Issuer, KeyOrigin, Subjects};
use crate::keys::Keys;
use crate::permissions::Permissions;
use crate::published::{KeySource, KeyUrl};
use crate::{Kind, Rate};

/// Longest lifetime of a token if the file sets none.
const DEFAULT_MAX_AGE: Duration = Duration::from_hours(24);

/// Parses keys of one format.
type ReadKeys = fn(&[u8]) -> Result<Keys, String>;

/// Reads a file.
type ReadFile<'a> = dyn Fn(&Path) -> io::Result<Vec<u8>> + 'a;

/// Key formats, by the field that names the file.
const KEY_FIELDS: [(&str, ReadKeys); 3] = [
    ("keys", Keys::set),
    ("secret", Keys::secret),
    ("public_key", Keys::public_key),
];

/// Parses the issuers. Returns them with the paths of their key files.
pub(super) fn read_issuers(
    entries: Vec<(String, Value)>,
    read: &ReadFile<'_>,
    mistakes: &mut Vec<String>,
) -> (Vec<Issuer>, Vec<PathBuf>) {
    let mut issuers: Vec<Issuer> = Vec::new();
    let mut files = Vec::new();
    for (path, entry) in entries {
        let Some(fields) = Fields::from_value(&path, entry, mistakes) else {
            continue;
        };
        let Some((issuer, file)) = read_issuer(fields, read) else {
            continue;
        };
        if issuers.iter().any(|known| known.name == issuer.name) {
            mistakes.push(format!("{path}.issuer: is a duplicate"));
        }
        issuers.push(issuer);
        files.extend(file);
    }
    (issuers, files)
}

fn read_issuer(mut fields: Fields<'_>, read: &ReadFile<'_>) -> Option<(Issuer, Option<PathBuf>)> {
    let name = fields.text("issuer");
    let audiences = one_or_several(&mut fields, "audience");
    let keys = keys(&mut fields, name.as_deref().unwrap_or_default(), read);
    let max_age = length(&mut fields, "max_age", DEFAULT_MAX_AGE);
    let kind = kind(&mut fields, "kind");
    let rate = rate(&mut fields, Rate::DEFAULT);
    let subjects = subjects(&mut fields, "subjects", rate.unwrap_or(Rate::DEFAULT));
    fields.require("issuer", name.is_none());
    fields.require("audience", audiences.is_none());
    if kind == Some(Kind::ServiceAccount) && subjects.as_ref().is_some_and(Subjects::is_empty) {
        let why = "is missing: Kubernetes tokens contain no permissions";
        fields.mistake("subjects", why);
    }
    fields.report_unknown_fields();
    let (keys, file) = keys?;
    let issuer = Issuer {
        name: name?,
        audiences: audiences?,
        keys,
        max_age: max_age?,
        kind: kind?,
        subjects: subjects?,
        rate: rate?,
    };
    Some((issuer, file))
}

fn one_or_several(fields: &mut Fields<'_>, field: &str) -> Option<Vec<String>> {
    match fields.take(field)? {
        Value::String(one) if !one.trim().is_empty() => Some(vec![one]),
        Value::Sequence(several) if !several.is_empty() => {
            let texts = several.iter().map(|text| text.as_str().map(str::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            if texts.is_none() {
                fields.mistake(field, "is not a list of texts");
            }
            texts
        }
        _ => {
            fields.mistake(field, "is neither a text nor a list of texts");
            None
        }
    }
}

/// Parses the keys from the one file or URL given. Returns the path with them if it is a file.
fn keys(
    fields: &mut Fields<'_>,
    issuer: &str,
    read: &ReadFile<'_>,
) -> Option<(KeyOrigin, Option<PathBuf>)> {
    let before = fields.mistakes().len();
    let mut named: Vec<(&str, ReadKeys, PathBuf)> = Vec::new();
    for (field, reader) in KEY_FIELDS {
        if let Some(path) = fields.text(field) {
            named.push((field, reader, PathBuf::from(path)));
        }
    }
    let url: Option<KeyUrl> = fields.parsed("jwks_url");
    let of_url = ["jwks_ca", "jwks_token"].map(|field| readable(fields, field, read));
    if fields.mistakes().len() > before {
        return None;
    }
    match (named.as_slice(), url, of_url) {
        ([(field, reader, path)], None, [None, None]) => {
            let keys = read(path)
                .map_err(|error| format!("cannot be read: {error}"))
                .and_then(|bytes| reader(&bytes));
            match keys {
                Ok(keys) => Some((KeyOrigin::File(keys), Some(path.clone()))),
                Err(why) => {
                    fields.mistake(field, &format!("{} {why}", path.display()));
                    None
                }
            }
        }
        ([], Some(url), [ca, token]) => {
            let issuer = issuer.to_owned();
            let source = KeySource {
                issuer,
                url,
                ca,
                token,
            };
            Some((KeyOrigin::Url(source), None))
        }
        _ => {
            let why = "give exactly one of `keys`, `secret`, `public_key` and `jwks_url` (with `jwks_ca` and `jwks_token`)";
            fields.mistake("keys", why);
            None
        }
    }
}

/// Path of a file that is read on each use; checks that it can be read now.
fn readable(fields: &mut Fields<'_>, field: &str, read: &ReadFile<'_>) -> Option<PathBuf> {
    let path = PathBuf::from(fields.text(field)?);
    if let Err(error) = read(&path) {
        fields.mistake(
            field,
            &format!("{} cannot be read: {error}", path.display()),
        );
    }
    Some(path)
}

fn length(fields: &mut Fields<'_>, field: &str, default: Duration) -> Option<Duration> {
    let Some(value) = fields.take(field) else {
        return Some(default);
    };
    let length = value
        .as_str()
        .and_then(|text| text.parse::<jiff::SignedDuration>().ok())
        .and_then(|length| Duration::try_from(length).ok())
        .filter(|length| !length.is_zero());
    if length.is_none() {
        fields.mistake(field, "is not a duration such as 1h or 30m");
    }
    length
}

fn kind(fields: &mut Fields<'_>, field: &str) -> Option<Kind> {
    let Some(value) = fields.take(field) else {
        return Some(Kind::Jwt);
    };
    let named = [Kind::Jwt, Kind::ServiceAccount]
        .into_iter()
        .find(|kind| value.as_str() == Some(kind.name()));
    if named.is_none() {
        fields.mistake(field, "is neither jwt nor service_account");
    }
    named
}

fn subjects(fields: &mut Fields<'_>, field: &str, default: Rate) -> Option<Subjects> {
    let mapping = match fields.take(field) {
        None => Mapping::new(),
        Some(Value::Mapping(mapping)) => mapping,
        Some(_) => {
            fields.mistake(field, "is not a mapping of subjects");
            return None;
        }
    };
    let path = fields.path(field);
    let mut subjects = Vec::new();
    for (subject, entry) in mapping {
        let subject = subject.as_str().unwrap_or_default();
        let Ok(pattern) = subject.parse::<Pattern>() else {
            fields.mistake(field, "has a subject that is not a valid name");
            continue;
        };
        let path = format!("{path}[{subject:?}]");
        let permissions = read_subject(&path, entry, default, fields.mistakes());
        subjects.extend(permissions.map(|permissions| (pattern, permissions)));
    }
    Some(Subjects::new(subjects))
}

fn read_subject(
    path: &str,
    entry: Value,
    default: Rate,
    mistakes: &mut Vec<String>,
) -> Option<Permissions> {
    let mut fields = Fields::from_value(path, entry, mistakes)?;
    let permissions = permissions(&mut fields, default);
    fields.report_unknown_fields();
    permissions
}
