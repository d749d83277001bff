//! Diagnosis of connections that fail.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::{CertificateError, InvalidMessage};
use ureq::Timeout;

use crate::cli::CliError;
use crate::cli::connection::DEFAULT_SERVER;
use crate::config::contexts::ContextFile;

/// Maximum time to find out what a listener speaks.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Advice for a listener that expects TLS.
const SPEAKS_TLS: &str = "it speaks TLS: use https://, and --tls-ca FILE if its certificate is from an authority of your own";

/// Maps a failed request of the blocking client.
pub(super) fn request_error(server: &str, timeout: Duration, error: ureq::Error) -> CliError {
    let reason = match error {
        ureq::Error::Timeout(Timeout::Connect) => "connection timed out".to_owned(),
        ureq::Error::Timeout(_) => {
            let server = server.to_owned();
            return CliError::Timeout { server, timeout };
        }
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            error.to_string()
        }
        error => {
            if let Some(problem) = scheme_problem(server, &error) {
                return unusable(server, problem);
            }
            match error {
                ureq::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            }
        }
    };
    unreachable(server, reason)
}

/// Maps a failed connection of the asynchronous client.
pub(super) fn connect_error(server: &str, error: &(dyn Error + 'static)) -> CliError {
    match tls_problem(error) {
        Some(problem) => unusable(server, problem),
        None => unreachable(server, error.to_string()),
    }
}

/// Maps a failed response of the asynchronous client. It finds out what the listener speaks, so it
/// may block for seconds.
pub(super) fn response_error(server: &str, error: &(dyn Error + 'static)) -> CliError {
    match scheme_problem(server, error) {
        Some(problem) => unusable(server, problem),
        None => unreachable(server, error.to_string()),
    }
}

/// Describes what is wrong with the scheme or the certificate; `None` if it is something else.
fn scheme_problem(server: &str, error: &(dyn Error + 'static)) -> Option<String> {
    tls_problem(error).or_else(|| speaks_tls(server).then(|| SPEAKS_TLS.to_owned()))
}

fn unusable(server: &str, problem: String) -> CliError {
    CliError::Unusable {
        server: server.to_owned(),
        problem,
    }
}

fn unreachable(server: &str, reason: String) -> CliError {
    let is_local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let advice = if is_local.iter().any(|local| server.starts_with(local)) {
        "start it with `fleet-echo serve --db PATH --insecure-no-tls`, or give another address with --server"
    } else {
        "check that `fleet-echo serve` runs there and listens at this address, or give another one with --server"
    };
    let advice = match unused_contexts(server) {
        Some(names) => format!(
            "no context is in use: choose one with `fleet-echo context use NAME` (known: {names}), or {advice}"
        ),
        None => advice.to_owned(),
    };
    CliError::Unreachable {
        server: server.to_owned(),
        reason,
        advice,
    }
}

/// Returns the names of the contexts, if there are any and the default server was queried because none
/// is in use.
fn unused_contexts(server: &str) -> Option<String> {
    if server != DEFAULT_SERVER {
        return None;
    }
    names_without_current(&ContextFile::load(ContextFile::path().ok()?).ok()?)
}

/// Returns the names of the contexts, if there are any and none is in use.
fn names_without_current(file: &ContextFile) -> Option<String> {
    let names = file.names();
    let is_unused = file.current().is_none() && !names.is_empty();
    is_unused.then(|| names.join(", "))
}

/// Describes an error of the TLS handshake; `None` if it has another cause.
fn tls_problem(error: &(dyn Error + 'static)) -> Option<String> {
    let problem = match find_tls_error(error)? {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not speak TLS: use http://, or give it a certificate with --tls-cert and --tls-key".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is issued by an unknown authority: give the certificate of the authority with --tls-ca FILE".to_owned()
        }
        error @ rustls::Error::InvalidCertificate(_) => {
            format!("{error}: give an address with --server that its certificate is valid for")
        }
        error => error.to_string(),
    };
    Some(problem)
}

/// Finds a TLS error in the sources of an error.
fn find_tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        let outer = match error.downcast_ref::<ureq::Error>() {
            Some(ureq::Error::Rustls(found)) => return Some(found),
            Some(ureq::Error::Io(inner)) => Some(inner),
            _ => error.downcast_ref::<io::Error>(),
        };
        let inner: Option<&(dyn Error + 'static)> = match outer.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
        next = inner;
    }
    None
}

/// Returns whether a listener answers a request in plain text with an alert of TLS.
fn speaks_tls(server: &str) -> bool {
    first_bytes(server).is_some_and(|bytes| matches!(bytes, [0x15, 3]))
}

/// Sends a request in plain text and returns the first bytes of the response.
fn first_bytes(server: &str) -> Option<[u8; 2]> {
    let authority = server.strip_prefix("http://")?.split('/').next()?;
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let address = authority.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: echo\r\n\r\n")
        .ok()?;
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::names_without_current;
    use crate::config::contexts::ContextFile;

    #[test]
    fn contexts_are_named_if_none_of_them_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ContextFile::load(folder.path().join("config.toml")).unwrap();
        assert_eq!(names_without_current(&file), None);
        for name in ["lab", "prod"] {
            let server = vec![("server", "http://127.0.0.1:9".to_owned())];
            file.set(name, server).unwrap();
        }
        assert_eq!(names_without_current(&file).as_deref(), Some("lab, prod"));
        file.make_current(Some("lab")).unwrap();
        assert_eq!(names_without_current(&file), None);
    }
}
