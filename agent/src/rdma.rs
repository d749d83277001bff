//! Packets that the host's InfiniBand and RoCE ports lost or retransmitted, from the counters in
//! `sysfs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum length of a counter file: a number and a newline.
const MAX_BYTES: u64 = 64;

/// Counters of losses and retransmissions, each with its directory.
///
/// A packet that delays a peer is counted on the host that took part in its loss: lost on receipt,
/// discarded before sending, or retransmitted. Not counted are `symbol_error`, since a packet with
/// such an error is in `port_rcv_errors` as well, and links with error correction have some all the
/// time; counters of congestion alone (`port_xmit_wait`, CNP and ECN counters);
/// `duplicate_request`, which counts at the receiver what the sender has counted; and errors of the
/// programs that use the port, such as access violations.
const COUNTERS: [(&str, &str); 19] = [
    // All devices. The link counters count outages, each of which loses the packets in flight.
    ("counters", "link_downed"),
    ("counters", "link_error_recovery"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_xmit_discards"),
    ("counters", "excessive_buffer_overrun_errors"),
    // mlx5: gaps and full queues at the receiver, then causes of retransmission at the sender.
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

/// RDMA ports of the host.
#[derive(Debug)]
pub struct Rdma {
    devices: PathBuf,
    previous: BTreeMap<Port, Counts>,
}

/// Counters of a port that exist, by name.
type Counts = BTreeMap<&'static str, u64>;

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Device name, such as `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub number: u32,
}

/// Losses and retransmissions since the previous read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Increases(Vec<Increase>);

/// Increase of one counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increase {
    /// The port.
    pub port: Port,
    /// Name of the counter.
    pub counter: &'static str,
    /// Number of packets, or of link outages.
    pub by: u64,
}

impl Increases {
    /// Returns the sum over all ports and counters.
    pub fn total(&self) -> u64 {
        let by = self.0.iter().map(|increase| increase.by);
        by.fold(0, u64::saturating_add)
    }

    /// Returns the counters that increased, by port.
    pub fn by_counter(&self) -> &[Increase] {
        &self.0
    }
}

impl Rdma {
    /// Uses the ports below `sys`, the mount point of `/sys`.
    pub fn new(sys: &Path) -> Self {
        Self {
            devices: sys.join("class/infiniband"),
            previous: BTreeMap::new(),
        }
    }

    /// Returns the ports that have counters.
    pub fn ports(&self) -> Vec<Port> {
        read_ports(&self.devices).into_keys().collect()
    }

    /// Returns losses and retransmissions since the previous call; none without ports, and on the
    /// first call, which only sets the baseline.
    pub fn read(&mut self) -> Option<Increases> {
        let now = read_ports(&self.devices);
        // A port that reappears starts from its current values: its driver was reloaded.
        let before = std::mem::replace(&mut self.previous, now);
        let mut has_baseline = false;
        let mut increases = Vec::new();
        for (port, counts) in &self.previous {
            let Some(before) = before.get(port) else {
                continue;
            };
            has_baseline = true;
            for (counter, now) in counts {
                let by = before
                    .get(counter)
                    .map_or(0, |before| increase(*before, *now));
                if by > 0 {
                    increases.push(Increase {
                        port: port.clone(),
                        counter,
                        by,
                    });
                }
            }
        }
        has_baseline.then_some(Increases(increases))
    }
}

/// Increase from `before` to `now`. A counter that decreased was reset to 0 in between.
fn increase(before: u64, now: u64) -> u64 {
    if now < before { now } else { now - before }
}

fn read_ports(devices: &Path) -> BTreeMap<Port, Counts> {
    let mut all = BTreeMap::new();
    for device in entries(devices) {
        let ports = devices.join(&device).join("ports");
        for number in entries(&ports) {
            let counts = read_counters(&ports.join(&number));
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

fn read_counters(port: &Path) -> Counts {
    let count = |(folder, name): (&str, &'static str)| {
        let count = read_number(&port.join(folder).join(name))?;
        Some((name, count))
    };
    COUNTERS.into_iter().filter_map(count).collect()
}

/// Entries of a directory; none when it does not exist.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Number in a file; none for the text that some drivers return for unsupported counters.
fn read_number(file: &Path) -> Option<u64> {
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
        let rdma = Rdma::new(sys.path());
        (sys, rdma)
    }

    #[test]
    fn only_increases_after_the_first_read_are_counted() {
        let (sys, mut rdma) = host();
        assert_eq!(rdma.read(), None);
        assert_eq!(rdma.read(), Some(Increases::default()));
        write(&sys, "mlx5_1", "hw_counters/packet_seq_err", "43");
        write(&sys, "mlx5_0", "counters/port_rcv_errors", "6");
        let increases = rdma.read().unwrap();
        assert_eq!(increases.total(), 4);
        let [first, second] = increases.by_counter() else {
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
    fn symbol_errors_and_congestion_are_not_losses() {
        let (sys, mut rdma) = host();
        rdma.read();
        write(&sys, "mlx5_0", "counters/symbol_error", "1000");
        write(&sys, "mlx5_0", "counters/port_xmit_wait", "77");
        assert_eq!(rdma.read().unwrap().total(), 0);
    }

    #[test]
    fn a_counter_that_was_reset_counts_from_zero() {
        let (sys, mut rdma) = host();
        rdma.read();
        write(&sys, "mlx5_0", "hw_counters/packet_seq_err", "2");
        assert_eq!(rdma.read().unwrap().total(), 2);
    }

    #[test]
    fn ports_and_counters_that_reappear_start_over() {
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
    fn a_host_without_ports_has_no_readings() {
        let sys = tempfile::tempdir().unwrap();
        let mut rdma = Rdma::new(sys.path());
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
