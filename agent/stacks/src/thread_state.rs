//! States of Python threads in the memory of the interpreter.
//!
//! `py-spy` reads either all threads or the one that holds the global interpreter lock (GIL), which
//! it finds by an address that can be set. Set to a word that points to the state of another thread,
//! it reads that one alone. In Python 3.10 to 3.15 a thread state begins with the previous state, the
//! next one and its interpreter.

use remoteprocess::{Process, ProcessMemory};

/// Number of words at the beginning of an interpreter that are searched for a thread state.
const SEARCHED: usize = 2048;
/// Maximum number of thread states.
const MAX_STATES: usize = 4096;
/// Bytes of a word.
const WORD: usize = 8;

/// Beginning of a thread state.
#[derive(Debug, Clone, Copy)]
struct State {
    address: usize,
    previous: usize,
    next: usize,
}

/// Returns the addresses of words that point to a thread state each, oldest thread first: the main
/// thread, as a rule. None if the list of threads is not found.
pub(crate) fn pointers(process: &Process, interpreter: usize) -> Vec<usize> {
    let words: Vec<usize> = process.copy_vec(interpreter, SEARCHED).unwrap_or_default();
    let mut places = (0..).step_by(WORD).zip(words);
    let found = places.find_map(|(offset, word)| {
        let newest = read(process, interpreter, word).filter(|state| state.previous == 0)?;
        Some((interpreter + offset, newest))
    });
    let Some((in_interpreter, newest)) = found else {
        return Vec::new();
    };
    let mut pointers = vec![in_interpreter];
    let mut state = newest;
    while let Some(next) = read(process, interpreter, state.next) {
        if next.previous != state.address || pointers.len() >= MAX_STATES {
            break;
        }
        pointers.push(state.address + WORD);
        state = next;
    }
    pointers.reverse();
    pointers
}

/// Reads a thread state of an interpreter; `None` if there is none at the address.
fn read(process: &Process, interpreter: usize, address: usize) -> Option<State> {
    if address == 0 || !address.is_multiple_of(WORD) {
        return None;
    }
    let [previous, next, own]: [usize; 3] = process.copy_struct(address).ok()?;
    (own == interpreter).then_some(State {
        address,
        previous,
        next,
    })
}
