//! Jobs on the stand-ins for NCCL and CUDA, and a watch.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_agent_core::event::{CallKind, CommInit, Event, Operation};
use fleet_agent_sources::live::{EVIDENCE_INTERVAL, Live, Stop};
use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::{CountOptions, Detail, RESCAN, Watch, WatchSettings};
use tempfile::TempDir;

use crate::job::{Job, wait_for};
use crate::stand_ins;
pub(crate) use crate::stand_ins::Linking;

/// Compiled stand-ins in a separate directory, with their own inodes: probes of one test do not
/// affect another.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) dir: TempDir,
    /// Probes affect the whole host, so tests run one at a time.
    _alone: File,
}

impl Gpu {
    pub(crate) fn new() -> Self {
        let alone = File::create(std::env::temp_dir().join("fleet-agent-live-tests.lock")).unwrap();
        alone.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        stand_ins::install(dir.path());
        Self { dir, _alone: alone }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Copies the NCCL profiler plugin here under a name.
    pub(crate) fn plugin(&self, name: &str) -> PathBuf {
        let built = Path::new(env!("CARGO_BIN_EXE_fleet-agent"))
            .with_file_name("deps")
            .join("libfleet_nccl_profiler.so");
        let copy = self.path().join(name);
        fs::copy(built, &copy).unwrap();
        copy
    }

    /// Returns the path of a file that a job waits for; it does not exist yet.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Starts the ranks of a job in this directory. They join their communicators when the gate
    /// `go` opens.
    pub(crate) fn job(&self, linking: Linking, ranks: u32, steps: u32, options: &[&str]) -> Job {
        self.job_in(&[], linking, (ranks, steps), options)
    }

    /// Like `job`, with additional environment variables.
    pub(crate) fn job_in(
        &self,
        environment: &[(&str, PathBuf)],
        linking: Linking,
        (ranks, steps): (u32, u32),
        options: &[&str],
    ) -> Job {
        // An earlier job can have left it open.
        let _was_closed = fs::remove_file(self.gate("go"));
        let command = |rank: u32| {
            let mut command = Command::new(self.path().join(linking.program()));
            command
                .args([rank, ranks, steps].map(|n| n.to_string()))
                .arg("import=0")
                .arg(format!("init={}", self.gate("go").display()))
                .args(options);
            command.env("LD_LIBRARY_PATH", self.path());
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            command
        };
        let mut job = self.start((0..ranks).map(|rank| (rank, command(rank))), ranks);
        job.libraries = if linking == Linking::Static { 1 } else { 2 };
        job
    }

    /// Starts commands as the ranks of a job.
    pub(crate) fn start(
        &self,
        commands: impl Iterator<Item = (u32, Command)>,
        world_size: u32,
    ) -> Job {
        let commands = commands.map(|(rank, mut command)| {
            command
                .env("FAKE_NCCL_DIR", self.path())
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", world_size.to_string());
            command
        });
        Job::start(commands, self.gate("go"))
    }
}

/// Settings of the watch in tests: no pinned probes, and every wait is reported.
pub(crate) fn settings() -> WatchSettings {
    WatchSettings {
        count_options: CountOptions {
            copies: Detail::Count,
            launches: Detail::Count,
            all_processes: false,
        },
        min_wait_ns: 0,
        mechanism: None,
        without_host: false,
        rescan: RESCAN,
        pins: None,
        nccl_socket: None,
    }
}

/// Live source that collects its events.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) live: Live,
    pub(crate) events: Vec<Event>,
}

impl Observer {
    pub(crate) fn new(settings: &WatchSettings) -> Self {
        let watch = Watch::start(settings).unwrap();
        let live = Live::new(watch, Processes::new("/proc"), Stop::default());
        let live = live.with_evidence_every(EVIDENCE_INTERVAL / 10);
        Self {
            live,
            events: Vec::new(),
        }
    }

    /// Polls until `is_enough` holds, which `what` describes.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut is_enough: impl FnMut(&Self) -> bool) {
        wait_for(what, || {
            if is_enough(self) {
                return Ok(());
            }
            self.live.poll();
            while let Some(event) = self.live.next_pending() {
                self.events.push(event);
            }
            let last = self.events.last();
            Err(format!("{} events, the last {last:?}", self.events.len()))
        });
    }

    /// Releases a job once it is probed, and polls until it has ended.
    #[track_caller]
    pub(crate) fn follow(&mut self, job: &Job) {
        self.release(job);
        self.until_ended(&job.pids());
    }

    /// Releases a job once it is probed.
    #[track_caller]
    pub(crate) fn release(&mut self, job: &Job) {
        let pids = job.pids();
        self.until("probes in all libraries of the ranks", |observer| {
            let watched = observer.live.watched();
            let libraries = |pid: &u32| {
                watched
                    .iter()
                    .filter(|watched| watched.users.contains(pid))
                    .count()
            };
            pids.iter().all(|pid| libraries(pid) >= job.libraries)
        });
        job.release();
    }

    /// Polls until all these processes have ended.
    #[track_caller]
    pub(crate) fn until_ended(&mut self, pids: &[u32]) {
        self.until("the end of the ranks", |observer| {
            let is_over = |pid: &u32| {
                observer
                    .events_of(*pid)
                    .any(|event| matches!(event, Event::Ended(_)))
            };
            pids.iter().all(is_over)
        });
    }

    pub(crate) fn events_of(&self, pid: u32) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(move |event| event.pid() == Some(pid))
    }

    /// Returns the collectives of a process, in order.
    pub(crate) fn collectives(&self, pid: u32) -> Vec<Operation> {
        let operations = self.events_of(pid).filter_map(|event| match event {
            Event::Call(call) => Some(call.kind),
            Event::Entered(entered) => Some(entered.kind),
            _ => None,
        });
        let operations = operations.filter_map(|kind| match kind {
            CallKind::Operation(operation) => Some(operation),
            _ => None,
        });
        operations.collect()
    }

    /// Returns the communicators that a process joined.
    pub(crate) fn inits(&self, pid: u32) -> Vec<CommInit> {
        let calls = self.events_of(pid).filter_map(|event| match event {
            Event::Call(call) | Event::Returned(call) => Some(call.kind),
            _ => None,
        });
        let inits = calls.filter_map(|kind| match kind {
            CallKind::CommInit(init) => Some(init),
            _ => None,
        });
        inits.collect()
    }

    /// Asserts that every collective of a job was traced, once and in order, on communicators with
    /// the same id on all ranks.
    #[track_caller]
    pub(crate) fn assert_saw_all(&self, issued: &BTreeMap<u32, u64>) {
        let mut ids = Vec::new();
        for (pid, n_issued) in issued {
            let seen = self.collectives(*pid);
            assert_eq!(seen.len() as u64, *n_issued, "collectives of {pid}");
            let mut next: BTreeMap<u64, u64> = BTreeMap::new();
            for operation in &seen {
                let next = next.entry(operation.comm).or_default();
                assert_eq!(operation.seq, Some(*next));
                *next += 1;
            }
            ids.push(
                self.inits(*pid)
                    .iter()
                    .map(|init| init.unique_id)
                    .collect::<Vec<_>>(),
            );
        }
        assert!(
            ids.iter()
                .all(|own| own.contains(&ids[0][0]) && own[0] != 0),
            "{ids:x?}"
        );
    }
}

/// Command of the agent.
pub(crate) fn agent() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleet-agent"))
}
