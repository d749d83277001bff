//! A bearer token that is read from its file again for every request: the one that an agent shows to the collector, or the one
//! that it asks of whoever reads its metrics.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use tonic::metadata::{Ascii, MetadataValue};

/// Longest token; what is longer is some other file.
const MAX_BYTES: u64 = 16 * 1024;

/// Why a file gives no token. No message repeats what is in the file.
#[derive(Debug, Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("{flag} {path} cannot be read: {source}; give a file that the agent may read")]
    Unreadable {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{flag} {path} is empty; put a token into it")]
    Empty {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
    },
    /// It holds something else.
    #[error(
        "{flag} {path} holds no token: a token is one line of at most 16 KiB of ASCII, without spaces and \
         control characters"
    )]
    NoToken {
        /// The flag that names the file.
        flag: &'static str,
        /// The file.
        path: String,
    },
}

/// A token and the file that it is read from.
pub struct Token {
    flag: &'static str,
    path: PathBuf,
    last: Mutex<Last>,
}

/// The last token that the file held.
struct Last {
    header: MetadataValue<Ascii>,
    has_complained: bool,
}

impl Token {
    /// Reads the token for the first time; `flag` names the file in errors.
    pub fn open(flag: &'static str, path: &Path) -> Result<Self, TokenError> {
        let last = Last {
            header: read(flag, path)?,
            has_complained: false,
        };
        Ok(Self {
            flag,
            path: path.to_owned(),
            last: Mutex::new(last),
        })
    }

    /// The value of `authorization` now. Tokens are replaced while agents run, and not everybody does it in one
    /// step: while the file holds none, the last one counts.
    pub fn header(&self) -> MetadataValue<Ascii> {
        // A short local file: reading it costs less than finding out whether it has changed.
        let read = read(self.flag, &self.path);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(header) => {
                last.has_complained = false;
                last.header = header;
            }
            Err(error) => {
                if !std::mem::replace(&mut last.has_complained, true) {
                    tracing::warn!("the last token still counts: {error}");
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
    fn the_end_of_the_line_is_no_part_of_a_token() {
        let (_dir, path) = file(b"abc.def\r\n");
        let header = Token::open("--token-file", &path).unwrap().header();
        assert_eq!(header.to_str().unwrap(), "Bearer abc.def");
        assert!(header.is_sensitive());
    }

    #[test]
    fn a_file_without_a_token_is_refused_in_one_line_that_does_not_repeat_it() {
        let long = "a".repeat(17_000);
        for (content, said) in [
            (&b" \n"[..], "is empty"),
            (b"two words", "holds no token"),
            (b"two\nlines", "holds no token"),
            (b"bell\x07", "holds no token"),
            ("gr\u{fc}n".as_bytes(), "holds no token"),
            (long.as_bytes(), "holds no token"),
        ] {
            let (_dir, path) = file(content);
            let error = Token::open("--token-file", &path).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
            assert!(!error.contains("two") && !error.contains("bell"), "{error}");
        }
        let error = Token::open("--token-file", Path::new("/no/such/file")).unwrap_err();
        assert!(matches!(error, TokenError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_new_token_is_sent_as_soon_as_the_file_holds_it() {
        let (_dir, path) = file(b"old");
        let token = Token::open("--token-file", &path).unwrap();
        fs::write(&path, "new").unwrap();
        assert_eq!(token.header().to_str().unwrap(), "Bearer new");
    }

    #[test]
    fn while_the_file_holds_no_token_the_last_one_is_sent() {
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
    fn what_is_printed_for_debugging_holds_no_token() {
        let (_dir, path) = file(b"hush");
        let printed = format!("{:?}", Token::open("--token-file", &path).unwrap());
        assert!(!printed.contains("hush"), "{printed}");
    }
}
