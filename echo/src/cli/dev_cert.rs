//! `fleet-echo dev-cert`: a CA and certificates for development and tests. In production, use
//! certificates of a CA that the fleet already trusts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::cli::CliError;

/// Generates a CA, a server certificate and client certificates for agents.
#[derive(Debug, Clone, Args)]
pub struct DevCertArgs {
    /// Output directory; created if missing
    #[arg(
        long,
        value_name = "DIR",
        default_value = "tls",
        env = "FLEET_ECHO_DEV_CERT_DIR"
    )]
    pub dir: PathBuf,
    /// Additional host name or address of the server, besides localhost and the loopback addresses.
    /// Can be repeated
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Node whose agent gets a client certificate. Can be repeated
    #[arg(long = "agent", value_name = "NODE")]
    pub agents: Vec<String>,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

/// The CA. Its key is not stored, so it cannot sign later.
type Authority = CertifiedIssuer<'static, KeyPair>;

/// Writes the files and prints how to use them.
pub fn run(args: &DevCertArgs, out: &mut dyn Write) -> Result<(), CliError> {
    fs::create_dir_all(&args.dir)?;
    let authority = authority().map_err(generation_error)?;
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let own: Vec<String> = own.into_iter().chain(args.names.clone()).collect();
    let mut files = vec![("ca.pem".to_owned(), authority.pem(), false)];
    let (cert, key) = issue(&authority, own, ExtendedKeyUsagePurpose::ServerAuth)?;
    files.push(("cert.pem".to_owned(), cert, false));
    files.push(("key.pem".to_owned(), key, true));
    for node in &args.agents {
        let purpose = ExtendedKeyUsagePurpose::ClientAuth;
        let (cert, key) = issue(&authority, vec![node.clone()], purpose)?;
        let name: String = node
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        files.push((format!("agent-{name}.pem"), cert, false));
        files.push((format!("agent-{name}-key.pem"), key, true));
    }
    let names: Vec<&str> = files.iter().map(|(name, ..)| name.as_str()).collect();
    refuse_to_overwrite(args, &names)?;
    for (name, text, is_secret) in &files {
        write(&args.dir.join(name), text, *is_secret)?;
    }
    let dir = args.dir.display();
    writeln!(out, "wrote {} files to {dir}", files.len())?;
    writeln!(
        out,
        "  fleet-echo serve --db fleet.duckdb --tls-cert {dir}/cert.pem --tls-key {dir}/key.pem"
    )?;
    writeln!(
        out,
        "  fleet-echo outliers --server https://localhost:8081 --tls-ca {dir}/ca.pem"
    )?;
    if !args.agents.is_empty() {
        writeln!(
            out,
            "with `serve --client-ca {dir}/ca.pem`, agents must present theirs with --tls-cert and --tls-key"
        )?;
    }
    Ok(())
}

fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("Echo development authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// Issues a certificate for these names. Returns the certificate and its key in PEM.
fn issue(
    authority: &Authority,
    names: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
) -> Result<(String, String), CliError> {
    let make = || {
        let mut params = CertificateParams::new(names.clone())?;
        params.distinguished_name = common_name(names.first().map_or("echo", String::as_str));
        params.extended_key_usages = vec![purpose.clone()];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, authority)?;
        Ok((certificate.pem(), key.serialize_pem()))
    };
    make().map_err(generation_error)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn generation_error(error: rcgen::Error) -> CliError {
    CliError::Usage(format!("cannot generate a certificate: {error}"))
}

fn refuse_to_overwrite(args: &DevCertArgs, names: &[&str]) -> Result<(), CliError> {
    let existing = names.iter().filter(|name| args.dir.join(name).exists());
    let existing: Vec<&str> = existing.copied().collect();
    if args.force || existing.is_empty() {
        return Ok(());
    }
    let dir = args.dir.display();
    let existing = existing.join(", ");
    Err(CliError::Usage(format!(
        "{dir} already contains {existing}; give --force to overwrite"
    )))
}

fn write(path: &Path, text: &str, is_secret: bool) -> io::Result<()> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    // An existing file would keep its mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{DevCertArgs, run};
    use echo_serve::tls::TlsFiles;

    #[test]
    fn the_files_form_an_identity_and_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut args = DevCertArgs {
            dir: folder.path().join("tls"),
            names: vec!["echo.example".to_owned()],
            agents: vec!["gpu/17".to_owned()],
            force: false,
        };
        run(&args, &mut Vec::new()).unwrap();
        let files = TlsFiles {
            cert: args.dir.join("cert.pem"),
            key: args.dir.join("key.pem"),
            client_ca: Some(args.dir.join("ca.pem")),
        };
        let identity = files.load().unwrap();
        for name in ["localhost", "echo.example"] {
            assert!(identity.certificate().is_for(name), "{name}");
        }
        for key in ["key.pem", "agent-gpu_17-key.pem"] {
            let mode = args.dir.join(key).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
        let refused = run(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        args.force = true;
        run(&args, &mut Vec::new()).unwrap();
    }
}
