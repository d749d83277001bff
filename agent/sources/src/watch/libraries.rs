//! Selection of files to probe. Probes are attached to files, not to processes: a file that is
//! already probed is watched in every process that maps it, from its first call on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use fleet_agent_bpf::programs::{AttachError, Programs};

use crate::comm_fields::CommFields;
use crate::watch::ignore_cache::IgnoreCache;
use crate::watch::libraries::files::{Attached, Files, Inspected, Known, Mapped, MappedFile};
use crate::watch::library::{CountOptions, Functions, Library, Version, families};
use crate::watch::mapping::{FileId, Mapping, executable};
use crate::watch::process_access::{has_probe, open};
use crate::watch::rate_limit::RateLimiter;
use crate::watch::seccomp::Guard;
use crate::watch::stale_probes::{Owner, StaleProbes};

pub(super) mod files;
mod summary;

/// Time for which a file stays probed that no process maps any longer, nanoseconds. A probe pins
/// the file system of its file, so that a container's could not be unmounted; and a restarted job
/// gets new probes within a tenth of a second.
const LINGER_NS: u64 = 60_000_000_000;

/// All inspected files.
#[derive(Debug)]
pub(super) struct Libraries {
    proc: PathBuf,
    stale_probes: StaleProbes,
    count_options: CountOptions,
    guard: Guard,
    detached: Vec<u32>,
    known: HashMap<FileId, Known>,
    ignore_cache: IgnoreCache,
    rate_limiter: RateLimiter,
}

impl Libraries {
    pub(super) fn new(
        proc: &Path,
        pins: Option<PathBuf>,
        count_options: CountOptions,
        guard: Guard,
    ) -> Self {
        Self {
            proc: proc.to_owned(),
            stale_probes: StaleProbes::load(pins),
            detached: Vec::new(),
            count_options,
            guard,
            known: HashMap::new(),
            ignore_cache: IgnoreCache::default(),
            rate_limiter: RateLimiter::default(),
        }
    }

    /// Returns whether a mapping of this path, as the mapping process sees it, is a reason to
    /// inspect the process.
    pub(super) fn should_inspect(&self, path: &OsStr) -> bool {
        self.ignore_cache.should_inspect(path)
    }

    /// Refills the rate limit of inspected files.
    pub(super) fn refill(&mut self, now_ns: u64) {
        self.rate_limiter.refill(now_ns);
    }

    /// Inspects the mappings of a process, probes new files and returns whether it has NCCL or
    /// RCCL. A process that exits meanwhile has nothing.
    pub(super) fn inspect(
        &mut self,
        process: Inspected,
        files: Files,
        programs: &Programs,
    ) -> bool {
        let Inspected { pid, has_lasted } = process;
        let folder = self.proc.join(pid.to_string());
        let mut has_collectives = false;
        let Ok(maps) = fs::read(folder.join("maps")) else {
            return false;
        };
        let program = fs::read_link(folder.join("exe")).unwrap_or_default();
        for mapping in executable(&maps) {
            let is_program = files == Files::All && mapping.path == program;
            if families(mapping.path, is_program).is_empty() {
                continue;
            }
            let is_known = self.known.contains_key(&mapping.file);
            if !is_known && !self.rate_limiter.try_acquire(has_lasted, self.known.len()) {
                continue;
            }
            let mapped = Mapped {
                pid,
                mapping: &mapping,
                is_program,
            };
            self.register(mapped, programs);
            self.add_user(pid, mapping.file);
            has_collectives |= self
                .library(mapping.file)
                .is_some_and(|library| library.functions.has_collectives);
            if is_program && matches!(self.known.get(&mapping.file), Some(Known::Irrelevant)) {
                self.ignore_cache.add(mapping.path);
            }
        }
        has_collectives
    }

    /// Removes a process from the users of all files.
    pub(super) fn remove_user(&mut self, pid: u32, now_ns: u64) {
        for library in self.libraries_mut() {
            if library.users.remove(&pid) && library.users.is_empty() {
                library.unused_since_ns = Some(now_ns);
            }
        }
    }

    /// Removes the probes of files that are no longer mapped, and of those that were changed in
    /// place; the next inspection finds their new contents.
    pub(super) fn remove_unused(&mut self, now_ns: u64) {
        let newly_deferred = self.rate_limiter.take_newly_deferred();
        if newly_deferred > 0 {
            tracing::warn!(
                files = newly_deferred,
                "not inspected when they were mapped, because of the rate limit; long-lived processes are inspected again"
            );
        }
        let guard = self.guard;
        let is_stale = self.ignore_cache.expire(now_ns);
        self.known.retain(|_, known| {
            let Known::Probed(library) = known else {
                return match known {
                    Known::Irrelevant => !is_stale,
                    // The obstacle may be gone, but a process that a probe would kill may still be
                    // there.
                    Known::Unprobeable(_) => !is_stale || guard.is_needed(),
                    Known::SameAs(_) | Known::Probed(_) => true,
                };
            };
            let is_changed = Version::from_file(&library.file).ok() != Some(library.version);
            let is_unused = library
                .unused_since_ns
                .is_some_and(|since_ns| now_ns.saturating_sub(since_ns) > LINGER_NS);
            if is_changed {
                tracing::warn!(
                    path = library.path,
                    "a library was changed in place; its probes are removed and attached again"
                );
            }
            if is_changed || is_unused {
                library.probes.unpin();
                self.detached.extend(&library.users);
            }
            !is_changed && !is_unused
        });
        let probed: HashSet<FileId> = self.probed().map(|(file, _)| file).collect();
        self.known
            .retain(|_, known| !matches!(known, Known::SameAs(other) if !probed.contains(other)));
    }

    /// Returns the offsets of rank and size in communicators of the library that a process calls.
    pub(super) fn comm_fields_of(&self, pid: u32) -> Option<CommFields> {
        let of_process = |library: &Library| {
            library
                .users
                .contains(&pid)
                .then_some(library.functions.fields)
        };
        self.probed()
            .find_map(|(_, library)| of_process(library).flatten())
    }

    /// Returns the processes whose calls were not seen for a while, or are no longer seen, because
    /// a library of theirs lost its probes.
    pub(super) fn take_detached(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.detached)
    }

    /// Removes the probes of an earlier agent that no process uses.
    pub(super) fn clear_stale_probes(&mut self) {
        self.stale_probes.clear();
    }

    /// Returns whether the calls of a process were seen while no agent was running.
    pub(super) fn was_probed_throughout(&self, pid: u32) -> bool {
        self.probed().any(|(_, library)| {
            library.is_restored && library.functions.has_collectives && library.users.contains(&pid)
        })
    }

    /// Returns the processes that map a probed file.
    pub(super) fn users(&self) -> BTreeSet<u32> {
        let users = self.probed().map(|(_, library)| &library.users);
        users.flatten().copied().collect()
    }

    /// Removes all probes from the BPF file system.
    pub(super) fn unpin(&mut self) {
        self.stale_probes.clear();
        for library in self.libraries_mut() {
            library.probes.unpin();
        }
    }

    fn probed(&self) -> impl Iterator<Item = (FileId, &Library)> {
        self.known.iter().filter_map(|(file, known)| match known {
            Known::Probed(library) => Some((*file, library.as_ref())),
            _ => None,
        })
    }

    fn libraries_mut(&mut self) -> impl Iterator<Item = &mut Library> {
        self.known.values_mut().filter_map(|known| match known {
            Known::Probed(library) => Some(library.as_mut()),
            _ => None,
        })
    }

    fn library(&mut self, file: FileId) -> Option<&mut Library> {
        let file = match self.known.get(&file)? {
            Known::SameAs(other) => *other,
            _ => file,
        };
        match self.known.get_mut(&file)? {
            Known::Probed(library) => Some(library),
            _ => None,
        }
    }

    fn add_user(&mut self, pid: u32, file: FileId) {
        let is_forbidden = self.library(file).is_some() && self.guard.forbids(&self.proc, pid);
        if is_forbidden {
            // The probe endangers this process: it is removed at once, for all.
            let reason = seccomp_reason(pid);
            tracing::warn!(pid, "{reason}");
            if let Some(library) = self.library(file) {
                library.probes.unpin();
                let users = std::mem::take(&mut library.users);
                self.detached.extend(users);
            }
            if let Some(Known::SameAs(other)) =
                self.known.insert(file, Known::Unprobeable(reason.clone()))
            {
                self.known.insert(other, Known::Unprobeable(reason));
            }
        } else if let Some(library) = self.library(file) {
            library.users.insert(pid);
            library.unused_since_ns = None;
        }
    }

    fn register(&mut self, mapped: Mapped<'_>, programs: &Programs) {
        let Mapped { pid, mapping, .. } = mapped;
        if self.known.contains_key(&mapping.file) {
            return;
        }
        let known = match open(&self.proc, pid, mapping) {
            Ok(_) if self.guard.forbids(&self.proc, pid) => Known::Unprobeable(seccomp_reason(pid)),
            // On a slow disk this can take longer than the ring buffer lasts.
            Ok(file) => programs.read_during(|| self.probe(mapped, file, programs)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => Known::Unprobeable(format!("{}: {error}", mapping.path.display())),
        };
        if let Known::Unprobeable(reason) = &known {
            tracing::warn!(pid, "a library cannot be probed: {reason}");
        }
        self.known.insert(mapping.file, known);
    }

    fn probe(&mut self, mapped: Mapped<'_>, file: File, programs: &Programs) -> Known {
        let (pid, mapping) = (mapped.pid, mapped.mapping);
        let path = mapping.path.to_string_lossy().into_owned();
        let found = Version::from_file(&file)
            .map_err(|error| error.to_string())
            .and_then(|version| {
                let functions = Functions::find(
                    &file,
                    families(mapping.path, mapped.is_program),
                    self.count_options,
                );
                functions
                    .map(|functions| (version, functions))
                    .map_err(|error| error.to_string())
            });
        let (version, functions) = match found {
            Ok(found) => found,
            Err(_) if mapped.is_program => return Known::Irrelevant,
            Err(error) => return Known::Unprobeable(format!("{path}: {error}")),
        };
        if !functions.refused.is_empty() {
            tracing::warn!(
                path,
                functions = functions.refused.join(" "),
                "not probed: their first instruction would make the probe slow"
            );
        }
        if functions.probes.is_empty() {
            return Known::Irrelevant;
        }
        if let Some(other) = self.probed_elsewhere(pid, mapping, version, &functions) {
            return Known::SameAs(other);
        }
        let mapped = MappedFile {
            pid,
            mapping,
            file: &file,
            version,
        };
        match self.attach(mapped, &functions, programs) {
            Ok(Attached {
                probes,
                is_restored,
            }) => {
                tracing::info!(path, functions = functions.probes.len(), "watching");
                let users = std::iter::once(pid).collect();
                Known::Probed(Box::new(Library {
                    path,
                    file,
                    inode: mapping.file.inode,
                    version,
                    functions,
                    probes,
                    users,
                    unused_since_ns: None,
                    is_restored,
                }))
            }
            Err(error) => Known::Unprobeable(format!("{path}: {error}")),
        }
    }

    /// Returns the known file that is the same as this one seen through another mount, if the
    /// process already has the probe in its memory.
    fn probed_elsewhere(
        &self,
        pid: u32,
        mapping: &Mapping<'_>,
        version: Version,
        functions: &Functions,
    ) -> Option<FileId> {
        let alike = self
            .probed()
            .find(|(_, library)| library.may_be_same_file(mapping.file.inode, version));
        let (other, _) = alike?;
        has_probe(&self.proc, pid, mapping, &functions.probes).then_some(other)
    }

    /// Returns the probes that an earlier agent left in a file; attaches new ones if there are none.
    fn attach(
        &mut self,
        mapped: MappedFile<'_>,
        functions: &Functions,
        programs: &Programs,
    ) -> Result<Attached, AttachError> {
        let MappedFile { pid, mapping, .. } = mapped;
        let owner = Owner {
            file: mapping.file,
            version: mapped.version,
        };
        let links = programs.n_links(&functions.probes);
        let is_probed = || has_probe(&self.proc, pid, mapping, &functions.probes);
        let restored = self.stale_probes.take(owner, links);
        if let Some(probes) =
            restored.or_else(|| self.stale_probes.take_same_file(owner, links, is_probed))
        {
            return Ok(Attached {
                probes,
                is_restored: true,
            });
        }
        let path = format!("/proc/self/fd/{}", mapped.file.as_raw_fd());
        let mut probes = programs.attach(Path::new(&path), &functions.probes)?;
        if self.stale_probes.is_enabled()
            && let Err(error) = probes.pin(|n| self.stale_probes.pin(owner, n).unwrap_or_default())
        {
            tracing::warn!("probes cannot be pinned and end with this agent: {error}");
        }
        Ok(Attached {
            probes,
            is_restored: false,
        })
    }
}

fn seccomp_reason(pid: u32) -> String {
    format!(
        "process {pid} maps it under a seccomp filter, and a return probe would kill it on this kernel"
    )
}
