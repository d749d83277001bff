//! Bearer token that is read from its file for every request: the agent's token for the collector,
//! or the one that scrapers of the agent's metrics must send.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use tonic::metadata::{Ascii, MetadataValue};

/// Maximum size of a token file.
const MAX_BYTES: u64 = 16 * 1024;

/// Error of reading a token. No message includes the file's content.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{flag}: cannot read {path}: {source}; use a file that the agent can read")]
    Unreadable {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{flag}: {path} is empty; write a token to it")]
    Empty {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
    },
    /// The file holds something other than a token.
    #[error(
        "{flag}: {path} does not contain a token: expected one line of at most 16 KiB of ASCII without spaces or \
         control characters"
    )]
    NoToken {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
    },
}

/// Token and the file that it is read from.
pub struct Token {
    flag: &'static str,
    path: PathBuf,
    last: Mutex<LastToken>,
}

/// Last token that was read from the file.
struct LastToken {
    header: MetadataValue<Ascii>,
    is_error_logged: bool,
}

impl Token {
    /// Reads the token for the first time; `flag` names the file in errors.
    pub fn open(flag: &'static str, path: &Path) -> Result<Self, TokenError> {
        let last = LastToken {
            header: read(flag, path)?,
            is_error_logged: false,
        };
        Ok(Self {
            flag,
            path: path.to_owned(),
            last: Mutex::new(last),
        })
    }

    /// Returns the current value of `authorization`. Tokens are replaced while agents run, not
    /// always atomically: while the file holds no token, the last one stays in use.
    pub fn header(&self) -> MetadataValue<Ascii> {
        // Reading a short local file costs less than checking whether it has changed.
        let read = read(self.flag, &self.path);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(header) => {
                last.is_error_logged = false;
                last.header = header;
            }
            Err(error) => {
                if !std::mem::replace(&mut last.is_error_logged, true) {
                    tracing::warn!("using the last valid token: {error}");
                }
            }
        }
        last.header.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut token = f.debug_struct("Token");
        token.field("path", &self.path).finish_non_exhaustive()
    }
}

fn read(flag: &'static str, file: &Path) -> Result<MetadataValue<Ascii>, TokenError> {
    let path = file.display().to_string();
    let mut text = Vec::new();
    File::open(file)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text))
        .map_err(|source| TokenError::Unreadable {
            flag,
            path: path.clone(),
            source,
        })?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(TokenError::Empty { flag, path });
    }
    let is_short = text.len() as u64 <= MAX_BYTES;
    let header = std::str::from_utf8(token)
        .ok()
        .filter(|token| is_short && token.bytes().all(|byte| byte.is_ascii_graphic()))
        .and_then(|token| format!("Bearer {token}").parse().ok());
    let mut header: MetadataValue<Ascii> = header.ok_or(TokenError::NoToken { flag, path })?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn the_line_ending_is_not_part_of_the_token() {
        let (_dir, path) = file(b"abc.def\r\n");
        let header = Token::open("--token-file", &path).unwrap().header();
        assert_eq!(header.to_str().unwrap(), "Bearer abc.def");
        assert!(header.is_sensitive());
    }

    #[test]
    fn an_invalid_file_is_refused_without_repeating_its_content() {
        let long = "a".repeat(17_000);
        for (content, expected) in [
            (&b" \n"[..], "is empty"),
            (b"two words", "does not contain a token"),
            (b"two\nlines", "does not contain a token"),
            (b"bell\x07", "does not contain a token"),
            ("gr\u{fc}n".as_bytes(), "does not contain a token"),
            (long.as_bytes(), "does not contain a token"),
        ] {
            let (_dir, path) = file(content);
            let error = Token::open("--token-file", &path).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
            assert!(!error.contains("two") && !error.contains("bell"), "{error}");
        }
        let error = Token::open("--token-file", Path::new("/no/such/file")).unwrap_err();
        assert!(matches!(error, TokenError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_new_token_is_used_as_soon_as_the_file_contains_it() {
        let (_dir, path) = file(b"old");
        let token = Token::open("--token-file", &path).unwrap();
        fs::write(&path, "new").unwrap();
        assert_eq!(token.header().to_str().unwrap(), "Bearer new");
    }

    #[test]
    fn while_the_file_contains_no_token_the_last_one_is_used() {
        let (_dir, path) = file(b"old");
        let token = Token::open("--token-file", &path).unwrap();
        for missing in [true, false] {
            if missing {
                fs::remove_file(&path).unwrap();
            } else {
                fs::write(&path, "").unwrap();
            }
            assert_eq!(token.header().to_str().unwrap(), "Bearer old");
        }
    }

    #[test]
    fn debug_output_does_not_contain_the_token() {
        let (_dir, path) = file(b"hush");
        let printed = format!("{:?}", Token::open("--token-file", &path).unwrap());
        assert!(!printed.contains("hush"), "{printed}");
    }
}
