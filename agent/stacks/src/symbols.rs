//! From addresses to functions, by the symbol tables of the files that the process maps.

use std::collections::HashMap;

use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use fleet_agent_core::event::Frame;

use crate::unwind::{CodeAddress, ProcessUnwinder};

/// Functions of one process.
pub(crate) struct Symbols {
    symbolizer: Symbolizer,
    process: Process,
    known: HashMap<u64, Frame>,
}

impl Symbols {
    /// Starts without any.
    pub(crate) fn new(pid: u32) -> Self {
        // No debug information: its files can be as large as the libraries.
        let symbolizer = Symbolizer::builder().enable_code_info(false).build();
        let mut process = Process::new(pid.into());
        process.debug_syms = false;
        process.perf_map = false;
        Self {
            symbolizer,
            process,
            known: HashMap::new(),
        }
    }

    /// Returns the frame of an address.
    pub(crate) fn frame(&mut self, code: CodeAddress, unwinder: &ProcessUnwinder) -> Frame {
        if let Some(frame) = self.known.get(&code.address) {
            return frame.clone();
        }
        let frame = self.symbolize(code, unwinder);
        self.known.insert(code.address, frame.clone());
        frame
    }

    /// Looks up a call at its own address, since the one after it may be in the next function.
    fn symbolize(&mut self, code: CodeAddress, unwinder: &ProcessUnwinder) -> Frame {
        let after = u64::from(code.is_return);
        let looked_up = code.address - after;
        let (module, file_offset) = unwinder.file_at(looked_up);
        let module = module.map(str::to_owned);
        let unnamed = Frame::Native {
            symbol: None,
            module: module.clone(),
            offset: file_offset + after,
        };
        match self.find(looked_up) {
            Some((symbol, offset)) => Frame::Native {
                symbol: Some(symbol),
                module,
                offset: offset + after,
            },
            None => unnamed,
        }
    }

    fn find(&mut self, address: u64) -> Option<(String, u64)> {
        let find = |process: &Process| {
            let source = Source::Process(process.clone());
            let found = self
                .symbolizer
                .symbolize_single(&source, Input::AbsAddr(address));
            found.map(|found| match found {
                Symbolized::Sym(symbol) => Some((symbol.name.into_owned(), symbol.offset as u64)),
                Symbolized::Unknown(_) => None,
            })
        };
        match find(&self.process) {
            Ok(found) => found,
            // Without CAP_CHECKPOINT_RESTORE files are found by their paths only.
            Err(_) if self.process.map_files => {
                self.process.map_files = false;
                find(&self.process).ok().flatten()
            }
            Err(_) => None,
        }
    }
}
