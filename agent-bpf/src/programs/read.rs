//! Reads the programs' maps, and clears what belongs to processes that have ended.

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::layout::{self, CallRecord, CallSum, CommRecord, HostSum, Losses};
use crate::programs::attach::missing;

/// The maps of the calls object.
#[derive(Debug)]
pub struct Maps {
    pub(super) events: MapHandle,
    in_flight: MapHandle,
    comms: MapHandle,
    traced: MapHandle,
    threads: MapHandle,
    sums: MapHandle,
    losses: MapHandle,
    losses_told: MapHandle,
}

/// The maps of the host object.
#[derive(Debug)]
pub struct HostMaps {
    sums: MapHandle,
    tcp_retransmits: MapHandle,
}

pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle, libbpf_rs::Error> {
    let found = object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| missing(name))?;
    MapHandle::try_from(&found)
}

impl Maps {
    pub(super) fn open(calls: &Object) -> Result<Self, libbpf_rs::Error> {
        Ok(Self {
            events: map(calls, "events")?,
            in_flight: map(calls, "in_flight")?,
            comms: map(calls, "comms")?,
            traced: map(calls, "traced")?,
            threads: map(calls, "threads")?,
            sums: map(calls, "sums")?,
            losses: map(calls, "losses")?,
            losses_told: map(calls, "losses_told")?,
        })
    }

    /// The calls that have not returned.
    pub fn in_flight(&self) -> Vec<CallRecord> {
        entries(&self.in_flight)
            .filter_map(|(key, call)| CallRecord::from_map_entry(&key, &call))
            .collect()
    }

    /// The communicators.
    pub fn comms(&self) -> Vec<CommRecord> {
        entries(&self.comms)
            .filter_map(|(key, comm)| CommRecord::from_map_entry(&key, &comm))
            .collect()
    }

    /// What was called since the process was first seen: process, function with the direction of a copy or the type
    /// of an RDMA event in its second byte, sum.
    pub fn sums(&self) -> Vec<(u32, u32, CallSum)> {
        per_cpu_entries(&self.sums)
            .filter_map(|(key, values)| {
                let (tgid, op) = layout::sum_key(&key)?;
                let mut sum = CallSum::default();
                values.iter().try_for_each(|value| sum.add(value))?;
                Some((tgid, op, sum))
            })
            .collect()
    }

    /// What was not told.
    pub fn losses(&self) -> Losses {
        Losses::from_counts(|loss| total(&self.losses, loss))
    }

    /// What of that an agent has told.
    pub fn reported_losses(&self) -> Losses {
        Losses::from_counts(|loss| {
            let reported = self.losses_told.lookup(&loss.to_ne_bytes(), MapFlags::ANY);
            let reported = reported.ok().flatten();
            reported
                .and_then(|reported| layout::number(&reported))
                .unwrap_or(0)
        })
    }

    /// Notes that all this was told.
    pub fn mark_losses_reported(&self, losses: &Losses) {
        for (loss, count) in (0_u32..).zip(losses.counts()) {
            // One that cannot be noted is told again by the next agent.
            let _retried =
                self.losses_told
                    .update(&loss.to_ne_bytes(), &count.to_ne_bytes(), MapFlags::ANY);
        }
    }

    /// Clears what is known of the threads of all processes.
    pub(super) fn forget_threads(&self) {
        delete_where(&self.threads, |_, _| true);
    }

    /// Whether the waits of a process are counted.
    pub fn is_traced(&self, tgid: u32) -> bool {
        let entry = self.traced.lookup(&tgid.to_ne_bytes(), MapFlags::ANY);
        entry.is_ok_and(|entry| entry.is_some())
    }

    /// The processes whose waits are counted.
    pub fn traced(&self) -> Vec<u32> {
        let keys = self.traced.keys();
        keys.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .collect()
    }

    /// Clears what belongs to a process that has ended.
    pub fn forget(&self, tgid: u32) {
        let is_its = |high_first: &[u8]| {
            layout::number(high_first).is_some_and(|number| number >> 32 == u64::from(tgid))
        };
        delete_where(&self.in_flight, |key, _| is_its(key));
        delete_where(&self.comms, |key, _| {
            layout::number(key) == Some(u64::from(tgid))
        });
        delete_where(&self.threads, |_, thread| {
            layout::thread_tgid(thread) == Some(tgid)
        });
        let sums: Vec<Vec<u8>> = self
            .sums
            .keys()
            .filter(|key| layout::sum_key(key).is_some_and(|(its, _)| its == tgid))
            .collect();
        delete(&self.sums, &sums);
        delete(&self.traced, &[tgid.to_ne_bytes().to_vec()]);
    }
}

impl HostMaps {
    pub(super) fn open(host: &Object) -> Result<Self, libbpf_rs::Error> {
        Ok(Self {
            sums: map(host, "host_sums")?,
            tcp_retransmits: map(host, "tcp_retransmits")?,
        })
    }

    /// What the kernel did to each process since it is traced.
    pub fn sums(&self) -> Vec<(u32, HostSum)> {
        per_cpu_entries(&self.sums)
            .filter_map(|(key, values)| {
                let mut sum = HostSum::default();
                values.iter().try_for_each(|value| sum.add(value))?;
                Some((u32::from_ne_bytes(key.try_into().ok()?), sum))
            })
            .collect()
    }

    /// TCP segments that the host has sent again since the programs were loaded.
    pub fn tcp_retransmits(&self) -> u64 {
        total(&self.tcp_retransmits, 0)
    }

    /// Clears what belongs to a process that has ended.
    pub fn forget(&self, tgid: u32) {
        delete(&self.sums, &[tgid.to_ne_bytes().to_vec()]);
    }
}

fn entries(map: &MapHandle) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    map.keys().filter_map(|key| {
        let value = map.lookup(&key, MapFlags::ANY).ok()??;
        Some((key, value))
    })
}

fn per_cpu_entries(map: &MapHandle) -> impl Iterator<Item = (Vec<u8>, Vec<Vec<u8>>)> {
    map.keys().filter_map(|key| {
        let values = map.lookup_percpu(&key, MapFlags::ANY).ok()??;
        Some((key, values))
    })
}

fn total(counts: &MapHandle, index: u32) -> u64 {
    let counts = counts.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
    let counts = counts.ok().flatten().unwrap_or_default();
    counts
        .iter()
        .filter_map(|count| layout::number(count))
        .sum()
}

fn delete_where(map: &MapHandle, is_its: impl Fn(&[u8], &[u8]) -> bool) {
    let keys: Vec<Vec<u8>> = entries(map)
        .filter(|(key, value)| is_its(key, value))
        .map(|(key, _)| key)
        .collect();
    delete(map, &keys);
}

fn delete(map: &MapHandle, keys: &[Vec<u8>]) {
    for key in keys {
        // One that the programs have deleted in the meantime is what is wanted.
        let _gone = map.delete(key);
    }
}
