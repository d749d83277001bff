//! A network for the tests: one namespace with a bridge for agents and clients, and one for each
//! instance.

use std::ffi::OsStr;
use std::process::Command;

use crate::testbed::namespace::{Namespace, ip};

/// The network, removed on drop.
pub(super) struct Network {
    hub: Namespace,
    shards: Vec<Namespace>,
}

impl Network {
    /// Creates a network for instances at `10.77.N.1`.
    pub(super) fn with_shards(n_shards: usize) -> Self {
        Self::make(n_shards).unwrap()
    }

    fn make(n_shards: usize) -> Result<Self, String> {
        let namespace = Namespace::new()?;
        let hub = namespace.name();
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} addr add 10.77.255.1/16 dev bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        let shard = |shard: usize| {
            let namespace = Namespace::new()?;
            let name = namespace.name();
            ip(&format!(
                "-n {hub} link add port{shard} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("-n {hub} link set port{shard} master bridge up"))?;
            ip(&format!("-n {name} addr add 10.77.{shard}.1/16 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            Ok(namespace)
        };
        let shards = (0..n_shards).map(shard).collect::<Result<_, String>>()?;
        Ok(Self {
            hub: namespace,
            shards,
        })
    }

    /// Returns a command that runs a program next to the agents.
    pub(super) fn outside(&self, program: impl AsRef<OsStr>) -> Command {
        self.hub.run(program)
    }

    /// Returns a command that runs a program at the address of a shard.
    pub(super) fn at(&self, shard: usize, program: impl AsRef<OsStr>) -> Command {
        self.shards[shard].run(program)
    }
}
