//! The flags that say how Echo is encrypted, and who may call it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use echo_serve::tls::TlsFiles;

/// Size from which on the file of the audit is set aside, unless told otherwise.
const AUDIT_BYTES: u64 = 64 * 1024 * 1024;

/// How far plain text may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlainText {
    /// Not beyond this machine.
    #[value(alias = "true")]
    Loopback,
    /// Anywhere: something else encrypts it, such as a service mesh.
    Any,
}

/// Encryption and access.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Encryption and access")]
pub struct SecurityArgs {
    /// Certificate in PEM, followed by those that lead to its authority; read again when it changes
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TLS_CERT",
        requires = "tls_key"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_TLS_KEY",
        requires = "tls_cert"
    )]
    pub tls_key: Option<PathBuf>,

    /// Authorities, in PEM, of the certificates that agents have to show. The names in a certificate have to include the node
    /// that its agent sends for
    #[arg(
        long,
        value_name = "FILE",
        env = "FLEET_ECHO_CLIENT_CA",
        requires = "tls_cert"
    )]
    pub client_ca: Option<PathBuf>,

    /// Who may call, and what they may do (YAML; `fleet-echo token new` makes an entry); read again when it or a file that it
    /// names changes. Without it everybody who reaches Echo may do everything
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_ACCESS")]
    pub access: Option<PathBuf>,

    /// Let everybody do everything who reaches Echo, although others than this machine can
    #[arg(long, env = "FLEET_ECHO_INSECURE_NO_AUTH", conflicts_with = "access")]
    pub insecure_no_auth: bool,

    /// Where every attempt to ask is written down, one line of JSON each: a file, `-` for standard error, or `off`
    /// [default: audit.jsonl beside the database with --access, else off]
    #[arg(long, value_name = "FILE", env = "FLEET_ECHO_AUDIT_LOG")]
    pub audit_log: Option<PathBuf>,

    /// Size from which on the file of the audit is set aside; eight older ones are kept
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = AUDIT_BYTES,
        env = "FLEET_ECHO_AUDIT_MAX_BYTES"
    )]
    pub audit_max_bytes: u64,

    /// Serve without encryption: on loopback addresses only, or with `=any` on all, where something else encrypts
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
    /// Plain text on loopback addresses, for everybody on this machine.
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

    /// The files to encrypt with; nothing where plain text was asked for.
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
                "nobody is asked who he is: name those who may call with --access FILE, or say --insecure-no-auth to let \
                 everybody do everything"
                    .to_owned(),
            );
        }
    }

    /// Says what is missing for these listeners, by flag and address.
    pub fn check(&self, listeners: [(&str, SocketAddr); 3], wrong: &mut Vec<String>) {
        if self.tls_cert.is_none() && self.insecure_no_tls.is_none() {
            wrong.push(
                "no certificate: give --tls-cert and --tls-key (`fleet-echo dev-cert` makes them for a first try), or say \
                 --insecure-no-tls to serve on loopback in plain text"
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
                    "{flag} {address} can be reached from outside, which needs encryption: give --tls-cert and --tls-key, \
                     use 127.0.0.1 or [::1], or say --insecure-no-tls=any where something else encrypts"
                ));
            }
        }
    }
}
