//! Access to the programs' maps, and removal of entries of exited processes.

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use crate::layout::{
    self, CallRecord, CallSum, CommRecord, DelayKey, DelaySum, ExitRecord, FunctionHistogram,
    FunctionSum, HostSum, LaunchSizeCounts, Losses,
};
use crate::programs::attach::missing;

/// Maps of the calls object.
#[derive(Debug)]
pub struct Maps {
    pub(super) events: MapHandle,
    in_flight: MapHandle,
    comms: MapHandle,
    traced: MapHandle,
    measured: MapHandle,
    threads: MapHandle,
    sums: MapHandle,
    durations: MapHandle,
    launch_sizes: MapHandle,
    losses: MapHandle,
    losses_reported: MapHandle,
}

/// Maps of the host object.
#[derive(Debug)]
pub struct HostMaps {
    sums: MapHandle,
    delays: MapHandle,
    reading: MapHandle,
    processes: MapHandle,
    tcp_retransmits: MapHandle,
    exits: MapHandle,
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
            measured: map(calls, "measured")?,
            threads: map(calls, "threads")?,
            sums: map(calls, "sums")?,
            durations: map(calls, "durations")?,
            launch_sizes: map(calls, "launch_sizes")?,
            losses: map(calls, "losses")?,
            losses_reported: map(calls, "losses_reported")?,
        })
    }

    /// Returns the calls in flight.
    pub fn in_flight(&self) -> Vec<CallRecord> {
        entries(&self.in_flight)
            .filter_map(|(key, call)| CallRecord::from_map_entry(&key, &call))
            .collect()
    }

    /// Returns the outermost call of some classes that a thread is in: the time of its entry,
    /// nanoseconds, and the function number. `None` if it is in none.
    pub fn outermost_call(&self, tgid: u32, tid: u32, classes: &[u8]) -> Option<(u64, u8)> {
        let entry = |class: &u8| {
            let key = CallRecord::map_key(tgid, tid, *class);
            let call = self.in_flight.lookup(&key, MapFlags::ANY).ok()??;
            layout::entry(&call)
        };
        classes.iter().filter_map(entry).min()
    }

    /// Returns the communicators.
    pub fn comms(&self) -> Vec<CommRecord> {
        entries(&self.comms)
            .filter_map(|(key, comm)| CommRecord::from_map_entry(&key, &comm))
            .collect()
    }

    /// Returns the durations of calls since each process was first seen.
    pub fn durations(&self) -> Vec<FunctionHistogram> {
        entries(&self.durations)
            .filter_map(|(key, calls)| FunctionHistogram::from_map_entry(&key, &calls))
            .collect()
    }

    /// Returns the sampled sizes of kernel launches since each process was first seen.
    pub fn launch_sizes(&self) -> Vec<LaunchSizeCounts> {
        entries(&self.launch_sizes)
            .filter_map(|(key, sizes)| LaunchSizeCounts::from_map_entry(&key, &sizes))
            .collect()
    }

    /// Returns the counters of functions whose entry alone is probed, since each process was first
    /// seen.
    pub fn sums(&self) -> Vec<FunctionSum> {
        per_cpu_entries(&self.sums)
            .filter_map(|(key, values)| {
                let (tgid, op) = layout::sum_key(&key)?;
                let mut sum = CallSum::default();
                values.iter().try_for_each(|value| sum.add(value))?;
                Some(FunctionSum { tgid, op, sum })
            })
            .collect()
    }

    /// Returns the losses.
    pub fn losses(&self) -> Losses {
        Losses::from_counts(|loss| total(&self.losses, loss))
    }

    /// Returns the losses that an agent has already reported.
    pub fn reported_losses(&self) -> Losses {
        Losses::from_counts(|loss| {
            let reported = self
                .losses_reported
                .lookup(&loss.to_ne_bytes(), MapFlags::ANY);
            let reported = reported.ok().flatten();
            reported
                .and_then(|reported| layout::number(&reported))
                .unwrap_or(0)
        })
    }

    /// Marks these losses as reported.
    pub fn mark_losses_reported(&self, losses: &Losses) {
        for (loss, count) in (0_u32..).zip(losses.counts()) {
            // A loss that cannot be marked is reported again by the next agent.
            let _retried = self.losses_reported.update(
                &loss.to_ne_bytes(),
                &count.to_ne_bytes(),
                MapFlags::ANY,
            );
        }
    }

    /// Removes the state of all threads.
    pub(super) fn forget_threads(&self) {
        delete_where(&self.threads, |_, _| true);
    }

    /// Returns whether a process is traced, so that its waits are recorded.
    pub fn is_traced(&self, tgid: u32) -> bool {
        let entry = self.traced.lookup(&tgid.to_ne_bytes(), MapFlags::ANY);
        entry.is_ok_and(|entry| entry.is_some())
    }

    /// Returns whether calls of a process are measured that does not call NCCL.
    pub fn is_measured(&self, tgid: u32) -> bool {
        let entry = self.measured.lookup(&tgid.to_ne_bytes(), MapFlags::ANY);
        entry.is_ok_and(|entry| entry.is_some())
    }

    /// Returns the traced processes, and those that are only measured.
    pub fn traced(&self) -> Vec<u32> {
        let keys = self.traced.keys().chain(self.measured.keys());
        keys.filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .collect()
    }

    /// Removes all entries of an exited process.
    pub fn forget(&self, tgid: u32) {
        let is_of_process = |high_first: &[u8]| {
            layout::number(high_first).is_some_and(|number| number >> 32 == u64::from(tgid))
        };
        delete_where(&self.in_flight, |key, _| is_of_process(key));
        delete_where(&self.comms, |key, _| {
            layout::number(key) == Some(u64::from(tgid))
        });
        delete_where(&self.threads, |_, thread| {
            layout::thread_tgid(thread) == Some(tgid)
        });
        for functions in [&self.sums, &self.durations] {
            let is_of_process =
                |key: &Vec<u8>| layout::sum_key(key).is_some_and(|(owner, _)| owner == tgid);
            let of_process: Vec<Vec<u8>> = functions.keys().filter(is_of_process).collect();
            delete(functions, &of_process);
        }
        for processes in [&self.launch_sizes, &self.measured, &self.traced] {
            delete(processes, &[tgid.to_ne_bytes().to_vec()]);
        }
    }
}

impl HostMaps {
    pub(super) fn open(host: &Object) -> Result<Self, libbpf_rs::Error> {
        Ok(Self {
            sums: map(host, "host_sums")?,
            delays: map(host, "delays")?,
            reading: map(host, "reading")?,
            processes: map(host, "processes")?,
            tcp_retransmits: map(host, "tcp_retransmits")?,
            exits: map(host, "exits")?,
        })
    }

    /// Returns the host activity of each process since tracing began.
    pub fn sums(&self) -> Vec<(u32, HostSum)> {
        per_cpu_entries(&self.sums)
            .filter_map(|(key, values)| {
                let mut sum = HostSum::default();
                values.iter().try_for_each(|value| sum.add(value))?;
                Some((u32::from_ne_bytes(key.try_into().ok()?), sum))
            })
            .collect()
    }

    /// Returns the delays of each process and kind since tracing began, with the longest one since the
    /// last call.
    pub fn delays(&self) -> Vec<(DelayKey, DelaySum)> {
        let first = 0_u32.to_ne_bytes();
        let number = self.reading.lookup(&first, MapFlags::ANY).ok().flatten();
        let number = number.and_then(|number| Some(u32::from_ne_bytes(*number.first_chunk()?)));
        let number = number.unwrap_or_default();
        // Delays that end from now on are of the next reading. Should this fail, the longest one is reported again.
        let next = number.wrapping_add(1).to_ne_bytes();
        let _repeated = self.reading.update(&first, &next, MapFlags::ANY);
        entries(&self.delays)
            .filter_map(|(key, sum)| Some((DelayKey::parse(&key)?, DelaySum::parse(&sum, number)?)))
            .collect()
    }

    /// Removes delays, so that their entries can be used again.
    pub fn remove_delays(&self, is_removed: impl Fn(&DelayKey) -> bool) {
        delete_where(&self.delays, |key, _| {
            DelayKey::parse(key).is_some_and(|key| is_removed(&key))
        });
    }

    /// Returns the number of TCP segments that the host has retransmitted since the programs were
    /// loaded.
    pub fn tcp_retransmits(&self) -> u64 {
        total(&self.tcp_retransmits, 0)
    }

    /// Returns how a traced process ended; `None` if it was not seen to end.
    pub fn exit(&self, tgid: u32) -> Option<ExitRecord> {
        let record = self.exits.lookup(&tgid.to_ne_bytes(), MapFlags::ANY);
        ExitRecord::parse(&record.ok()??)
    }

    /// Removes all entries of an exited process.
    pub fn forget(&self, tgid: u32) {
        for processes in [&self.sums, &self.processes, &self.exits] {
            delete(processes, &[tgid.to_ne_bytes().to_vec()]);
        }
        self.remove_delays(|key| key.tgid == tgid);
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

fn delete_where(map: &MapHandle, matches: impl Fn(&[u8], &[u8]) -> bool) {
    let keys: Vec<Vec<u8>> = entries(map)
        .filter(|(key, value)| matches(key, value))
        .map(|(key, _)| key)
        .collect();
    delete(map, &keys);
}

fn delete(map: &MapHandle, keys: &[Vec<u8>]) {
    for key in keys {
        // An entry that the programs have deleted in the meantime is already gone.
        let _gone = map.delete(key);
    }
}
