//! Library calls that threads are in, from the map in which the probes keep them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_agent_bpf::programs::Maps;
use fleet_agent_core::event::{CallProbes, InFlight};

use crate::functions::{self, FUNCTIONS};
use crate::watch::Watch;

/// Calls in flight of the watched processes. Any thread can read them, at no cost for the processes.
#[derive(Debug, Clone)]
pub struct ProbedCalls {
    maps: Arc<Maps>,
    /// Classes of the functions.
    classes: Vec<u8>,
}

impl Watch {
    /// Returns the calls in flight of the watched processes.
    pub fn calls(&self) -> ProbedCalls {
        let functions = (0..=u8::MAX).zip(&FUNCTIONS);
        let classes = functions.map(|(op, function)| function.cookie(op).class());
        let classes: BTreeSet<u8> = classes.collect();
        ProbedCalls {
            maps: Arc::clone(self.programs.maps()),
            classes: classes.into_iter().collect(),
        }
    }
}

impl CallProbes for ProbedCalls {
    fn in_flight(&self, pid: u32, tid: u32) -> InFlight {
        if let Some((entered_ns, op)) = self.maps.outermost_call(pid, tid, &self.classes) {
            return match functions::by_number(op) {
                Some(function) => InFlight::Call {
                    function: function.name,
                    entered_ns,
                },
                None => InFlight::Unknown,
            };
        }
        if self.maps.is_traced(pid) || self.maps.is_measured(pid) {
            InFlight::None
        } else {
            InFlight::Unknown
        }
    }
}
