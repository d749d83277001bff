//! Configuration read from files: certificates, access, GPU-hour rates and the
//! policy of actions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use echo_access::Access;
use echo_actions::counts::ActionCounts;
use echo_actions::policy::Policy;
use echo_core::clock::Clock;
use echo_tools::rates::Rates;
use tokio::sync::watch;
use tracing::warn;

use crate::app::AppError;
use crate::app::jwks::JwksRefresher;
use crate::app::sources::{FileSource, WatchedFiles};
use crate::config::ServeArgs;
use crate::config::security::PlainText;
use echo_serve::audit::AuditContext;
use echo_serve::audit::log::AuditLog;
use echo_serve::auth::Authenticator;
use echo_serve::jwks::JwksCache;
use echo_serve::middleware::Middleware;
use echo_serve::panics::Panics;
use echo_serve::reloads::Reloads;
use echo_serve::tls::Encryption;

/// Values loaded from files and reloaded while Echo runs.
pub(super) struct Inputs {
    /// TLS of the OTLP listeners.
    pub(super) otlp_encryption: Encryption,
    /// TLS of the API listener.
    pub(super) api_encryption: Encryption,
    /// Middleware that admits callers.
    pub(super) middleware: Middleware,
    /// GPU-hour rates.
    pub(super) rates: watch::Receiver<Arc<Rates>>,
    /// Policy of actions; `None` without one.
    pub(super) actions: Option<watch::Receiver<Arc<Policy>>>,
    /// Counts of actions.
    pub(super) action_counts: ActionCounts,
    /// Reload counters.
    pub(super) reloads: Reloads,
    /// Files to poll for changes.
    pub(super) sources: Vec<Box<dyn WatchedFiles>>,
    /// Key sets published by issuers.
    pub(super) key_sets: JwksCache,
    /// Fetches the key sets; `None` without an access file.
    pub(super) jwks_refresher: Option<JwksRefresher>,
}

impl Inputs {
    /// Loads all files for the first time. An invalid file prevents startup.
    pub(super) fn read(args: &ServeArgs, clock: &Arc<dyn Clock>) -> Result<Self, AppError> {
        let reloads = Reloads::default();
        let mut sources: Vec<Box<dyn WatchedFiles>> = Vec::new();
        let (mut otlp_encryption, mut api_encryption) = (Encryption::None, Encryption::None);
        if let Some(files) = args.security.tls() {
            let load = move || files.load().map(|identity| (identity, files.paths()));
            let source = FileSource::new("certificate", load, &reloads)?;
            otlp_encryption = Encryption::Otlp(source.current());
            api_encryption = Encryption::Api(source.current());
            sources.push(Box::new(source));
        }
        let (mut access, mut jwks_refresher) = (None, None);
        let key_sets = JwksCache::default();
        if let Some(path) = args.security.access.clone() {
            let base_dir = folder(&path).to_owned();
            let source = FileSource::new("access", move || read_access(&path), &reloads)?;
            access = Some(source.current());
            jwks_refresher = Some(JwksRefresher::new(
                key_sets.clone(),
                source.current(),
                base_dir,
            ));
            sources.push(Box::new(source));
        }
        let mut rates = watch::channel(Arc::default()).1;
        if let Some(path) = args.rates.clone() {
            let source = FileSource::new("rates", move || read_rates(&path), &reloads)?;
            rates = source.current();
            sources.push(Box::new(source));
        }
        let mut actions = None;
        if let Some(path) = args.actions.clone() {
            let source = FileSource::new("actions", move || read_actions(&path), &reloads)?;
            actions = Some(source.current());
            sources.push(Box::new(source));
        }
        let middleware = Middleware {
            origins: args
                .allowed_origins
                .callers()
                .with_certificate(api_encryption.clone()),
            auth: Authenticator::new(access, Arc::clone(clock)).with_jwks(key_sets.clone()),
            audit: AuditContext {
                log: audit_log(args)?,
                clock: Arc::clone(clock),
            },
            panics: Panics::default(),
        };
        Ok(Self {
            otlp_encryption,
            api_encryption,
            middleware,
            rates,
            actions,
            action_counts: ActionCounts::default(),
            reloads,
            sources,
            key_sets,
            jwks_refresher,
        })
    }
}

/// Logs a warning at each start for every insecure flag in use.
pub(super) fn warn_of_risks(args: &ServeArgs) {
    let who = match args.security.access {
        Some(_) => "callers with a token",
        None => "all callers",
    };
    match args.security.insecure_no_tls {
        Some(PlainText::Loopback) => {
            warn!("--insecure-no-tls: {who} on this machine are served in plain text");
        }
        Some(PlainText::Any) => warn!("--insecure-no-tls=any: {who} are served in plain text"),
        None if args.security.access.is_none() => {
            warn!("no --access: every client that can connect has full access");
        }
        None => {}
    }
}

fn audit_log(args: &ServeArgs) -> Result<AuditLog, AppError> {
    let usual = || match args.security.access {
        // There is no folder of its own to keep it in.
        Some(_) if args.lake.read_only => PathBuf::from("-"),
        Some(_) => args.db.with_file_name("audit.jsonl"),
        None => PathBuf::from("off"),
    };
    let path = args.security.audit_log.clone().unwrap_or_else(usual);
    match path.to_str() {
        Some("off") => Ok(AuditLog::disabled()),
        Some("-") => Ok(AuditLog::standard_error()),
        _ => {
            let opened = AuditLog::file(&path, args.security.audit_max_bytes);
            opened.map_err(|source| AppError::File { path, source })
        }
    }
}

/// Returns the directory that paths in the file are relative to.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

fn read_access(path: &Path) -> Result<(Access, Vec<PathBuf>), AppError> {
    let base_dir = folder(path);
    let read = |file: &Path| std::fs::read(base_dir.join(file));
    let access = Access::parse(&text(path)?, &read)?;
    let files = access.files().iter().map(|file| base_dir.join(file));
    let files = [path.to_owned()].into_iter().chain(files).collect();
    Ok((access, files))
}

fn read_rates(path: &Path) -> Result<(Rates, Vec<PathBuf>), AppError> {
    let rates = Rates::parse(&text(path)?)?;
    for note in rates.notes() {
        warn!("{}: {note}", path.display());
    }
    Ok((rates, vec![path.to_owned()]))
}

fn read_actions(path: &Path) -> Result<(Policy, Vec<PathBuf>), AppError> {
    let policy = Policy::parse(&text(path)?, folder(path))?;
    Ok((policy, vec![path.to_owned()]))
}

fn text(path: &Path) -> Result<String, AppError> {
    let unreadable = |source: io::Error| AppError::File {
        path: path.to_owned(),
        source,
    };
    std::fs::read_to_string(path).map_err(unreadable)
}
