//! Selection of the exact probe address within a function.
//!
//! The kernel emulates a few instructions and has to single-step all others. In a virtual machine
//! the trap of a single step goes to the hypervisor: 15 us per call instead of half a microsecond,
//! on a path that is called thousands of times a second.

use crate::symbols::Symbol;

/// `endbr64`, emitted where control flow enforcement is compiled in: it does nothing, and the
/// kernel single-steps it.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const NOP: u8 = 0x90;
/// Prefix for registers from 8 on.
const REX_B: u8 = 0x41;

/// Returns the file offset at which to probe a function that is called often, bytes; `None` if
/// every call would be single-stepped.
///
/// After an `endbr64`, arguments and return address are still in place, so a probe works there as
/// well.
pub fn probe_point(symbol: &Symbol) -> Option<u64> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some(symbol.offset);
    }
    let (skipped, code) = match symbol.code.strip_prefix(&ENDBR64) {
        Some(code) => (ENDBR64.len() as u64, code),
        None => (0, symbol.code.as_slice()),
    };
    is_emulated(code).then_some(symbol.offset + skipped)
}

/// Returns whether the kernel emulates the first instruction: `push` of any register, or a `nop` of
/// one byte.
fn is_emulated(code: &[u8]) -> bool {
    let is_push = |byte: u8| (0x50..=0x57).contains(&byte);
    match code {
        [NOP, ..] => true,
        [REX_B, byte, ..] | [byte, ..] => is_push(*byte),
        [] => false,
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    fn point(code: [u8; 8]) -> Option<u64> {
        probe_point(&Symbol {
            offset: 0x1000,
            bytes: 8,
            code,
        })
    }

    #[test]
    fn a_function_that_pushes_a_register_first_is_probed_there() {
        assert_eq!(point([0x55, 0x48, 0x89, 0xe5, 0, 0, 0, 0]), Some(0x1000));
        assert_eq!(point([0x41, 0x57, 0x41, 0x56, 0, 0, 0, 0]), Some(0x1000));
        assert_eq!(point([0x90, 0xc3, 0, 0, 0, 0, 0, 0]), Some(0x1000));
    }

    #[test]
    fn a_landing_pad_is_skipped() {
        assert_eq!(point([0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0, 0, 0]), Some(0x1004));
        assert_eq!(point([0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xc3, 0]), None);
    }

    #[test]
    fn single_stepped_instructions_are_refused() {
        for code in [
            [0x31, 0xc0],
            [0x48, 0x83],
            [0x48, 0x89],
            [0x41, 0xb8],
            [0xb8, 0x00],
        ] {
            let [first, second] = code;
            assert_eq!(point([first, second, 0, 0, 0, 0, 0, 0]), None, "{code:x?}");
        }
    }
}
