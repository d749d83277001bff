//! Packets that the InfiniBand and RoCE ports of the host lost or sent again, from the counters in `sysfs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A number and a line end.
const MAX_BYTES: u64 = 64;

/// Counters that mean a loss or a repetition, each with its folder.
///
/// Every packet that a peer has to wait longer for counts where this host took part: lost on the way in, discarded on the
/// way out, or sent again from here. Not counted are `symbol_error`, since a packet that it breaks is in
/// `port_rcv_errors` as well, and links with error correction have a few all the time; what only tells of congestion
/// (`port_xmit_wait`, CNP and ECN counters); `duplicate_request`, which tells the receiver what the sender has counted; and
/// errors of the programs that use the port, such as those of access rights.
const COUNTERS: [(&str, &str); 19] = [
    // Any device. The link ones count outages, each of which loses what was on its way.
    ("counters", "link_downed"),
    ("counters", "link_error_recovery"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_xmit_discards"),
    ("counters", "excessive_buffer_overrun_errors"),
    // mlx5: gaps and full queues at the receiver, then what made the sender repeat.
    ("hw_counters", "out_of_sequence"),
    ("hw_counters", "out_of_buffer"),
    ("hw_counters", "packet_seq_err"),
    ("hw_counters", "implied_nak_seq_err"),
    ("hw_counters", "local_ack_timeout_err"),
    ("hw_counters", "rnr_nak_retry_err"),
    ("hw_counters", "roce_adp_retrans"),
    // bnxt_re.
    ("hw_counters", "rx_roce_discards"),
    ("hw_counters", "tx_roce_discards"),
    ("hw_counters", "to_retransmits"),
    ("hw_counters", "seq_err_naks_rcvd"),
    ("hw_counters", "rnr_naks_rcvd"),
    // EFA.
    ("hw_counters", "rx_drops"),
    ("hw_counters", "retrans_pkts"),
];

/// The RDMA ports of the host.
#[derive(Debug)]
pub struct Rdma {
    devices: PathBuf,
    seen: BTreeMap<Port, Counts>,
}

/// Counters of one port that were there, by name.
type Counts = BTreeMap<&'static str, u64>;

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Name of the device, such as `mlx5_0`.
    pub device: String,
    /// Number of the port, from 1.
    pub number: u32,
}

/// What has been lost or sent again since the last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Increases(Vec<Increase>);

/// What one counter rose by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increase {
    /// The port.
    pub port: Port,
    /// Name of the counter.
    pub counter: &'static str,
    /// Packets, or outages of the link.
    pub by: u64,
}

impl Increases {
    /// Over all ports and counters.
    pub fn total(&self) -> u64 {
        let by = self.0.iter().map(|increase| increase.by);
        by.fold(0, u64::saturating_add)
    }

    /// The counters that rose, by port.
    pub fn risen(&self) -> &[Increase] {
        &self.0
    }
}

impl Rdma {
    /// The ports below the folder that `/sys` is mounted at.
    pub fn below(sys: &Path) -> Self {
        Self {
            devices: sys.join("class/infiniband"),
            seen: BTreeMap::new(),
        }
    }

    /// The ports that have counters.
    pub fn ports(&self) -> Vec<Port> {
        counts_below(&self.devices).into_keys().collect()
    }

    /// What has been lost or sent again since the last call; none while there is no port, and the first time, since what
    /// happened before is nobody's now.
    pub fn read(&mut self) -> Option<Increases> {
        let now = counts_below(&self.devices);
        // A port that comes back counts from where it stands then: its driver has begun anew.
        let before = std::mem::replace(&mut self.seen, now);
        let mut known = false;
        let mut increases = Vec::new();
        for (port, counts) in &self.seen {
            let Some(before) = before.get(port) else {
                continue;
            };
            known = true;
            for (counter, now) in counts {
                let by = before.get(counter).map_or(0, |before| risen(*before, *now));
                if by > 0 {
                    increases.push(Increase {
                        port: port.clone(),
                        counter,
                        by,
                    });
                }
            }
        }
        known.then_some(Increases(increases))
    }
}

/// From `before` to `now`. A counter that fell was set to 0 in between, by hand or by its device.
fn risen(before: u64, now: u64) -> u64 {
    if now < before { now } else { now - before }
}

fn counts_below(devices: &Path) -> BTreeMap<Port, Counts> {
    let mut all = BTreeMap::new();
    for device in names(devices) {
        let ports = devices.join(&device).join("ports");
        for number in names(&ports) {
            let counts = counts_of(&ports.join(&number));
            if let Ok(number) = number.parse()
                && !counts.is_empty()
            {
                let device = device.clone();
                all.insert(Port { device, number }, counts);
            }
        }
    }
    all
}

fn counts_of(port: &Path) -> Counts {
    let count = |(folder, name): (&str, &'static str)| {
        let count = number(&port.join(folder).join(name))?;
        Some((name, count))
    };
    COUNTERS.into_iter().filter_map(count).collect()
}

/// The entries of a folder; none when it is not there (any more).
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// The number in a file; none for the words that some drivers have for counters that they lack.
fn number(file: &Path) -> Option<u64> {
    let mut text = String::new();
    let file = File::open(file).ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn write(sys: &TempDir, device: &str, counter: &str, value: &str) {
        let port = sys.path().join("class/infiniband").join(device);
        let file = port.join("ports/1").join(counter);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{value}\n")).unwrap();
    }

    fn host() -> (TempDir, Rdma) {
        let sys = tempfile::tempdir().unwrap();
        for device in ["mlx5_0", "mlx5_1"] {
            write(&sys, device, "counters/port_rcv_errors", "5");
            write(&sys, device, "counters/symbol_error", "900");
            write(&sys, device, "counters/port_xmit_discards", "N/A (no PMA)");
            write(&sys, device, "hw_counters/packet_seq_err", "40");
        }
        let rdma = Rdma::below(sys.path());
        (sys, rdma)
    }

    #[test]
    fn only_what_comes_after_the_first_read_counts() {
        let (sys, mut rdma) = host();
        assert_eq!(rdma.read(), None);
        assert_eq!(rdma.read(), Some(Increases::default()));
        write(&sys, "mlx5_1", "hw_counters/packet_seq_err", "43");
        write(&sys, "mlx5_0", "counters/port_rcv_errors", "6");
        let increases = rdma.read().unwrap();
        assert_eq!(increases.total(), 4);
        let [first, second] = increases.risen() else {
            panic!("{increases:?}");
        };
        assert_eq!(
            (first.port.device.as_str(), first.counter, first.by),
            ("mlx5_0", "port_rcv_errors", 1)
        );
        assert_eq!(
            (second.port.number, second.counter, second.by),
            (1, "packet_seq_err", 3)
        );
        assert_eq!(rdma.read().unwrap().total(), 0);
    }

    #[test]
    fn symbol_errors_and_congestion_are_no_losses() {
        let (sys, mut rdma) = host();
        rdma.read();
        write(&sys, "mlx5_0", "counters/symbol_error", "1000");
        write(&sys, "mlx5_0", "counters/port_xmit_wait", "77");
        assert_eq!(rdma.read().unwrap().total(), 0);
    }

    #[test]
    fn a_counter_that_was_set_to_zero_counts_from_there() {
        let (sys, mut rdma) = host();
        rdma.read();
        write(&sys, "mlx5_0", "hw_counters/packet_seq_err", "2");
        assert_eq!(rdma.read().unwrap().total(), 2);
    }

    #[test]
    fn ports_and_counters_that_come_and_go_begin_anew() {
        let (sys, mut rdma) = host();
        rdma.read();
        let device = sys.path().join("class/infiniband/mlx5_0");
        fs::remove_dir_all(&device).unwrap();
        assert_eq!(rdma.read().unwrap().total(), 0);
        write(&sys, "mlx5_0", "hw_counters/packet_seq_err", "900");
        assert_eq!(rdma.read().unwrap().total(), 0);
        write(&sys, "mlx5_0", "hw_counters/packet_seq_err", "901");
        write(&sys, "mlx5_0", "hw_counters/out_of_sequence", "30");
        assert_eq!(rdma.read().unwrap().total(), 1);
    }

    #[test]
    fn ports_are_listed_by_device_and_number() {
        let (_sys, rdma) = host();
        let ports = ["mlx5_0", "mlx5_1"].map(|device| Port {
            device: device.to_owned(),
            number: 1,
        });
        assert_eq!(rdma.ports(), ports);
    }

    #[test]
    fn a_host_without_ports_has_nothing_to_tell() {
        let sys = tempfile::tempdir().unwrap();
        let mut rdma = Rdma::below(sys.path());
        assert_eq!((rdma.read(), rdma.read()), (None, None));
        write(&sys, "mlx5_0", "counters/port_rcv_errors", "-1");
        write(
            &sys,
            "mlx5_1",
            "counters/port_rcv_errors",
            "99999999999999999999999",
        );
        assert_eq!((rdma.read(), rdma.read()), (None, None));
    }
}
