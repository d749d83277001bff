//! Files to inspect, and their states.

use std::fs::File;

use fleet_agent_bpf::programs::Probes;

use crate::watch::library::{Library, Version};
use crate::watch::mapping::{FileId, Mapping};

/// State of an inspected file.
#[derive(Debug)]
pub(super) enum Known {
    /// Without relevant functions.
    Irrelevant,
    /// Alias of another file, seen through another mount.
    SameAs(FileId),
    /// Probed.
    Probed(Box<Library>),
    /// Not probed, with the reason.
    Unprobeable(String),
}

/// Selection of the files of a process to inspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::watch) enum Files {
    /// Libraries with names of the GPU stack.
    Libraries,
    /// Libraries, and the program itself, which may contain them; checking that takes longer.
    All,
}

/// Process to inspect.
#[derive(Debug, Clone, Copy)]
pub(in crate::watch) struct Inspected {
    pub(in crate::watch) pid: u32,
    /// Set if it was already there at the previous scan.
    pub(in crate::watch) has_lasted: bool,
}

/// Mapped file of a process.
#[derive(Clone, Copy)]
pub(super) struct Mapped<'a> {
    pub(super) pid: u32,
    pub(super) mapping: &'a Mapping<'a>,
    /// Set if it is the program itself.
    pub(super) is_program: bool,
}

/// Mapped file of a process, opened.
#[derive(Clone, Copy)]
pub(super) struct MappedFile<'a> {
    pub(super) pid: u32,
    pub(super) mapping: &'a Mapping<'a>,
    pub(super) file: &'a File,
    pub(super) version: Version,
}

/// Probes of a file.
pub(super) struct Attached {
    pub(super) probes: Probes,
    /// Set if an earlier agent attached them.
    pub(super) is_restored: bool,
}
