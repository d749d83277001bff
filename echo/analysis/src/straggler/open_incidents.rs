//! Open incidents of one job.

use std::collections::BTreeMap;

use crate::straggler::bill::{Bill, Entry, mirrored};
use crate::straggler::class::{Class, ClassVotes};
use crate::straggler::evidence::Subject;

/// Kind of an open incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Pace and waiting agree, or only the pace fell.
    Loss,
    /// Late without a past.
    LateWithoutPast,
    /// Nothing completes.
    Stall,
}

/// State of an incident.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) number: u64,
    pub(super) subject: Subject,
    pub(super) kind: Kind,
    pub(super) votes: ClassVotes,
    /// Job times, seconds.
    pub(super) since: f64,
    pub(super) known: f64,
    pub(super) until: f64,
    pub(super) is_closed: bool,
    pub(super) bill: Bill,
    /// Ranks that are behind in a stall.
    pub(super) behind: Vec<usize>,
}

/// Incidents that are open, and those that were closed since they were last taken.
#[derive(Debug, Default)]
pub(super) struct OpenIncidents {
    next: u64,
    open: BTreeMap<Subject, State>,
    stall: Option<State>,
    changed: Vec<State>,
}

impl OpenIncidents {
    /// Returns true if no lost time is open.
    pub(super) fn is_empty(&self) -> bool {
        let is_loss = |state: &State| state.kind == Kind::Loss;
        !self.open.values().any(is_loss) && self.stall.is_none()
    }

    /// Returns true if a loss of the subject is open.
    pub(super) fn is_open(&self, subject: Subject) -> bool {
        let open = self.open.get(&subject);
        open.is_some_and(|state| state.kind == Kind::Loss)
    }

    /// Returns true if the subject is known to be late without a past.
    pub(super) fn is_late(&self, subject: Subject) -> bool {
        let open = self.open.get(&subject);
        open.is_some_and(|state| state.kind == Kind::LateWithoutPast)
    }

    /// Returns true if a rank is known to be late without a past.
    pub(super) fn has_late(&self) -> bool {
        let mut open = self.open.values();
        open.any(|state| state.kind == Kind::LateWithoutPast)
    }

    /// Returns true if an incident of the subject may be opened: no incident of a rank or node is open,
    /// and no stall.
    pub(super) fn may_name(&self, subject: Subject) -> bool {
        let mut open = self.open.keys();
        let is_other = |open: &Subject| *open != Subject::Unexplained;
        !self.is_open(subject) && !open.any(is_other) && self.stall.is_none()
    }

    /// The node of a rank, if the node as a whole is late already.
    pub(super) fn by_node(&self, subject: Subject, node_of: &[u32]) -> Subject {
        let node = node_subject(subject, node_of);
        node.filter(|node| self.is_open(*node)).unwrap_or(subject)
    }

    /// The node of a rank, if another one of its ranks is late already and no rank elsewhere is:
    /// ranks that are late by turns have their node in common. Not if the job has one node only.
    pub(super) fn roll_up(&mut self, subject: Subject, node_of: &[u32]) -> Subject {
        let Some(node) = node_subject(subject, node_of) else {
            return subject;
        };
        let is_only = node_of.windows(2).all(|pair| pair.first() == pair.last());
        let named = self.open.keys().filter(|other| **other != subject);
        let nodes: Vec<Option<Subject>> = named
            .filter(|other| **other != Subject::Unexplained)
            .map(|other| node_subject(*other, node_of))
            .collect();
        let is_common = !nodes.is_empty() && nodes.iter().all(|other| *other == Some(node));
        if is_only || !is_common {
            return subject;
        }
        let ranks: Vec<Subject> = self.open.keys().copied().collect();
        for rank in ranks
            .into_iter()
            .filter(|rank| *rank != Subject::Unexplained)
        {
            if let Some(state) = self.open.remove(&rank) {
                self.take_over(node, state);
            }
        }
        node
    }

    /// Makes the losses of ranks that were named since `resumed` (job time) unexplained, if those are
    /// more than `most`: of so many ranks that are late by turns, all are slow. The same if an
    /// unexplained loss lasts when that of the named ranks has ended, and is nearly as large
    /// (`similar`, a share): it was not theirs. Returns true if it did.
    pub(super) fn withdraw(&mut self, resumed: f64, most: usize, similar: f64) -> bool {
        let is_named = |subject: &Subject, state: &State| {
            // Ripples after a fault are no sign that it lasts.
            let last = state.bill.without_ripples().last().map(|entry| entry.to);
            let is_recent = last.is_some_and(|to| to > resumed);
            matches!(subject, Subject::Rank(_)) && state.kind == Kind::Loss && is_recent
        };
        let level = |state: &State| state.bill.median(|entry| entry.loss);
        let open = self.open.iter();
        let named: Vec<(Subject, f64)> = open
            .filter(|(subject, state)| is_named(subject, state))
            .map(|(subject, state)| (*subject, level(state)))
            .collect();
        let largest = named.iter().map(|(_, loss)| *loss).fold(0.0, f64::max);
        let since = |subject: &Subject| self.open.get(subject).map_or(0.0, |state| state.since);
        let first = named.iter().map(|(subject, _)| since(subject));
        let first = first.fold(f64::INFINITY, f64::min);
        let unexplained = self.open.get(&Subject::Unexplained);
        // An earlier fault of its own says nothing about this one.
        let unexplained = unexplained.filter(|state| state.until > first);
        let lasts = unexplained.is_some_and(|state| level(state) >= similar * largest);
        if named.is_empty() || named.len() <= most && !lasts {
            return false;
        }
        for (subject, _) in named {
            let Some(mut state) = self.open.remove(&subject) else {
                continue;
            };
            state.subject = Subject::Unexplained;
            state.votes = ClassVotes::default();
            match self.open.get_mut(&Subject::Unexplained) {
                Some(open) => {
                    open.bill.absorb(std::mem::take(&mut state.bill));
                    open.set_times();
                    state.is_closed = true;
                    self.changed.push(state);
                }
                None => {
                    self.open.insert(Subject::Unexplained, state);
                }
            }
        }
        true
    }

    /// Makes the incident of a rank that of its node.
    fn take_over(&mut self, node: Subject, mut state: State) {
        if let Some(open) = self.open.get_mut(&node) {
            open.bill.absorb(state.bill);
        } else {
            state.subject = node;
            self.open.insert(node, state);
        }
    }

    /// Opens the incident of a subject at `now` with its losses so far. A rank that is found later
    /// takes over the loss that was unexplained before, if it may be the same.
    pub(super) fn open(&mut self, subject: Subject, now: f64, mut bill: Bill) {
        let before = self.open.remove(&subject).or_else(|| {
            let unexplained = self.open.get_mut(&Subject::Unexplained)?;
            bill.absorb_similar(&mut unexplained.bill);
            unexplained.until = unexplained.bill.last().map_or(now, |last| last.to);
            let is_same = unexplained.bill.is_empty();
            is_same.then(|| self.open.remove(&Subject::Unexplained))?
        });
        let number = match before {
            Some(state) => {
                if state.kind == Kind::Loss {
                    bill.absorb(state.bill);
                }
                state.number
            }
            None => self.number(),
        };
        let mut state = State {
            number,
            subject,
            kind: Kind::Loss,
            votes: ClassVotes::default(),
            since: now,
            known: now,
            until: now,
            is_closed: false,
            bill,
            behind: Vec::new(),
        };
        state.set_times();
        self.open.insert(subject, state);
    }

    /// Adds a loss to the open incident of a subject.
    pub(super) fn add(&mut self, subject: Subject, entry: Entry) {
        if let Some(state) = self.open.get_mut(&subject)
            && state.kind == Kind::Loss
        {
            state.bill.push(entry);
            state.set_times();
        }
    }

    /// Adds the incidents of ranks and nodes that were found backwards in time from an instant, as ended
    /// ones; returns true if there are some. What was known of a rank without a past becomes its incident.
    pub(super) fn add_ended(&mut self, earlier: Self, from: f64, now: f64) -> bool {
        let states = earlier
            .changed
            .into_iter()
            .chain(earlier.open.into_values());
        let named: Vec<State> = states
            .filter(|state| state.subject != Subject::Unexplained)
            .collect();
        let is_any = !named.is_empty();
        for mut state in named {
            state.bill = state.bill.mirrored(from);
            (state.since, state.until) = (mirrored(state.until, from), mirrored(state.since, from));
            state.is_closed = true;
            let known = self.is_late(state.subject);
            let known = known.then(|| self.open.remove(&state.subject)).flatten();
            (state.number, state.known) = match known {
                Some(late) => {
                    // As much was lost in time that is too long ago for the past.
                    let loss = |bill: &Bill| bill.median(|entry| entry.loss);
                    let ratio = loss(&state.bill) / loss(&late.bill).max(f64::MIN_POSITIVE);
                    state
                        .bill
                        .absorb(late.bill.scaled(ratio).before(state.since));
                    state.since = state.since.min(late.since);
                    (late.number, late.known)
                }
                None => (self.number(), now),
            };
            self.changed.push(state);
        }
        if is_any {
            // Another subject explains that time.
            self.open
                .retain(|_, state| state.kind != Kind::LateWithoutPast);
        }
        is_any
    }

    /// Opens or continues an incident of a rank that is late without a past.
    pub(super) fn late_without_past(&mut self, subject: Subject, entry: Entry) {
        if !self.open.contains_key(&subject) {
            let number = self.number();
            self.open.insert(
                subject,
                State {
                    number,
                    subject,
                    kind: Kind::LateWithoutPast,
                    votes: ClassVotes::default(),
                    since: entry.from,
                    known: entry.to,
                    until: entry.to,
                    is_closed: false,
                    bill: Bill::default(),
                    behind: Vec::new(),
                },
            );
        }
        if let Some(state) = self.open.get_mut(&subject)
            && state.kind == Kind::LateWithoutPast
        {
            state.bill.push(entry);
            state.until = entry.to;
        }
    }

    /// Adds evidence about the class of a loss of `lost_s` seconds to the open incident of a
    /// subject.
    pub(super) fn classify(&mut self, subject: Subject, class: Class, lost_s: f64) {
        if let Some(state) = self.open.get_mut(&subject) {
            state.votes.add(class, lost_s);
        }
    }

    /// Closes incidents without evidence for `quiet_s` before `now`, and returns their subjects.
    pub(super) fn close_quiet(&mut self, now: f64, quiet_s: f64) -> Vec<Subject> {
        // A rank that was late without a past is priced first, if that is possible.
        let after_s = |kind| match kind {
            Kind::LateWithoutPast => 2.0 * quiet_s,
            Kind::Loss | Kind::Stall => quiet_s,
        };
        let quiet: Vec<Subject> = self
            .open
            .iter()
            .filter(|(_, state)| now - state.until > after_s(state.kind))
            .map(|(subject, _)| *subject)
            .collect();
        for subject in &quiet {
            if let Some(mut state) = self.open.remove(subject) {
                state.is_closed = true;
                self.changed.push(state);
            }
        }
        quiet
    }

    /// Opens or continues a stall that began at `since`, in which `n` ranks lose all their time.
    pub(super) fn stall(&mut self, since: f64, now: f64, n: usize, behind: Vec<usize>) {
        let number = match &self.stall {
            Some(state) => state.number,
            None => self.number(),
        };
        let known = self.stall.as_ref().map_or(now, |state| state.known);
        let mut bill = Bill::default();
        bill.push(Entry {
            from: since,
            to: now,
            loss: 1.0,
            weight: 1.0,
            gpu_s: n as f64 * (now - since),
            waited: 0.0,
            late: 0.0,
        });
        self.stall = Some(State {
            number,
            subject: Subject::Unexplained,
            kind: Kind::Stall,
            votes: ClassVotes::default(),
            since,
            known,
            until: now,
            is_closed: false,
            bill,
            behind,
        });
    }

    /// Ends a stall; returns true if there was one.
    pub(super) fn end_stall(&mut self) -> bool {
        let ended = self.stall.take();
        let was_open = ended.is_some();
        self.changed.extend(ended.map(|mut state| {
            state.is_closed = true;
            state
        }));
        was_open
    }

    /// Returns the open incidents, and those closed since the last call.
    pub(super) fn take(&mut self) -> Vec<State> {
        let mut states = std::mem::take(&mut self.changed);
        states.extend(self.open.values().cloned());
        states.extend(self.stall.clone());
        states
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

/// Node of a rank; `None` for other subjects.
fn node_subject(subject: Subject, node_of: &[u32]) -> Option<Subject> {
    match subject {
        Subject::Rank(rank) => Some(Subject::Node(*node_of.get(rank)? as usize)),
        Subject::Node(_) | Subject::Unexplained => None,
    }
}

impl State {
    fn set_times(&mut self) {
        let entries = self.bill.without_ripples();
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            self.since = first.from;
            self.until = self.until.max(last.to);
        }
    }
}
