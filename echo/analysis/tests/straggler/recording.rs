//! Recordings, reduced to sums per block (testdata/straggler/README.md).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use echo_analysis::straggler::block::{
    BlockSum, Heartbeat, Lead, Membership, NodeKey, Operation, ProcessKey,
};
use echo_core::ids::CommId;
use echo_core::model::event::{SeqRange, Source};
use echo_core::units::Nanos;
use flate2::read::GzDecoder;

/// Begin of all recordings.
pub(crate) const ORIGIN: Nanos = Nanos::new(1_790_000_000_000_000_000);

/// One report.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item {
    Block(BlockSum),
    Beat(Heartbeat),
}

impl Item {
    pub(crate) fn at(&self) -> Nanos {
        match self {
            Self::Block(block) => block.end,
            Self::Beat(beat) => beat.at,
        }
    }
}

/// Reports in order of time, in blocks of 2^k operations.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(crate) k: u32,
    pub(crate) items: Vec<Item>,
    /// The reports arrive in their order within seconds, as those that agents have kept; otherwise at
    /// the times that they bear.
    pub(crate) is_kept: bool,
}

/// Instant of a time of a recording, seconds.
pub(crate) fn at(seconds: f64) -> Nanos {
    ORIGIN.offset((seconds * 1e9) as i64)
}

impl Recording {
    /// Reads a reduced recording.
    pub(crate) fn read(path: &Path) -> Self {
        let file =
            std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut text = String::new();
        GzDecoder::new(file.as_slice())
            .read_to_string(&mut text)
            .expect("gzipped text");
        let mut k = 0;
        let mut comms: BTreeMap<(u64, u64), Membership> = BTreeMap::new();
        let mut last: BTreeMap<(u64, u64), (u64, i64)> = BTreeMap::new();
        let mut items = Vec::new();
        for line in text.lines() {
            let mut fields = line.split(' ');
            let kind = fields.next().expect("a kind");
            let fields: Vec<&str> = fields.collect();
            let number = |at: usize| fields[at].parse::<i64>().expect("a number");
            let index = |at: usize| u64::try_from(number(at)).expect("not negative");
            match kind {
                "K" => k = u32::try_from(index(0)).expect("small"),
                "M" => {
                    let member = Membership {
                        comm: fields[1].parse::<CommId>().expect("a hash"),
                        size: u32::try_from(index(4)).expect("small"),
                        rank: u32::try_from(index(3)).expect("small"),
                    };
                    comms.insert((index(0), index(2)), member);
                }
                "B" => {
                    let key = (index(0), index(1));
                    let (seq, end) = last.entry(key).or_default();
                    *seq = seq.checked_add_signed(number(3)).expect("in range");
                    *end += number(9);
                    let sums: Vec<i64> = (4..=8).map(number).collect();
                    let place = (key.1, comms[&key], fields[2]);
                    items.push(Item::Block(block(
                        place,
                        operations(*seq << k, k),
                        &sums,
                        *end,
                    )));
                }
                // Of all operations of the process; these jobs stall in one communicator.
                "H" => items.push(Item::Beat(Heartbeat {
                    process: ProcessKey(index(0)),
                    member: largest(&comms, index(0)),
                    source: Source::Device,
                    enqueued: index(1),
                    at: ORIGIN.offset(number(2) * 1_000),
                })),
                _ => panic!("unknown line: {line}"),
            }
        }
        let mut recording = Self {
            k,
            items,
            is_kept: false,
        };
        recording.sort();
        recording
    }

    fn sort(&mut self) {
        self.items.sort_by_key(Item::at);
    }

    /// The same in blocks of 2^k operations, at least as long as they are.
    pub(crate) fn in_blocks(&self, k: u32) -> Self {
        self.cut(|_| k)
    }

    /// The same in blocks that last about `seconds`, for each communicator by its mean rate.
    pub(crate) fn in_blocks_of(&self, seconds: f64) -> Self {
        let mut spans: BTreeMap<CommId, (Nanos, Nanos, u64)> = BTreeMap::new();
        for item in &self.items {
            if let Item::Block(block) = item {
                let span = (block.end, block.end, 0);
                let span = spans.entry(block.member.comm).or_insert(span);
                span.1 = block.end;
                span.2 += u64::from(block.count) * 1_000 / u64::from(block.member.size);
            }
        }
        let exponent = |comm: CommId| {
            let (first, last, thousandths) = spans[&comm];
            let rate = thousandths as f64 / last.millis_since(first).max(1.0);
            (seconds * rate).log2().floor().max(0.0) as u32
        };
        self.cut(exponent)
    }

    fn cut(&self, exponent: impl Fn(CommId) -> u32) -> Self {
        let mut blocks: BTreeMap<(CommId, ProcessKey, u64), BlockSum> = BTreeMap::new();
        let mut items = Vec::new();
        for item in &self.items {
            match item {
                Item::Beat(_) => items.push(*item),
                Item::Block(block) => {
                    let k = exponent(block.member.comm).max(self.k);
                    let key = (block.member.comm, block.process, block.seqs.first() >> k);
                    blocks
                        .entry(key)
                        .and_modify(|sum| merge(sum, block))
                        .or_insert_with(|| BlockSum {
                            seqs: operations(key.2 << k, k),
                            ..*block
                        });
                }
            }
        }
        items.extend(blocks.into_values().map(Item::Block));
        let mut recording = Self {
            k: self.k,
            items,
            is_kept: false,
        };
        recording.sort();
        recording
    }

    /// The same with every block changed, in the same order.
    pub(crate) fn in_order(&self, change: impl Fn(BlockSum) -> BlockSum) -> Self {
        let items = self.items.iter().map(|item| match item {
            Item::Block(block) => Item::Block(change(*block)),
            // The beats of a process have the clock of its blocks.
            Item::Beat(beat) => {
                let of_beat = BlockSum {
                    process: beat.process,
                    end: beat.at,
                    ..self.first_block()
                };
                let changed = change(of_beat);
                Item::Beat(Heartbeat {
                    process: changed.process,
                    at: changed.end,
                    ..*beat
                })
            }
        });
        Self {
            k: self.k,
            items: items.collect(),
            is_kept: self.is_kept,
        }
    }

    /// The same, sent within seconds by agents that have kept it, each some seconds of it behind
    /// another one.
    pub(crate) fn kept(&self) -> Self {
        let behind = |item: &Item| {
            let process = match item {
                Item::Block(block) => block.process,
                Item::Beat(beat) => beat.process,
            };
            [0, 2, 1, 3][process.0 as usize % 4] * self.items.len() / 60
        };
        let mut items: Vec<(usize, Item)> = self.items.iter().copied().enumerate().collect();
        items.sort_by_key(|(at, item)| at + behind(item));
        Self {
            k: self.k,
            items: items.into_iter().map(|(_, item)| item).collect(),
            is_kept: true,
        }
    }

    fn first_block(&self) -> BlockSum {
        let blocks = self.items.iter().find_map(|item| match item {
            Item::Block(block) => Some(*block),
            Item::Beat(_) => None,
        });
        blocks.expect("a block")
    }

    /// The same with every block changed; blocks for which `change` returns `None` are dropped.
    pub(crate) fn with(&self, mut change: impl FnMut(BlockSum) -> Option<BlockSum>) -> Self {
        let items = self.items.iter().filter_map(|item| match item {
            Item::Block(block) => change(*block).map(Item::Block),
            Item::Beat(beat) => Some(Item::Beat(*beat)),
        });
        let mut recording = Self {
            k: self.k,
            items: items.collect(),
            is_kept: self.is_kept,
        };
        recording.sort();
        recording
    }
}

/// The 2^k operations from `first` on.
pub(crate) fn operations(first: u64, k: u32) -> SeqRange {
    SeqRange::new(first, first + (1 << k) - 1).expect("an operation")
}

/// Largest communicator of a process.
fn largest(comms: &BTreeMap<(u64, u64), Membership>, process: u64) -> Membership {
    let own = comms.iter().filter(|((_, of), _)| *of == process);
    let own = own.map(|(_, member)| *member);
    own.max_by_key(|member| member.size)
        .expect("a communicator")
}

/// Block of a process from its count, sum of the durations, shortest one, sum of the leads, smallest
/// one, and its end; microseconds.
fn block(
    (process, member, kind): (u64, Membership, &str),
    seqs: SeqRange,
    sums: &[i64],
    end: i64,
) -> BlockSum {
    let ms = |at: usize| sums[at] as f64 / 1e3;
    BlockSum {
        process: ProcessKey(process),
        node: NodeKey(0),
        member,
        operation: if kind == "t" {
            Operation::Transfer {
                peer: Some(1 - member.rank),
            }
        } else {
            Operation::Collective
        },
        source: if kind == "h" {
            Source::Host
        } else {
            Source::Device
        },
        seqs,
        count: u32::try_from(sums[0]).expect("small"),
        sum_ms: ms(1),
        min_ms: ms(2),
        lead: Some(Lead {
            sum_ms: ms(3),
            min_ms: ms(4),
        }),
        end: ORIGIN.offset(end * 1_000),
    }
}

fn merge(sum: &mut BlockSum, block: &BlockSum) {
    if sum.source == Source::Host {
        // Leads last until the end of the block.
        let more_ms = block.end.millis_since(sum.end) * f64::from(sum.count);
        sum.lead = sum.lead.map(|lead| Lead {
            sum_ms: lead.sum_ms + more_ms,
            ..lead
        });
    }
    sum.count += block.count;
    sum.sum_ms += block.sum_ms;
    sum.min_ms = sum.min_ms.min(block.min_ms);
    sum.end = sum.end.max(block.end);
    if let Operation::Transfer { .. } = block.operation {
        sum.operation = block.operation;
    }
    sum.lead = sum.lead.zip(block.lead).map(|(one, other)| Lead {
        sum_ms: one.sum_ms + other.sum_ms,
        min_ms: one.min_ms.min(other.min_ms),
    });
}
