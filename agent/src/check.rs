//! Reports what this host allows the agent and what is missing. `facts` reads the host, `findings`
//! interprets it.

mod facts;
pub mod findings;
pub mod report;

use std::path::Path;
use std::time::Duration;

use fleet_agent_sources::watch::{Watch, WatchSettings};

use crate::check::facts::Facts;
use crate::check::report::Report;
use crate::config::ProbeArgs;
use crate::gpu::Gpus;

/// Checks this host.
pub async fn check() -> Report {
    let (proc, sys) = (Path::new("/proc"), Path::new("/sys"));
    let mut facts = Facts::read(proc, sys);
    facts.gpus = Gpus::open(proc).all().await;
    let settings = WatchSettings {
        without_host: false,
        ..ProbeArgs::default().settings(Duration::MAX)
    };
    facts.watch = match Watch::start(&settings) {
        Ok(watch) => Ok(facts::from_watch(&watch, proc)),
        Err(error) => Err(error.to_string()),
    };
    findings::from_facts(&facts)
}
