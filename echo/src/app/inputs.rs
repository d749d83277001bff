//! What Echo is told by files: how it is encrypted, who may call, and what GPU-hours cost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use echo_access::Access;
use echo_core::clock::Clock;
use echo_tools::rates::Rates;
use tokio::sync::watch;
use tracing::warn;

use crate::app::AppError;
use crate::app::jwks::Keeper;
use crate::app::sources::{FileSource, Source};
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

/// What the files say, as long as Echo runs.
pub(super) struct Inputs {
    /// How connections of agents are encrypted.
    pub(super) of_agents: Encryption,
    /// How questions are encrypted.
    pub(super) of_questions: Encryption,
    /// On which terms callers are let in.
    pub(super) terms: Middleware,
    /// Prices.
    pub(super) rates: watch::Receiver<Arc<Rates>>,
    /// How reading again goes.
    pub(super) reloads: Reloads,
    /// What has to be looked at for changes.
    pub(super) sources: Vec<Box<dyn Source>>,
    /// Keys that issuers publish.
    pub(super) key_sets: JwksCache,
    /// What fetches them; nothing without an access file.
    pub(super) keeper: Option<Keeper>,
}

impl Inputs {
    /// Reads all of them for the first time. A file that cannot be used keeps Echo from starting.
    pub(super) fn read(args: &ServeArgs, clock: &Arc<dyn Clock>) -> Result<Self, AppError> {
        let reloads = Reloads::default();
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        let (mut of_agents, mut of_questions) = (Encryption::None, Encryption::None);
        if let Some(files) = args.security.tls() {
            let load = move || files.load().map(|identity| (identity, files.paths()));
            let source = FileSource::new("certificate", load, &reloads)?;
            of_agents = Encryption::Otlp(source.current());
            of_questions = Encryption::Api(source.current());
            sources.push(Box::new(source));
        }
        let (mut access, mut keeper) = (None, None);
        let key_sets = JwksCache::default();
        if let Some(path) = args.security.access.clone() {
            let beside = folder(&path).to_owned();
            let source = FileSource::new("access", move || read_access(&path), &reloads)?;
            access = Some(source.current());
            keeper = Some(Keeper::new(key_sets.clone(), source.current(), beside));
            sources.push(Box::new(source));
        }
        let mut rates = watch::channel(Arc::default()).1;
        if let Some(path) = args.rates.clone() {
            let source = FileSource::new("rates", move || read_rates(&path), &reloads)?;
            rates = source.current();
            sources.push(Box::new(source));
        }
        let terms = Middleware {
            origins: args
                .callers
                .callers()
                .with_certificate(of_questions.clone()),
            auth: Authenticator::new(access, Arc::clone(clock)).with_jwks(key_sets.clone()),
            audit: AuditContext {
                log: audit_log(args)?,
                clock: Arc::clone(clock),
            },
            panics: Panics::default(),
        };
        Ok(Self {
            of_agents,
            of_questions,
            terms,
            rates,
            reloads,
            sources,
            key_sets,
            keeper,
        })
    }
}

/// What was asked for by name is done, and said aloud each time that Echo starts.
pub(super) fn warn_of_risks(args: &ServeArgs) {
    let who = match args.security.access {
        Some(_) => "whoever has a token",
        None => "everybody",
    };
    match args.security.insecure_no_tls {
        Some(PlainText::Loopback) => {
            warn!("--insecure-no-tls: {who} on this machine is served in plain text");
        }
        Some(PlainText::Any) => warn!("--insecure-no-tls=any: {who} is served in plain text"),
        None if args.security.access.is_none() => {
            warn!("no --access: everybody who reaches Echo may do everything");
        }
        None => {}
    }
}

fn audit_log(args: &ServeArgs) -> Result<AuditLog, AppError> {
    let usual = || match args.security.access {
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

/// The folder that paths in a file are relative to.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

fn read_access(path: &Path) -> Result<(Access, Vec<PathBuf>), AppError> {
    let beside = folder(path);
    let read = |file: &Path| std::fs::read(beside.join(file));
    let access = Access::parse(&text(path)?, &read)?;
    let files = access.files().iter().map(|file| beside.join(file));
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

fn text(path: &Path) -> Result<String, AppError> {
    let unread = |source: io::Error| AppError::File {
        path: path.to_owned(),
        source,
    };
    std::fs::read_to_string(path).map_err(unread)
}
