//! Where a lake is, and the credentials for it. They are read from files at each attempt to connect,
//! so that they can be replaced while Echo runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LakeError;

/// Prefix of a catalog.
const DUCKLAKE: &str = "ducklake:";

/// Prefix of a catalog in `PostgreSQL`.
const POSTGRES: &str = "postgres:";

/// Prefix of data in an object store.
const S3: &str = "s3://";

/// Parameters of a connection to `PostgreSQL`, unless the catalog names them: a network that drops
/// packets must not block the committer for hours.
const TIMEOUTS: [(&str, &str); 2] = [("connect_timeout", "10"), ("tcp_user_timeout", "30000")];

/// Text that replaces credentials.
const HIDDEN: &str = "(hidden)";

/// Location of a lake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LakeConfig {
    /// The catalog.
    pub catalog: CatalogSource,
    /// Folder or `s3://bucket/prefix` of the Parquet files.
    pub data: String,
    /// File with the keys of the object store.
    pub keys: Option<PathBuf>,
    /// Folder of the extensions of the engine.
    pub extensions: PathBuf,
    /// Folder for temporary files of the engine; none are written if absent.
    pub scratch: Option<PathBuf>,
    /// Memory limit of the engine, bytes.
    pub memory_bytes: u64,
}

/// The catalog, or the file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogSource {
    /// `ducklake:postgres:dbname=lake host=db`, or `ducklake:FILE`.
    Text(String),
    /// File with such a line, since it may hold a password.
    File(PathBuf),
}

/// A catalog without its prefix.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Catalog {
    /// Connection string of `PostgreSQL`.
    Postgres(String),
    /// Path of a database file.
    File(String),
}

/// Keys of an object store.
#[derive(Default, Clone, PartialEq, Eq)]
pub(crate) struct Keys(Vec<(&'static str, String)>);

/// Strings that must not appear in messages.
#[derive(Default)]
pub(crate) struct Secrets(Vec<String>);

impl LakeConfig {
    /// Validates what can be validated without connecting, and reports each problem.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if let CatalogSource::Text(text) = &self.catalog
            && let Err(error) = Catalog::parse(text)
        {
            wrong.push(error.to_string());
        }
        if self.data.trim().is_empty() {
            wrong.push("--lake-data must name a folder or s3://BUCKET/PREFIX".to_owned());
        }
        if self.data.starts_with(S3) && self.keys.is_none() {
            wrong.push("--lake-data in an object store requires --lake-s3-key-file".to_owned());
        }
        wrong
    }

    /// Returns true if the data is in an object store.
    pub(crate) fn is_remote(&self) -> bool {
        self.data.starts_with(S3)
    }

    /// Reads the catalog.
    pub(crate) fn catalog(&self) -> Result<Catalog, LakeError> {
        match &self.catalog {
            CatalogSource::Text(text) => Catalog::parse(text),
            CatalogSource::File(path) => Catalog::parse(read(path)?.trim()),
        }
    }

    /// Reads the keys of the object store.
    pub(crate) fn keys(&self) -> Result<Keys, LakeError> {
        match &self.keys {
            None => Ok(Keys::default()),
            Some(path) => Keys::parse(&read(path)?),
        }
    }

    /// Returns the location of the data as the engine expects it; creates the folder.
    pub(crate) fn data_path(&self) -> Result<String, LakeError> {
        if self.is_remote() {
            return Ok(format!("{}/", self.data.trim_end_matches('/')));
        }
        let path = Path::new(&self.data);
        let failed = |source| LakeError::File {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        Ok(format!("{}/", path.display()))
    }
}

impl Catalog {
    /// Parses `ducklake:postgres:...` or `ducklake:FILE`.
    fn parse(text: &str) -> Result<Self, LakeError> {
        let invalid = || {
            LakeError::Setting(
                "the lake must have the form `ducklake:postgres:dbname=NAME host=HOST` or ducklake:FILE"
                    .to_owned(),
            )
        };
        let rest = text.strip_prefix(DUCKLAKE).ok_or_else(invalid)?;
        let catalog = match rest.strip_prefix(POSTGRES) {
            Some(connection) => Self::Postgres(connection.trim().to_owned()),
            // Other engines would need extensions that are not shipped.
            None if ["mysql:", "sqlite:"]
                .iter()
                .any(|other| rest.starts_with(other)) =>
            {
                return Err(invalid());
            }
            None => Self::File(rest.to_owned()),
        };
        match &catalog {
            Self::Postgres(text) | Self::File(text) if text.is_empty() => Err(invalid()),
            _ => Ok(catalog),
        }
    }

    /// Returns the name for the engine; `PostgreSQL` shows `application` as the name of the client.
    pub(crate) fn address(&self, application: &str) -> String {
        match self {
            Self::File(path) => format!("{DUCKLAKE}{path}"),
            Self::Postgres(connection) => {
                let is_url = connection.contains("://");
                let mut address = format!("{DUCKLAKE}{POSTGRES}{connection}");
                let named = [("application_name", application)];
                for (name, value) in TIMEOUTS.into_iter().chain(named) {
                    if connection.contains(&format!("{name}=")) {
                        continue;
                    }
                    let separator = match (is_url, address.contains('?')) {
                        (false, _) => ' ',
                        (true, false) => '?',
                        (true, true) => '&',
                    };
                    address = format!("{address}{separator}{name}={value}");
                }
                address
            }
        }
    }
}

impl Keys {
    /// Parses lines such as `AWS_ACCESS_KEY_ID=...`, as the tools of object stores use them.
    fn parse(text: &str) -> Result<Self, LakeError> {
        let mut keys = Vec::new();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let value = value.trim().trim_matches('"').to_owned();
            match name.trim() {
                "AWS_ACCESS_KEY_ID" => keys.push(("KEY_ID", value)),
                "AWS_SECRET_ACCESS_KEY" => keys.push(("SECRET", value)),
                "AWS_SESSION_TOKEN" => keys.push(("SESSION_TOKEN", value)),
                "AWS_REGION" => keys.push(("REGION", value)),
                "AWS_ENDPOINT_URL" => keys.extend(endpoint(&value)),
                other => {
                    return Err(LakeError::Setting(format!(
                        "the key file of the lake has an unknown name {other:?}: expected AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_ENDPOINT_URL"
                    )));
                }
            }
        }
        Ok(Self(keys))
    }

    /// Returns the statement that gives them to the engine, for data below `scope`.
    pub(crate) fn create(&self, scope: &str) -> String {
        let mut secret = format!("CREATE SECRET lake_keys (TYPE s3, SCOPE {}", quoted(scope));
        for (name, value) in &self.0 {
            secret.extend([", ", name, " ", &quoted(value)]);
        }
        secret.push(')');
        secret
    }
}

/// Returns the settings of an endpoint other than that of Amazon: `MinIO` and others have one
/// address for all buckets.
fn endpoint(url: &str) -> [(&'static str, String); 3] {
    let (is_plain, host) = match url.split_once("://") {
        Some(("http", host)) => (true, host),
        Some((_, host)) => (false, host),
        None => (false, url),
    };
    [
        ("ENDPOINT", host.trim_end_matches('/').to_owned()),
        ("USE_SSL", (!is_plain).to_string()),
        ("URL_STYLE", "path".to_owned()),
    ]
}

impl Secrets {
    /// Credentials of a catalog and of an object store.
    pub(crate) fn new(catalog: &Catalog, keys: &Keys) -> Self {
        let mut secrets = Vec::new();
        if let Catalog::Postgres(connection) = catalog {
            secrets.push(connection.clone());
            let words = connection.split_whitespace();
            let passwords = words.filter_map(|word| word.strip_prefix("password="));
            secrets.extend(passwords.map(|password| password.trim_matches('\'').to_owned()));
            let user = connection.split_once("://");
            let user = user.and_then(|(_, rest)| rest.rsplit_once('@'));
            secrets.extend(user.map(|(user, _)| user.to_owned()));
        }
        let hidden = ["SECRET", "SESSION_TOKEN"];
        let keys = keys.0.iter().filter(|(name, _)| hidden.contains(name));
        secrets.extend(keys.map(|(_, value)| value.clone()));
        secrets.retain(|secret| !secret.is_empty());
        // A longer one may contain a shorter one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// Returns the texts.
    pub(crate) fn into_texts(self) -> Vec<String> {
        self.0
    }

    /// Returns a message without credentials.
    pub(crate) fn hide(&self, message: &str) -> String {
        let mut message = message.to_owned();
        for secret in &self.0 {
            message = message.replace(secret, HIDDEN);
        }
        message
    }
}

/// Returns a string literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn read(path: &Path) -> Result<String, LakeError> {
    fs::read_to_string(path).map_err(|source| LakeError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::{Catalog, Keys, LakeError, Secrets};

    fn keys(text: &str) -> Result<String, LakeError> {
        Keys::parse(text).map(|keys| keys.create("s3://b/"))
    }

    #[test]
    fn a_catalog_is_postgres_or_a_file() {
        for (text, address) in [
            (
                "ducklake:postgres:dbname=lake host=db",
                "ducklake:postgres:dbname=lake host=db connect_timeout=10 tcp_user_timeout=30000 application_name=echo",
            ),
            (
                "ducklake:postgres:postgresql://u:p@db/lake?connect_timeout=3",
                "ducklake:postgres:postgresql://u:p@db/lake?connect_timeout=3&tcp_user_timeout=30000&application_name=echo",
            ),
            ("ducklake:/var/lake.ducklake", "ducklake:/var/lake.ducklake"),
        ] {
            let parsed = Catalog::parse(text).unwrap();
            assert_eq!(parsed.address("echo"), address);
        }
        for wrong in [
            "",
            "postgres:dbname=x",
            "ducklake:",
            "ducklake:sqlite:x",
            "ducklake:postgres:",
        ] {
            assert!(Catalog::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_lines_as_other_tools_have_them() {
        let text = "# MinIO\nAWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=\"it's\"\nAWS_ENDPOINT_URL=http://minio:9000/\n";
        assert_eq!(
            keys(text).unwrap(),
            "CREATE SECRET lake_keys (TYPE s3, SCOPE 's3://b/', KEY_ID 'a', SECRET 'it''s', ENDPOINT 'minio:9000', USE_SSL 'false', URL_STYLE 'path')"
        );
        let error = keys("PASSWORD=x").unwrap_err().to_string();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    }

    #[test]
    fn messages_contain_no_credentials() {
        let parsed = Keys::parse("AWS_SECRET_ACCESS_KEY=s3cr3t").unwrap();
        for text in [
            "ducklake:postgres:dbname=lake password='pa55' host=db",
            "ducklake:postgres:postgresql://echo:pa55@db/lake",
        ] {
            let catalog = Catalog::parse(text).unwrap();
            let secrets = Secrets::new(&catalog, &parsed);
            let message = format!(
                "cannot open {}: pa55, echo:pa55@db, s3cr3t",
                catalog.address("echo")
            );
            let hidden = secrets.hide(&message);
            assert!(!hidden.contains("s3cr3t"), "{hidden}");
            assert!(!hidden.contains("echo:pa55"), "{hidden}");
        }
    }
}
