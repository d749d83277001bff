//! From registers to the addresses of the callers, by the unwind tables of the mapped files.

use std::fs::File;
use std::io;
use std::ops::Range;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment};
use proc_maps::{MapRange, get_process_maps};

use crate::registers::Registers;

/// Maximum number of frames of a stack.
const MAX_FRAMES: usize = 128;
/// Maximum bytes of unwind tables in memory; the files beyond are unwound by frame pointers.
const MAX_TABLES: usize = 64 << 20;

/// Unwinder of one process.
pub(crate) struct ProcessUnwinder {
    pid: u32,
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    mappings: Vec<Mapping>,
    table_bytes: usize,
}

/// Executable mapping of a file.
struct Mapping {
    range: Range<u64>,
    offset: u64,
    path: Option<String>,
    is_loaded: bool,
}

/// Address of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeAddress {
    /// Instruction that is executed, or the one after the call.
    pub(crate) address: u64,
    /// Whether it is a return address.
    pub(crate) is_return: bool,
    /// Where the thread keeps the return address; `None` if it is in a register.
    pub(crate) slot: Option<Slot>,
}

/// Word of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) address: u64,
    pub(crate) value: u64,
}

impl ProcessUnwinder {
    /// Reads what a process maps.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let mut unwinder = Self {
            pid,
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            mappings: Vec::new(),
            table_bytes: 0,
        };
        unwinder.read_mappings()?;
        Ok(unwinder)
    }

    /// Returns the addresses from the innermost frame on, as far as they can be trusted: each lies
    /// in executable memory.
    pub(crate) fn unwind(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> Vec<CodeAddress> {
        let mut words = Vec::new();
        let mut state = native_registers(registers);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip);
        let mut addresses: Vec<CodeAddress> = Vec::new();
        while addresses.len() < MAX_FRAMES && self.load(address.address_for_lookup()) {
            addresses.push(CodeAddress {
                address: address.address(),
                is_return: address.is_return_address(),
                slot: words.iter().rev().find(holds(address)).copied(),
            });
            words.clear();
            let mut read = |address| {
                let value = read(address).ok_or(())?;
                words.push(Slot { address, value });
                Ok(value)
            };
            let caller =
                self.unwinder
                    .unwind_frame(address, &mut state, &mut self.cache, &mut read);
            let Ok(Some(caller)) = caller else { break };
            let Some(next) = FrameAddress::from_return_address(caller) else {
                break;
            };
            address = next;
        }
        addresses
    }

    /// Returns the path and the offset in the file of an address.
    pub(crate) fn file_at(&self, address: u64) -> (Option<&str>, u64) {
        let mapping = self.mappings.iter().find(|it| it.range.contains(&address));
        mapping.map_or((None, address), |mapping| {
            let offset = address - mapping.range.start + mapping.offset;
            (mapping.path.as_deref(), offset)
        })
    }

    /// Returns whether the process maps an interpreter of Python.
    pub(crate) fn is_python(&self) -> bool {
        let paths = self.mappings.iter().filter_map(|it| it.path.as_deref());
        let mut names = paths.filter_map(|path| path.rsplit('/').next());
        names.any(|name| name.starts_with("python") || name.starts_with("libpython"))
    }

    /// Loads the unwind tables for an address and returns whether it is executable.
    fn load(&mut self, address: u64) -> bool {
        let known = |mappings: &[Mapping]| {
            let contains = |mapping: &Mapping| mapping.range.contains(&address);
            mappings.iter().position(contains)
        };
        let index = known(&self.mappings).or_else(|| {
            // Mapped since the last look.
            self.read_mappings().ok()?;
            known(&self.mappings)
        });
        let Some(mapping) = index.and_then(|index| self.mappings.get_mut(index)) else {
            return false;
        };
        if std::mem::replace(&mut mapping.is_loaded, true) || self.table_bytes >= MAX_TABLES {
            return true;
        }
        let loaded = open(self.pid, mapping).and_then(|file| module(&file, mapping));
        if let Some((module, bytes)) = loaded {
            self.table_bytes += bytes;
            self.unwinder.add_module(module);
        }
        true
    }

    fn read_mappings(&mut self) -> io::Result<()> {
        let pid = i32::try_from(self.pid).map_err(io::Error::other)?;
        let ranges = get_process_maps(pid)?;
        for range in ranges.iter().filter(|range| range.is_exec()) {
            let mapping = Mapping::new(range);
            let is_known = |known: &Mapping| known.range.start == mapping.range.start;
            if !self.mappings.iter().any(is_known) {
                self.mappings.push(mapping);
            }
        }
        Ok(())
    }
}

impl Mapping {
    fn new(range: &MapRange) -> Self {
        let start = range.start() as u64;
        Self {
            range: start..start + range.size() as u64,
            offset: range.offset as u64,
            path: range.filename().map(|path| path.display().to_string()),
            is_loaded: false,
        }
    }
}

/// Returns whether a word of the stack is a return address, which may be signed in its upper bits.
fn holds(address: FrameAddress) -> impl Fn(&&Slot) -> bool {
    const UNSIGNED: u64 = (1 << 47) - 1;
    move |word| word.value & UNSIGNED == address.address() & UNSIGNED
}

/// Opens the file of a mapping: the very one, which may have been replaced or removed since, else
/// the one at its path in the root of the process.
fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    let Range { start, end } = mapping.range;
    let path = mapping
        .path
        .as_deref()
        .filter(|path| path.starts_with('/'))?;
    let by_range = File::open(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
    by_range
        .or_else(|_| File::open(format!("/proc/{pid}/root{path}")))
        .ok()
}

/// Reads the unwind tables of a file, and returns their size in bytes as well.
fn module(file: &File, mapping: &Mapping) -> Option<(Module<Vec<u8>>, usize)> {
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    let segment = elf.segments().find(|segment| {
        let (offset, size) = segment.file_range();
        (offset & !0xfff..offset + size).contains(&mapping.offset)
    })?;
    let (offset, _) = segment.file_range();
    let base = mapping
        .range
        .start
        .wrapping_sub(mapping.offset)
        .wrapping_add(offset)
        .wrapping_sub(segment.address());
    let range_of = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some(section.address()..section.address() + section.size())
    };
    let section = |name: &str| {
        let section = elf.section_by_name(name)?;
        Some((range_of(name)?, section.data().ok()?.to_vec()))
    };
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    let bytes = [&eh_frame, &eh_frame_hdr].map(|table| table.as_ref().map_or(0, Vec::len));
    let info = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range_of(".text"),
        got_svma: range_of(".got"),
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..ExplicitModuleSectionInfo::default()
    };
    let name = mapping.path.clone().unwrap_or_default();
    let module = Module::new(name, mapping.range.clone(), base, info);
    Some((module, bytes.iter().sum()))
}

#[cfg(target_arch = "x86_64")]
fn native_registers(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native_registers(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.lr, registers.sp, registers.fp)
}
