//! Names and validity of a certificate.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Names and validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    names: Vec<String>,
    not_after_s: i64,
}

impl Certificate {
    /// Parses a certificate; `None` if it cannot be parsed.
    pub fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let alternatives = certificate.subject_alternative_name().ok()?;
        let alternatives = alternatives.map(|extension| &extension.value.general_names);
        let mut names: Vec<String> = alternatives
            .into_iter()
            .flatten()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) | GeneralName::URI(name) => Some((*name).to_owned()),
                _ => None,
            })
            .collect();
        if names.is_empty() {
            let common = certificate.subject().iter_common_name();
            names.extend(common.filter_map(|name| Some(name.as_str().ok()?.to_owned())));
        }
        Some(Self {
            names,
            not_after_s: certificate.validity().not_after.timestamp(),
        })
    }

    /// Returns the DNS names and URIs; without any, the common name.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the last second of validity, since 1970.
    pub const fn not_after_s(&self) -> i64 {
        self.not_after_s
    }

    /// Returns whether the certificate is for this host; `*` matches one label.
    pub fn is_for(&self, host: &str) -> bool {
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            None => name.eq_ignore_ascii_case(host),
            Some(rest) => host
                .split_once('.')
                .is_some_and(|(_, of_host)| of_host.eq_ignore_ascii_case(rest)),
        })
    }
}
