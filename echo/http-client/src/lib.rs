//! What the HTTP requests of Echo to other servers have in common: certificate authorities, secrets
//! in files, and limits.
//!
//! Files with authorities and secrets are read for each request, because they are rotated.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// A file of authorities or with a secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// It does not contain what it should.
    #[error("{} contains no {what}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Expected content.
        what: &'static str,
    },
}

/// Returns the certificate authorities for requests to the address: none without TLS, those of the
/// file in PEM, or those of the system.
pub fn authorities(
    url: &str,
    file: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    match file {
        _ if !url.starts_with("https://") => Ok(Vec::new()),
        Some(path) => in_pem(path),
        None => Ok(rustls_native_certs::load_native_certs().certs),
    }
}

/// Reads a token or another secret: printable ASCII without spaces, between optional white space.
pub fn secret(path: &Path) -> Result<String, FileError> {
    let text = String::from_utf8_lossy(&read(path)?).trim().to_owned();
    is_printable(&text).then_some(text).ok_or_else(|| {
        let (path, what) = (path.to_owned(), "secret in printable ASCII");
        FileError::Empty { path, what }
    })
}

/// Returns true for a text that can be sent in a header as a secret.
pub fn is_printable(secret: &str) -> bool {
    !secret.is_empty() && secret.chars().all(|c| matches!(c, '!'..='~'))
}

/// Returns the configuration of a client that trusts the authorities and ends each request after
/// the time. Statuses of failure are answers. Variables of the environment do not set a proxy.
pub fn config(
    authorities: &[CertificateDer<'static>],
    time: Duration,
) -> ConfigBuilder<AgentScope> {
    let roots: Vec<_> = authorities
        .iter()
        .map(|root| Certificate::from_der(root).to_owned())
        .collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(time))
        .proxy(None)
        .tls_config(tls.build())
}

fn in_pem(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(path)?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let roots = roots.ok().filter(|roots| !roots.is_empty());
    roots.ok_or_else(|| FileError::Empty {
        path: path.to_owned(),
        what: "certificate in PEM",
    })
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|source| FileError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn authorities_come_from_the_file_and_only_for_tls() {
        let certified = rcgen::generate_simple_self_signed(["echo.example".to_owned()]).unwrap();
        let pem = file(certified.cert.pem().as_bytes());
        let found = authorities("https://echo.example", Some(pem.path())).unwrap();
        assert_eq!(found, [certified.cert.der().clone()]);
        let without_tls = authorities("http://echo.example", Some(pem.path())).unwrap();
        assert_eq!(without_tls, []);
    }

    #[test]
    fn a_file_without_a_certificate_is_named() {
        let empty = file(b"no certificate");
        let error = authorities("https://echo.example", Some(empty.path())).unwrap_err();
        let expected = format!("{} contains no certificate in PEM", empty.path().display());
        assert_eq!(error.to_string(), expected);
        let missing = Path::new("/does/not/exist");
        let error = authorities("https://echo.example", Some(missing)).unwrap_err();
        assert_eq!(error.to_string(), "cannot read /does/not/exist");
    }

    #[test]
    fn a_secret_is_printable_ascii_between_white_space() {
        assert_eq!(secret(file(b" s3cret\n").path()).unwrap(), "s3cret");
        for unusable in [
            &b"\n"[..],
            b"two words",
            b"\xff\xfe",
            "geh\u{e4}im".as_bytes(),
        ] {
            assert!(secret(file(unusable).path()).is_err(), "{unusable:?}");
        }
    }
}
