//! A network of its own: a namespace with a bridge, in which agents are and questions are asked, and one for each Echo.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells the networks of this process apart.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Removed when it is dropped.
pub(super) struct Network {
    hub: String,
    shards: Vec<String>,
}

impl Network {
    /// With so many Echos, which are to be at `10.77.N.1`; nothing, with a word why, where no network can be made.
    pub(super) fn of(n_shards: usize) -> Option<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |part: String| format!("echo-{}-{number}-{part}", std::process::id());
        let network = Self {
            hub: name("hub".to_owned()),
            shards: (0..n_shards).map(|shard| name(shard.to_string())).collect(),
        };
        match network.make() {
            Ok(()) => Some(network),
            Err(why) => {
                eprintln!(
                    "left out, no network can be made here, which takes root and iproute2: {why}"
                );
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let hub = self.hub.as_str();
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} addr add 10.77.255.1/16 dev bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for (shard, name) in self.shards.iter().enumerate() {
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "-n {hub} link add port{shard} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("-n {hub} link set port{shard} master bridge up"))?;
            ip(&format!("-n {name} addr add 10.77.{shard}.1/16 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(())
    }

    /// A program beside the agents.
    pub(super) fn outside(&self, program: impl AsRef<OsStr>) -> Command {
        inside(&self.hub, program)
    }

    /// A program at the address of an Echo.
    pub(super) fn at(&self, shard: usize, program: impl AsRef<OsStr>) -> Command {
        inside(&self.shards[shard], program)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.shards.iter().chain([&self.hub]) {
            // Not there, if making it failed.
            let _not_there = ip(&format!("netns del {name}"));
        }
    }
}

/// `ip` becomes the program, so that signals reach it.
fn inside(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {arguments}: {}", said.trim()))
}
