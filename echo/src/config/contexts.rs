//! File of contexts: servers with names, and which of them is the current one.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use toml_edit::{DocumentMut, Item, Table, TableLike, value};

/// Keys of a context, which are the ids of the flags that they replace.
const KEYS: [&str; 5] = ["server", "tls_ca", "token_file", "cluster", "shards"];

/// Keys whose values are files, relative to the folder of the configuration.
const FILES: [&str; 2] = ["tls_ca", "token_file"];

/// Errors of an account without a home folder that it can read: it has no contexts.
const NO_FILE: [ErrorKind; 3] = [
    ErrorKind::NotFound,
    ErrorKind::NotADirectory,
    ErrorKind::PermissionDenied,
];

/// Error of the file of contexts.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No variable says where the file is.
    #[error("no home folder: set FLEET_ECHO_CONFIG to the file of contexts")]
    NoHome,
    /// The file cannot be read or written.
    #[error("cannot use {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML, or has no table of contexts.
    #[error("{path} is not a file of contexts: {problem}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Problem, with its place.
        problem: String,
    },
    /// The context is not in the file.
    #[error("{path} has no context {name:?}: {known}")]
    Unknown {
        /// Its name.
        name: String,
        /// The file.
        path: PathBuf,
        /// What there is instead.
        known: String,
    },
    /// A server and a context are given.
    #[error("--server and --context are two servers: give one of them")]
    TwoServers,
    /// A new context has no server.
    #[error("a new context needs an address: fleet-echo context set {0} --server URL")]
    NoServer(String),
}

/// The file.
#[derive(Debug)]
pub struct ContextFile {
    path: PathBuf,
    document: DocumentMut,
}

impl ContextFile {
    /// Returns where the file is: `FLEET_ECHO_CONFIG`, or `fleet-echo/config.toml` in the folder for
    /// configurations of the user.
    #[expect(
        clippy::disallowed_methods,
        reason = "the variables are read before flags are known"
    )]
    pub fn path() -> Result<PathBuf, ContextError> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = variable("FLEET_ECHO_CONFIG") {
            return Ok(path.into());
        }
        let home = || Some(PathBuf::from(variable("HOME")?).join(".config"));
        let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        let folder = folder.ok_or(ContextError::NoHome)?;
        Ok(folder.join("fleet-echo/config.toml"))
    }

    /// Reads the file; one that is missing has no contexts.
    pub fn load(path: PathBuf) -> Result<Self, ContextError> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if NO_FILE.contains(&error.kind()) => String::new(),
            Err(source) => return Err(ContextError::Io { path, source }),
        };
        match text.parse::<DocumentMut>() {
            Ok(document) => Ok(Self { path, document }),
            Err(error) => Err(ContextError::Invalid {
                path,
                problem: error.to_string(),
            }),
        }
    }

    /// Writes the file; a failure half way leaves the old one.
    pub fn save(&self) -> Result<(), ContextError> {
        let failed = |source| ContextError::Io {
            path: self.path.clone(),
            source,
        };
        // A link stays one.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_new| self.path.clone());
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let mut written = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        let text = self.document.to_string();
        written.write_all(text.as_bytes()).map_err(failed)?;
        let kept = written.persist(&path);
        kept.map(drop).map_err(|error| failed(error.error))
    }

    /// Name of the current context.
    pub fn current(&self) -> Option<&str> {
        let current = self.document.get("current")?.as_str();
        current.filter(|name| !name.is_empty())
    }

    /// Names of all contexts, in the order of the file.
    pub fn names(&self) -> Vec<&str> {
        let contexts = self.document.get("contexts").and_then(Item::as_table_like);
        contexts.map_or_else(Vec::new, |all| all.iter().map(|(name, _)| name).collect())
    }

    /// Values of a context by the ids of their flags.
    pub fn values(&self, name: &str) -> Result<Vec<(&'static str, String)>, ContextError> {
        let context = self.context(name)?;
        let folder = self.path.parent().unwrap_or_else(|| Path::new(""));
        let values = KEYS.into_iter().filter_map(|key| {
            let found = context.get(key)?;
            let number = || Some(found.as_integer()?.to_string());
            let text = found.as_str().map(str::to_owned).or_else(number)?;
            let file = || folder.join(&text).to_string_lossy().into_owned();
            Some((key, if FILES.contains(&key) { file() } else { text }))
        });
        Ok(values.collect())
    }

    /// Makes a context the current one, or none.
    pub fn make_current(&mut self, name: Option<&str>) -> Result<(), ContextError> {
        if let Some(name) = name {
            self.context(name)?;
        }
        let name = value(name.unwrap_or_default());
        put(self.document.as_table_mut(), "current", name);
        Ok(())
    }

    /// Adds a context, or changes the given values of one.
    pub fn set(
        &mut self,
        name: &str,
        values: Vec<(&'static str, String)>,
    ) -> Result<(), ContextError> {
        let has_server = values.iter().any(|(key, _)| *key == "server");
        if !has_server && self.context(name).is_err() {
            return Err(ContextError::NoServer(name.to_owned()));
        }
        let path = self.path.clone();
        let contexts = self.contexts()?;
        let context = contexts
            .entry(name)
            .or_insert_with(|| Item::Table(Table::new()));
        let Some(context) = context.as_table_like_mut() else {
            let problem = format!("the context {name:?} is not a table");
            return Err(ContextError::Invalid { path, problem });
        };
        for (key, text) in values {
            let number = text.parse::<i64>().ok().filter(|_| key == "shards");
            put(context, key, number.map_or_else(|| value(text), value));
        }
        Ok(())
    }

    /// Removes a context.
    pub fn remove(&mut self, name: &str) -> Result<(), ContextError> {
        self.context(name)?;
        self.contexts()?.remove(name);
        if self.current() == Some(name) {
            self.make_current(None)?;
        }
        Ok(())
    }

    fn context(&self, name: &str) -> Result<&Item, ContextError> {
        let contexts = self.document.get("contexts");
        contexts
            .and_then(|all| all.get(name))
            .ok_or_else(|| ContextError::Unknown {
                name: name.to_owned(),
                path: self.path.clone(),
                known: match self.names().as_slice() {
                    [] => "there is none yet: fleet-echo context set NAME --server URL".to_owned(),
                    names => format!("the contexts are: {}", names.join(", ")),
                },
            })
    }

    fn contexts(&mut self) -> Result<&mut dyn TableLike, ContextError> {
        let path = self.path.clone();
        // It gets no header of its own in the file.
        let mut none = Table::new();
        none.set_implicit(true);
        let contexts = self.document.entry("contexts").or_insert(Item::Table(none));
        contexts
            .as_table_like_mut()
            .ok_or_else(|| ContextError::Invalid {
                path,
                problem: "`contexts` is not a table".to_owned(),
            })
    }
}

/// Changes a value; comments before and after it stay.
fn put(table: &mut dyn TableLike, key: &str, new: Item) {
    match (table.get_mut(key).and_then(Item::as_value_mut), new) {
        (Some(known), Item::Value(mut new)) => {
            *new.decor_mut() = known.decor().clone();
            *known = new;
        }
        (_, new) => drop(table.insert(key, new)),
    }
}

#[cfg(test)]
mod tests;
