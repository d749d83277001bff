//! Flags for encryption, access and the audit log.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use echo_serve::tls::TlsFiles;

/// Default size at which the audit log is rotated.
const AUDIT_BYTES: u64 = 64 * 1024 * 1024;

/// Scope of plain-text connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlainText {
    /// Loopback addresses only.
    #[value(alias = "true")]
    Loopback,
    /// All addresses; something else encrypts, such as a service mesh.
    Any,
}

/// Encryption and access.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Encryption and access")]
pub struct SecurityArgs {
    /// Certificate chain in PEM, server certificate first; reloaded when it changes
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TLS_CERT",
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM; reloaded when it changes
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TLS_KEY",
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,

    /// CA certificates, in PEM, to verify client certificates of agents, which are then required.
    /// The names in a client certificate must include the node that its agent sends for
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_CLIENT_CA",
        requires = "tls_cert"
    )]
    pub client_ca: Option<PathBuf>,

    /// Access file: tokens, issuers and their permissions (YAML; `fleet-echo token new` creates an
    /// entry); reloaded when it or a file it refers to changes. Without it, every client that can
    /// connect has full access
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_ACCESS")]
    pub access: Option<PathBuf>,

    /// Serve without authentication although other hosts can connect: every client has full access
    #[arg(long, env = "FLEET_ECHO_INSECURE_NO_AUTH", conflicts_with = "access")]
    pub insecure_no_auth: bool,

    /// Audit log of all API requests as JSON lines: a file, `-` for standard error, or `off`
    /// [default: audit.jsonl in the directory of the database with --access, else off]
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_AUDIT_LOG")]
    pub audit_log: Option<PathBuf>,

    /// Size at which the audit log is rotated; eight rotated files are kept
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = AUDIT_BYTES,
        env = "FLEET_ECHO_AUDIT_MAX_BYTES"
    )]
    pub audit_max_bytes: u64,

    /// Serve without TLS: on loopback addresses only, or with `=any` on all addresses, where
    /// something else encrypts
    #[arg(
        long,
        value_name = "WHERE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "loopback",
        env = "FLEET_ECHO_INSECURE_NO_TLS",
        conflicts_with = "tls_cert"
    )]
    pub insecure_no_tls: Option<PlainText>,
}

impl SecurityArgs {
    /// Plain text on loopback addresses without authentication.
    pub const fn local() -> Self {
        Self {
            tls_cert: None,
            tls_key: None,
            client_ca: None,
            access: None,
            insecure_no_auth: false,
            audit_log: None,
            audit_max_bytes: AUDIT_BYTES,
            insecure_no_tls: Some(PlainText::Loopback),
        }
    }

    /// Returns the TLS files; `None` for plain text.
    pub fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.client_ca.clone(),
        })
    }

    fn check_access(&self, listeners: [(&str, SocketAddr); 3], wrong: &mut Vec<String>) {
        let is_local = listeners
            .iter()
            .all(|(_, address)| address.ip().is_loopback());
        if self.access.is_none() && !self.insecure_no_auth && !is_local {
            wrong.push(
                "other hosts can connect without authentication: give --access FILE, or --insecure-no-auth to give every client full access"
                    .to_owned(),
            );
        }
    }

    /// Appends the problems with these listeners (flag and address) to `wrong`.
    pub fn check(&self, listeners: [(&str, SocketAddr); 3], wrong: &mut Vec<String>) {
        if self.tls_cert.is_none() && self.insecure_no_tls.is_none() {
            wrong.push(
                "no certificate: give --tls-cert and --tls-key (`fleet-echo dev-cert` generates them for development), or --insecure-no-tls to serve plain text on loopback addresses"
                    .to_owned(),
            );
        }
        self.check_access(listeners, wrong);
        if self.insecure_no_tls != Some(PlainText::Loopback) {
            return;
        }
        for (flag, address) in listeners {
            if !address.ip().is_loopback() {
                wrong.push(format!(
                    "{flag} {address} is not a loopback address and needs TLS: give --tls-cert and --tls-key, listen on 127.0.0.1 or [::1], or give --insecure-no-tls=any if something else encrypts"
                ));
            }
        }
    }
}
