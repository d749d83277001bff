//! Where functions begin in an ELF file, from its headers and symbol tables alone: a library of half a gigabyte takes a few
//! milliseconds, and memory for one piece of a table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aho_corasick::AhoCorasick;
use memchr::memmem::Finder;
use object::Endianness;
use object::elf::{
    FileHeader64, PF_X, PT_LOAD, SHT_DYNSYM, SHT_GNU_VERSYM, SHT_SYMTAB, STT_FUNC, SectionHeader64,
    SectionType, VersymIndex,
};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use thiserror::Error;

/// Largest table that is searched, bytes.
const MAX_TABLE: u64 = 512 << 20;
/// Words of which the names of a file with anything of interest hold one.
const WORDS: [&str; 5] = [
    "ncclAllReduce",
    "StreamSynchronize",
    "GraphLaunch",
    "ibv_ack_async_event",
    "fleet_nccl_record",
];
/// Bytes of a table that are held at once: a multiple of a symbol's.
const PIECE: usize = SYMBOL * 16_384;
/// Bytes of one symbol.
const SYMBOL: usize = 24;
/// Bytes of a symbol's version.
const VERSION: usize = 2;

/// Why a file cannot be searched.
#[derive(Debug, Error)]
pub enum SymbolError {
    /// It is something else.
    #[error("not an ELF file of 64 bits ({0})")]
    Foreign(#[from] object::Error),
    /// It cannot be read.
    #[error("it cannot be read ({0})")]
    Unreadable(#[from] io::Error),
}

/// A function of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// How long it is, bytes.
    pub bytes: u64,
    /// Its first bytes.
    pub code: [u8; 8],
}

/// Finds functions by name: among the symbols that the file exports, else among all that it has.
pub fn find(
    file: &File,
    names: &[&'static str],
) -> Result<BTreeMap<&'static str, Symbol>, SymbolError> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &cache)?;
    let segments: Vec<Segment> = header
        .program_headers(endian, &cache)?
        .iter()
        .filter(|segment| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).contains(PF_X)
        })
        .map(|segment| Segment {
            address: segment.p_vaddr(endian),
            offset: segment.p_offset(endian),
            bytes: segment.p_filesz(endian),
        })
        .collect();
    let all: Vec<&SectionHeader64<Endianness>> = sections.iter().collect();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some((symbols, strings)) = tables(&all, endian, kind) else {
            continue;
        };
        if !contains_any(file, strings, &WORDS)? {
            continue;
        }
        let wanted = name_offsets(file, strings, names)?;
        if wanted.is_empty() {
            continue;
        }
        let superseded = superseded(file, &all, (endian, kind))?;
        let addresses = functions(file, symbols, &wanted, &superseded)?;
        let symbols_found = addresses
            .into_iter()
            .filter_map(|(name, address)| Some((name, locate(file, &segments, address)?)));
        let symbols_found: BTreeMap<_, _> = symbols_found.collect();
        if !symbols_found.is_empty() {
            return Ok(symbols_found);
        }
    }
    Ok(BTreeMap::new())
}

/// A part of the file that is mapped to be executed.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// Where a function lies when the file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    address: u64,
    bytes: u64,
}

/// A part of the file.
#[derive(Debug, Clone, Copy)]
struct Table {
    offset: u64,
    bytes: u64,
}

impl Table {
    fn from_section(section: &SectionHeader64<Endianness>, endian: Endianness) -> Option<Self> {
        let (offset, bytes) = section.file_range(endian)?;
        (bytes <= MAX_TABLE).then_some(Self { offset, bytes })
    }

    /// Its bytes, piece by piece; each begins with the last `overlap` bytes of the one before. With the offset in the table.
    fn pieces(
        self,
        file: &File,
        overlap: usize,
        mut visit: impl FnMut(u64, &[u8]),
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < self.bytes {
            let len = usize::try_from(self.bytes - at).unwrap_or(PIECE).min(PIECE);
            let Some(piece) = piece.get_mut(..len) else {
                break;
            };
            file.read_exact_at(piece, self.offset.saturating_add(at))?;
            visit(at, piece);
            if len < PIECE {
                break;
            }
            at += (len - overlap) as u64;
        }
        Ok(())
    }
}

/// The symbols of a kind, and the strings that they are named by.
fn tables(
    sections: &[&SectionHeader64<Endianness>],
    endian: Endianness,
    kind: SectionType,
) -> Option<(Table, Table)> {
    let symbols = sections
        .iter()
        .find(|section| section.sh_type(endian) == kind)?;
    let link = usize::try_from(symbols.sh_link(endian)).ok()?;
    Some((
        Table::from_section(symbols, endian)?,
        Table::from_section(sections.get(link)?, endian)?,
    ))
}

/// Symbols, by number, that only programs linked long ago are given: a library may have several versions of one function.
fn superseded(
    file: &File,
    sections: &[&SectionHeader64<Endianness>],
    (endian, kind): (Endianness, SectionType),
) -> Result<HashSet<u64>, SymbolError> {
    let mut superseded = HashSet::new();
    let versions = sections
        .iter()
        .find(|section| section.sh_type(endian) == SHT_GNU_VERSYM)
        .and_then(|section| Table::from_section(section, endian));
    if let Some(versions) = versions
        && kind == SHT_DYNSYM
    {
        versions.pieces(file, 0, |at, piece| {
            let (versions, _) = piece.as_chunks::<VERSION>();
            let numbered = (at / VERSION as u64..).zip(versions);
            let hidden = numbered
                .filter(|(_, version)| VersymIndex(u16::from_le_bytes(**version)).is_hidden());
            superseded.extend(hidden.map(|(number, _)| number));
        })?;
    }
    Ok(superseded)
}

/// Whether any string holds one of these words: of most programs none does, and this is ten times as fast as all names.
fn contains_any(file: &File, strings: Table, words: &[&str]) -> Result<bool, SymbolError> {
    let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
    let searches: Vec<Finder<'_>> = words.iter().map(Finder::new).collect();
    let mut holds = false;
    strings.pieces(file, longest, |_, piece| {
        holds = holds || searches.iter().any(|search| search.find(piece).is_some());
    })?;
    Ok(holds)
}

/// Where the names stand among the strings. One may be the end of a longer string.
fn name_offsets(
    file: &File,
    strings: Table,
    names: &[&'static str],
) -> Result<HashMap<u32, &'static str>, SymbolError> {
    let patterns: Vec<String> = names.iter().map(|name| format!("{name}\0")).collect();
    let longest = patterns.iter().map(String::len).max().unwrap_or(0);
    let Ok(search) = AhoCorasick::new(&patterns) else {
        return Ok(HashMap::new());
    };
    let mut found = HashMap::new();
    strings.pieces(file, longest, |at, piece| {
        for hit in search.find_overlapping_iter(piece) {
            if let (Some(name), Ok(offset)) = (
                names.get(hit.pattern().as_usize()),
                u32::try_from(at + hit.start() as u64),
            ) {
                found.insert(offset, *name);
            }
        }
    })?;
    Ok(found)
}

/// The addresses of the functions whose names stand there.
fn functions(
    file: &File,
    symbols: Table,
    wanted: &HashMap<u32, &'static str>,
    superseded: &HashSet<u64>,
) -> Result<BTreeMap<&'static str, Range>, SymbolError> {
    let mut found = BTreeMap::new();
    symbols.pieces(file, 0, |at, piece| {
        let (symbols, _) = piece.as_chunks::<SYMBOL>();
        for (number, symbol) in (at / SYMBOL as u64..).zip(symbols) {
            if let Some((name, range)) = function(symbol, wanted)
                && !superseded.contains(&number)
            {
                found.insert(name, range);
            }
        }
    })?;
    Ok(found)
}

/// `Elf64_Sym`: name, info, other, section, value, size. Every machine that the probes know has the low byte first.
fn function(
    symbol: &[u8; SYMBOL],
    wanted: &HashMap<u32, &'static str>,
) -> Option<(&'static str, Range)> {
    let (name, rest) = symbol.split_first_chunk()?;
    let name = *wanted.get(&u32::from_le_bytes(*name))?;
    let (&[info, _other, section_low, section_high], rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_first_chunk()?;
    let (bytes, _) = rest.split_first_chunk()?;
    // An indirect function's symbol is that of its resolver, and one of section 0 stands in another file.
    let is_function = info & 0xf == STT_FUNC.0 && (section_low, section_high) != (0, 0);
    let range = Range {
        address: u64::from_le_bytes(*value),
        bytes: u64::from_le_bytes(*bytes),
    };
    is_function.then_some((name, range))
}

fn locate(file: &File, segments: &[Segment], range: Range) -> Option<Symbol> {
    let Range { address, bytes } = range;
    let holds = |segment: &&Segment| {
        address
            .checked_sub(segment.address)
            .is_some_and(|at| at < segment.bytes)
    };
    let segment = segments.iter().find(holds)?;
    let offset = address - segment.address + segment.offset;
    let mut code = [0; 8];
    file.read_exact_at(&mut code, offset).ok()?;
    Some(Symbol {
        offset,
        bytes,
        code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_elf_file() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(
            find(&file, &["ncclAllReduce"]),
            Err(SymbolError::Foreign(_))
        ));
    }

    #[test]
    fn a_name_is_found_across_two_pieces_and_as_the_end_of_another() {
        let file = tempfile::tempfile().unwrap();
        let mut strings = vec![b'x'; PIECE - 6];
        strings.extend_from_slice(b"pncclAllReduce\0ncclAll\0");
        file.write_all_at(&strings, 0).unwrap();
        let table = Table {
            offset: 0,
            bytes: strings.len() as u64,
        };
        let found = name_offsets(&file, table, &["ncclAllReduce", "ncclAllGather"]).unwrap();
        let at = u32::try_from(PIECE - 5).unwrap();
        assert_eq!(found, HashMap::from([(at, "ncclAllReduce")]));
    }

    #[test]
    fn of_several_versions_of_a_function_the_one_in_use_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [source, script, library] =
            ["source.c", "script", "library.so"].map(|name| dir.path().join(name));
        let versions = "V1 { global: ibv_ack_async_event; local: *; };
            V2 { global: ibv_ack_async_event; } V1;\n";
        std::fs::write(&script, versions).unwrap();
        for in_use in ["first", "second"] {
            let other = if in_use == "first" { "second" } else { "first" };
            let text = format!(
                r#"long first(void) {{ return 0x1111111111111111; }}
                long second(void) {{ return 0x2222222222222222; }}
                __asm__(".symver {other}, ibv_ack_async_event@V1");
                __asm__(".symver {in_use}, ibv_ack_async_event@@V2");"#
            );
            std::fs::write(&source, text).unwrap();
            let mut cc = std::process::Command::new("cc");
            cc.args(["-O0", "-fPIC", "-shared", "-o"])
                .args([&library, &source]);
            cc.arg(format!("-Wl,--version-script={}", script.display()));
            assert!(cc.status().unwrap().success());
            let file = File::open(&library).unwrap();
            let found = find(&file, &["ibv_ack_async_event"]).unwrap()["ibv_ack_async_event"];
            let mut code = vec![0; usize::try_from(found.bytes).unwrap()];
            file.read_exact_at(&mut code, found.offset).unwrap();
            let byte = if in_use == "first" { 0x11 } else { 0x22 };
            assert!(code.windows(8).any(|bytes| bytes == [byte; 8]), "{in_use}");
        }
    }

    #[test]
    fn a_symbol_of_another_file_or_of_no_function_is_passed_over() {
        let wanted = HashMap::from([(7, "ncclAllReduce")]);
        let symbol = |info: u8, section: u8| {
            let mut bytes = [0; SYMBOL];
            (bytes[0], bytes[4], bytes[6], bytes[8], bytes[16]) = (7, info, section, 0x40, 0x15);
            function(&bytes, &wanted)
        };
        let range = Range {
            address: 0x40,
            bytes: 0x15,
        };
        assert_eq!(symbol(0x12, 11), Some(("ncclAllReduce", range)));
        assert_eq!(symbol(0x12, 0), None);
        assert_eq!(symbol(0x11, 11), None);
        assert_eq!(symbol(0x1a, 11), None);
    }
}
