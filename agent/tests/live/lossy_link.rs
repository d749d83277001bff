//! Link between two network namespaces of its own that loses segments: its queue holds fewer than
//! TCP sends at once.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Link from 192.0.2.1 in a namespace to 192.0.2.2 in another one, which sends.
pub(crate) struct LossyLink(String);

impl LossyLink {
    pub(crate) fn new() -> Self {
        let own = format!("fleet-test-{}", std::process::id());
        let peer = format!("{own}-peer");
        let link = Self(own.clone());
        for command in [
            format!("ip netns add {own}"),
            format!("ip netns add {peer}"),
            format!("ip -n {own} link add eth0 type veth peer name eth0 netns {peer}"),
            format!("ip -n {own} address add 192.0.2.1/30 dev eth0"),
            format!("ip -n {peer} address add 192.0.2.2/30 dev eth0"),
            format!("ip -n {own} link set eth0 up"),
            format!("ip -n {peer} link set eth0 up"),
            format!("tc -n {peer} qdisc add dev eth0 root tbf rate 20mbit burst 4kb limit 8kb"),
        ] {
            run(&command);
        }
        link
    }

    /// Returns the file of the namespace that receives.
    pub(crate) fn namespace(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.0)
    }
}

impl Drop for LossyLink {
    fn drop(&mut self) {
        // The link goes with them.
        run(&format!("ip netns delete {}-peer", self.0));
        run(&format!("ip netns delete {}", self.0));
    }
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let status = Command::new(program).args(words).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}
