//! Probed file: its functions, and its identity.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use fleet_agent_bpf::programs::{Probe, Probes};

use crate::comm_fields::CommFields;
use crate::functions::{FUNCTIONS, Family, Function, ProbeWhen};
use crate::instruction::probe_point;
use crate::symbols::{self, Symbol, SymbolError};
use crate::watch::Watched;

/// Name prefixes of libraries that contain NCCL or RCCL.
const COLLECTIVES: [&str; 5] = [
    "libnccl.so",
    "librccl.so",
    "libtorch_cuda",
    "libtorch_hip",
    "libtensorflow",
];
const RUNTIMES: [&str; 2] = ["libcudart.so", "libamdhip64.so"];
const DRIVERS: [&str; 1] = ["libcuda.so"];
const VERBS: [&str; 1] = ["libibverbs.so"];
/// Echo's own plugin, under its name or the one that NCCL searches by default.
const PROFILERS: [&str; 2] = ["libfleet_nccl_profiler.so", "libnccl-profiler.so"];

/// Functions that are not probed, but read: their code contains the offsets of rank and size in a
/// communicator.
const USER_RANK: &str = "ncclCommUserRank";
const COUNT: &str = "ncclCommCount";
/// Maximum number of bytes read of one of them. They have some hundred.
const MAX_CODE: usize = 8192;

/// One in so many launches is measured for its size.
const LAUNCH_SAMPLING: u32 = 16;

/// Handling of calls that are too frequent to be probed in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Detail {
    /// Not probed.
    #[default]
    Off,
    /// Counted, by a probe of the entry.
    Count,
    /// Measured, by probes of entry and return.
    Measure,
}

/// Functions counted or measured besides collectives, waits and calls that are rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountOptions {
    /// Copies between host and device.
    pub copies: Detail,
    /// Kernel launches.
    pub launches: Detail,
    /// Measures processes that call CUDA or HIP and not NCCL, too.
    pub all_processes: bool,
}

impl CountOptions {
    /// Returns that one in so many launches is measured for its size; 0 if none is.
    pub(super) fn launch_sampling(self) -> u32 {
        match self.launches {
            Detail::Measure => LAUNCH_SAMPLING,
            Detail::Off | Detail::Count => 0,
        }
    }

    /// Returns the function as it is to be probed; `None` if it is not to be.
    fn select(self, function: &Function) -> Option<Function> {
        let detail = match function.probe_when {
            ProbeWhen::Always => Detail::Count,
            ProbeWhen::Copies => self.copies,
            ProbeWhen::MeasuredCopies if self.copies == Detail::Measure => Detail::Count,
            ProbeWhen::Launches => self.launches,
            ProbeWhen::GraphLaunches => self.launches.max(Detail::Count),
            ProbeWhen::MeasuredLaunches if self.launches == Detail::Measure => Detail::Count,
            ProbeWhen::FastNop if has_fast_nop() => Detail::Count,
            ProbeWhen::SlowNop if !has_fast_nop() => Detail::Count,
            _ => Detail::Off,
        };
        match detail {
            Detail::Off => None,
            Detail::Count => Some(*function),
            Detail::Measure => Some(function.measured()),
        }
    }
}

/// Returns whether the kernel turns a probed `nop` of five bytes into a call instead of
/// single-stepping it.
fn has_fast_nop() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let version = (numbers.next(), numbers.next());
    matches!(version, (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 18))
}

/// Returns the function families that a file may contain, by its name; the program itself may
/// contain everything.
pub(super) fn families(path: &OsStr, is_program: bool) -> &'static [Family] {
    let name = path
        .as_bytes()
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    let begins = |names: &[&str]| names.iter().any(|known| name.starts_with(known.as_bytes()));
    if begins(&COLLECTIVES) {
        &[Family::Collectives]
    } else if begins(&RUNTIMES) {
        &[Family::Runtime]
    } else if begins(&DRIVERS) {
        &[Family::Driver]
    } else if begins(&VERBS) {
        &[Family::Verbs]
    } else if begins(&PROFILERS) {
        &[Family::Profiler]
    } else if is_program {
        &[Family::Collectives, Family::Runtime]
    } else {
        &[]
    }
}

/// Returns whether a file has the name of a library of the GPU stack.
pub(super) fn is_of_interest(path: &OsStr) -> bool {
    !families(path, false).is_empty()
}

/// Version of a file, which changes when it is modified in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) bytes: u64,
    pub(super) modified_ns: i128,
}

impl Version {
    pub(super) fn from_file(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Self {
            bytes: meta.len(),
            modified_ns,
        })
    }
}

/// Functions of a file that can be probed, and those that are skipped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Functions {
    pub(super) probes: Vec<Probe>,
    pub(super) refused: Vec<&'static str>,
    pub(super) has_collectives: bool,
    pub(super) fields: Option<CommFields>,
}

impl Functions {
    /// Finds the functions of these families.
    pub(super) fn find(
        file: &File,
        families: &[Family],
        count_options: CountOptions,
    ) -> Result<Self, SymbolError> {
        let of_family = |function: &&Function| {
            families.contains(&function.family) && count_options.select(function).is_some()
        };
        let mut names: Vec<&'static str> = FUNCTIONS
            .iter()
            .filter(of_family)
            .map(|function| function.name)
            .collect();
        names.extend([USER_RANK, COUNT]);
        let found = symbols::find(file, &names)?;
        let mut chosen = Self::choose(&found, count_options);
        chosen.fields = fields(file, &found);
        Ok(chosen)
    }

    fn choose(found: &BTreeMap<&'static str, Symbol>, count_options: CountOptions) -> Self {
        let mut chosen = Self::default();
        // Two names may denote one function, and one probe is enough.
        let mut used_offsets = BTreeSet::new();
        for (op, function) in (0_u8..).zip(&FUNCTIONS) {
            let selected = found.get(function.name).zip(count_options.select(function));
            let Some((symbol, function)) = selected else {
                continue;
            };
            chosen.has_collectives |= function.family == Family::Collectives;
            let point = if function.is_hot() {
                probe_point(symbol)
            } else {
                Some(symbol.offset)
            };
            match point {
                Some(offset) if used_offsets.insert(offset) => chosen.probes.push(Probe {
                    offset,
                    cookie: function.cookie(op),
                    returns: function.returns(),
                }),
                Some(_) => {}
                None => chosen.refused.push(function.name),
            }
        }
        chosen
    }
}

/// Returns the offsets of rank and size in a communicator, as far as the library's code shows them.
fn fields(file: &File, found: &BTreeMap<&'static str, Symbol>) -> Option<CommFields> {
    let code = |name: &str| {
        let symbol = found.get(name)?;
        let mut code = vec![0; usize::try_from(symbol.bytes).ok()?.min(MAX_CODE)];
        file.read_exact_at(&mut code, symbol.offset).ok()?;
        Some(code)
    };
    CommFields::from_code(&code(USER_RANK)?, &code(COUNT)?)
}

/// Probed file.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) path: String,
    /// Kept open to detect changes, and to name it without a race.
    pub(super) file: File,
    pub(super) inode: u64,
    pub(super) version: Version,
    pub(super) functions: Functions,
    pub(super) probes: Probes,
    pub(super) users: BTreeSet<u32>,
    pub(super) unused_since_ns: Option<u64>,
    /// Set if an earlier agent attached its probes, which kept counting meanwhile.
    pub(super) is_restored: bool,
}

impl Library {
    pub(super) fn watched(&self) -> Watched {
        Watched {
            path: self.path.clone(),
            functions: self.functions.probes.len(),
            refused: self.functions.refused.clone(),
            users: self.users.iter().copied().collect(),
            has_collectives: self.functions.has_collectives,
        }
    }

    /// Returns whether a file seen through another mount may be this one: an overlay passes on
    /// inode, size and time of the file in its layer, under a device of its own.
    pub(super) fn may_be_same_file(&self, inode: u64, version: Version) -> bool {
        self.inode == inode && self.version == version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(offset: u64, first: u8) -> Symbol {
        Symbol {
            offset,
            bytes: 8,
            code: [first, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn libraries_are_recognized_by_name_and_programs_may_contain_everything() {
        let families_of = |path: &str, is_program| families(OsStr::new(path), is_program);
        assert_eq!(
            families_of("/opt/venv/lib/libnccl.so.2", false),
            [Family::Collectives]
        );
        assert_eq!(
            families_of("/usr/lib/libcudart.so.13.0.96", false),
            [Family::Runtime]
        );
        assert_eq!(
            families_of("/usr/lib/libcuda.so.1", false),
            [Family::Driver]
        );
        assert_eq!(
            families_of("/usr/lib/libibverbs.so.1", false),
            [Family::Verbs]
        );
        assert_eq!(
            families_of("/opt/libfleet_nccl_profiler.so", false),
            [Family::Profiler]
        );
        assert!(families_of("/usr/lib/libc.so.6", false).is_empty());
        assert_eq!(
            families_of("/usr/bin/train", true),
            [Family::Collectives, Family::Runtime]
        );
    }

    #[test]
    fn a_hot_function_that_would_be_single_stepped_is_refused_and_a_rare_one_is_not() {
        let found = BTreeMap::from([
            ("ncclAllReduce", symbol(0x100, 0x55)),
            ("ncclAllGather", symbol(0x200, 0x31)),
            ("ncclCommInitRankConfig", symbol(0x300, 0x31)),
        ]);
        let chosen = Functions::choose(&found, CountOptions::default());
        let offsets: Vec<u64> = chosen.probes.iter().map(|probe| probe.offset).collect();
        assert_eq!(
            (offsets, chosen.refused),
            (vec![0x100, 0x300], vec!["ncclAllGather"])
        );
    }

    #[test]
    fn two_names_of_one_function_get_one_probe() {
        let found = BTreeMap::from([
            ("ncclAlltoAll", symbol(0x100, 0x55)),
            ("ncclAllToAll", symbol(0x100, 0x55)),
        ]);
        let chosen = Functions::choose(&found, CountOptions::default());
        assert_eq!(chosen.probes.len(), 1);
    }

    #[test]
    fn a_launch_is_skipped_counted_or_measured() {
        let found = BTreeMap::from([
            ("cudaLaunchKernel", symbol(0x100, 0x55)),
            ("cuLaunchKernel", symbol(0x200, 0x55)),
            ("cudaGraphLaunch", symbol(0x300, 0x55)),
        ]);
        let probed = |launches| {
            let options = CountOptions {
                launches,
                ..CountOptions::default()
            };
            let chosen = Functions::choose(&found, options);
            let probes = chosen.probes.iter();
            probes
                .map(|probe| (probe.offset, probe.returns))
                .collect::<Vec<_>>()
        };
        assert_eq!(probed(Detail::Off), [(0x300, false)]);
        // Whether the runtime calls the driver is known only from the return.
        assert_eq!(probed(Detail::Count), [(0x100, false), (0x300, false)]);
        assert_eq!(
            probed(Detail::Measure),
            [(0x100, true), (0x200, true), (0x300, true)]
        );
    }
}
