//! Lookup of functions in an ELF file by its headers and symbol tables: a library of half a
//! gigabyte takes a few milliseconds, and memory for one piece of a table.

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

/// Maximum size of a searched table, bytes.
const MAX_TABLE: u64 = 512 << 20;
/// Words of which a relevant file contains at least one.
const WORDS: [&str; 5] = [
    "ncclAllReduce",
    "StreamSynchronize",
    "GraphLaunch",
    "ibv_ack_async_event",
    "fleet_nccl_record",
];
/// Bytes of a table that are read at once: a multiple of the symbol size.
const PIECE: usize = SYMBOL * 16_384;
/// Size of a symbol, bytes.
const SYMBOL: usize = 24;
/// Size of a symbol version, bytes.
const VERSION: usize = 2;

/// Error of searching a file.
#[derive(Debug, Error)]
pub enum SymbolError {
    /// Not a 64-bit ELF file.
    #[error("not a 64-bit ELF file ({0})")]
    Foreign(#[from] object::Error),
    /// Read error.
    #[error("cannot be read ({0})")]
    Unreadable(#[from] io::Error),
}

/// Function of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// First bytes of its code.
    pub code: [u8; 8],
}

/// Finds functions by name: among the exported symbols, else among all symbols of the file.
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
        let Some(SymbolTable { symbols, strings }) = symbol_table(&all, endian, kind) else {
            continue;
        };
        if !contains_any(file, strings, &WORDS)? {
            continue;
        }
        let wanted = name_offsets(file, strings, names)?;
        if wanted.is_empty() {
            continue;
        }
        let superseded = superseded(file, &all, endian, kind)?;
        let addresses = functions(file, symbols, &wanted, &superseded)?;
        let found = addresses
            .into_iter()
            .filter_map(|(name, address)| Some((name, locate(file, &segments, address)?)));
        let found: BTreeMap<_, _> = found.collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(BTreeMap::new())
}

/// Executable segment of the file.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// Virtual address range of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    address: u64,
    bytes: u64,
}

/// Table in the file.
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

    /// Visits its bytes piece by piece, each with its offset in the table; each piece begins with
    /// the last `overlap` bytes of the previous one.
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

/// Symbols and the strings that contain their names.
#[derive(Debug, Clone, Copy)]
struct SymbolTable {
    symbols: Table,
    strings: Table,
}

/// Returns the symbol table of a kind with its string table.
fn symbol_table(
    sections: &[&SectionHeader64<Endianness>],
    endian: Endianness,
    kind: SectionType,
) -> Option<SymbolTable> {
    let symbols = sections
        .iter()
        .find(|section| section.sh_type(endian) == kind)?;
    let link = usize::try_from(symbols.sh_link(endian)).ok()?;
    Some(SymbolTable {
        symbols: Table::from_section(symbols, endian)?,
        strings: Table::from_section(sections.get(link)?, endian)?,
    })
}

/// Returns the numbers of symbols that only programs linked long ago use: a library may have
/// several versions of one function.
fn superseded(
    file: &File,
    sections: &[&SectionHeader64<Endianness>],
    endian: Endianness,
    kind: SectionType,
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

/// Returns whether any string contains one of these words: most programs contain none, and this is
/// ten times as fast as searching all names.
fn contains_any(file: &File, strings: Table, words: &[&str]) -> Result<bool, SymbolError> {
    let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
    let searches: Vec<Finder<'_>> = words.iter().map(Finder::new).collect();
    let mut holds = false;
    strings.pieces(file, longest, |_, piece| {
        holds = holds || searches.iter().any(|search| search.find(piece).is_some());
    })?;
    Ok(holds)
}

/// Returns the offsets of the names in the string table. A name may be the end of a longer string.
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

/// Returns the addresses of the functions with these names.
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

/// Parses an `Elf64_Sym`: name, info, other, section, value, size. All supported machines are
/// little-endian.
fn function(
    symbol: &[u8; SYMBOL],
    wanted: &HashMap<u32, &'static str>,
) -> Option<(&'static str, Range)> {
    let (name, rest) = symbol.split_first_chunk()?;
    let name = *wanted.get(&u32::from_le_bytes(*name))?;
    let (&[info, _other, section_low, section_high], rest) = rest.split_first_chunk()?;
    let (value, rest) = rest.split_first_chunk()?;
    let (bytes, _) = rest.split_first_chunk()?;
    // The symbol of an indirect function is that of its resolver, and a symbol of section 0 is
    // defined in another file.
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
    fn a_text_file_is_not_an_elf_file() {
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
    fn the_default_version_of_a_function_is_found() {
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
    fn undefined_symbols_and_symbols_of_other_types_are_ignored() {
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
