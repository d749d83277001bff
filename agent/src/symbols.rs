//! Where functions begin in an ELF file, from its headers and symbol tables alone: a library of half a gigabyte takes a few
//! milliseconds.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use object::elf::{
    FileHeader64, PF_X, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, SectionType,
};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, elf};
use thiserror::Error;

/// Largest symbol table that is read for the sake of functions that a file does not export, bytes.
const MAX_SYMTAB: u64 = 256 << 20;

/// Why a file cannot be searched.
#[derive(Debug, Error)]
#[error("not an ELF file of 64 bits that can be read: {0}")]
pub struct SymbolError(#[from] object::Error);

/// A function of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its first bytes.
    pub code: [u8; 8],
}

/// Finds functions by name: among the symbols that the file exports, else among all that it has.
pub fn find(
    file: impl Read + Seek,
    names: &[&'static str],
) -> Result<BTreeMap<&'static str, Place>, SymbolError> {
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let mut found = BTreeMap::new();
    for table in [SHT_DYNSYM, SHT_SYMTAB] {
        search(header, endian, data, (table, names), &mut found)?;
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

fn search<'data, R: ReadRef<'data>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
    (table, names): (SectionType, &[&'static str]),
    found: &mut BTreeMap<&'static str, Place>,
) -> Result<(), SymbolError> {
    let sections = header.sections(endian, data)?;
    let size = |section: &elf::SectionHeader64<Endianness>| section.sh_size.get(endian);
    let is_large = |section| size(section) > MAX_SYMTAB;
    let of_kind = sections
        .iter()
        .find(|section| section.sh_type.get(endian) == table);
    if of_kind.is_none_or(is_large) {
        return Ok(());
    }
    let symbols = sections.symbols(endian, data, table)?;
    let segments = header.program_headers(endian, data)?;
    for symbol in symbols.iter() {
        // An indirect function's symbol is that of its resolver.
        if symbol.st_type() != STT_FUNC || symbol.st_shndx(endian) == SHN_UNDEF {
            continue;
        }
        let name = symbol.name(endian, symbols.strings())?;
        let Some(name) = names.iter().find(|wanted| wanted.as_bytes() == name) else {
            continue;
        };
        if let Some(place) = place(segments, endian, data, symbol.st_value(endian)) {
            found.insert(*name, place);
        }
    }
    Ok(())
}

fn place<'data, R: ReadRef<'data>>(
    segments: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    data: R,
    address: u64,
) -> Option<Place> {
    let of_address = |segment: &&elf::ProgramHeader64<Endianness>| {
        segment.p_type(endian) == PT_LOAD
            && segment.p_flags(endian).contains(PF_X)
            && address
                .checked_sub(segment.p_vaddr(endian))
                .is_some_and(|at| at < segment.p_filesz(endian))
    };
    let segment = segments.iter().find(of_address)?;
    let offset = address - segment.p_vaddr(endian) + segment.p_offset(endian);
    let code = data.read_bytes_at(offset, 8).ok()?.try_into().ok()?;
    Some(Place { offset, code })
}
