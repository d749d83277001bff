//! Reader of pickles that consist of plain data: protocols 2 to 5 without globals.
//!
//! A pickle is a program. This reader knows only the instructions that build dictionaries, lists,
//! tuples, strings, numbers, booleans and `None`; one that names or calls a Python object is refused.
//! The result is a JSON value, so that a pickle and a JSON dump have one reader.

use fleet_agent_core::printable::printable;
use serde_json::{Map, Number, Value};

/// Maximum number of values per byte of a pickle, counted where they are used: a shared list counts
/// each time.
const MAX_VALUES_PER_BYTE: usize = 16;
/// Bytes of a text that count as one value, as they take as much memory.
const TEXT_PER_VALUE: usize = 32;
/// Maximum length of a name in a message, characters.
const MAX_NAME: usize = 60;
/// Maximum depth of nested containers.
const MAX_DEPTH: usize = 32;

/// Error of a pickle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// It names a Python object, which a reader of data must not load.
    #[error("it refers to the Python object {0}; a pickle with globals is not read")]
    Global(String),
    /// It has an instruction that builds no plain data.
    #[error("instruction 0x{0:02x} at byte {1} is not one of plain data")]
    Instruction(u8, usize),
    /// It ends before its STOP instruction.
    #[error("it is truncated")]
    Truncated,
    /// Its instructions do not fit together.
    #[error("it is damaged at byte {0}")]
    Damaged(usize),
    /// It is too large or too deep.
    #[error(
        "it has more than {MAX_VALUES_PER_BYTE} values per byte ({TEXT_PER_VALUE} bytes of text are one), or more than {MAX_DEPTH} levels"
    )]
    TooLarge,
}

/// Index of a value in the arena.
type Index = usize;

/// Value under construction. Containers refer to their members, so that a list in the memo can
/// still grow.
#[derive(Debug)]
enum Node {
    Leaf(Value),
    List(Vec<Index>),
    Dict(Vec<Index>),
}

/// Returns whether the bytes begin like a pickle of protocol 2 to 5.
pub fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// Reads a pickle.
pub fn read(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
    };
    while !machine.step()? {}
    let root = machine.pop()?;
    let mut values = 0;
    machine.value(root, 0, &mut values)
}

struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Index>,
    marks: Vec<usize>,
    memo: Vec<Option<Index>>,
}

impl<'b> Machine<'b> {
    /// Runs one instruction; returns true at the end.
    fn step(&mut self) -> Result<bool, PickleError> {
        let [code] = self.array()?;
        match code {
            b'.' => return Ok(true),
            0x80 => drop(self.array::<1>()?),
            0x95 => drop(self.array::<8>()?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.leaf(Value::Null),
            0x88 => self.leaf(Value::Bool(true)),
            0x89 => self.leaf(Value::Bool(false)),
            b'J' | b'K' | b'M' | 0x8a | b'G' => self.number(code)?,
            b'X' | b'T' | b'B' | 0x8c | b'U' | b'C' | 0x8d | 0x8e => self.text(code)?,
            b'}' => self.push(Node::Dict(Vec::new())),
            b']' | b')' => self.push(Node::List(Vec::new())),
            b'd' => {
                let items = self.since_mark()?;
                self.push(Node::Dict(items));
            }
            b'l' | b't' => {
                let items = self.since_mark()?;
                self.push(Node::List(items));
            }
            0x85..=0x87 => self.tuple(usize::from(code - 0x84))?,
            b'a' | b'e' | b's' | b'u' => self.fill(code)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(code)?,
            b'0' => drop(self.pop()?),
            b'c' => return Err(self.global_lines()),
            0x93 => return Err(self.stack_global()),
            other => return Err(PickleError::Instruction(other, self.at - 1)),
        }
        Ok(false)
    }

    fn number(&mut self, code: u8) -> Result<(), PickleError> {
        let number = match code {
            b'J' => Number::from(i32::from_le_bytes(self.array()?)),
            b'K' => Number::from(u8::from_le_bytes(self.array()?)),
            b'M' => Number::from(u16::from_le_bytes(self.array()?)),
            b'G' => {
                let float = f64::from_be_bytes(self.array()?);
                // JSON has no such number; nothing in a dump needs one.
                self.leaf(Number::from_f64(float).map_or(Value::Null, Value::Number));
                return Ok(());
            }
            _ => {
                let [len] = self.array()?;
                let bytes = self.take(usize::from(len))?;
                Number::from(long(bytes).ok_or(PickleError::Damaged(self.at))?)
            }
        };
        self.leaf(Value::Number(number));
        Ok(())
    }

    fn text(&mut self, code: u8) -> Result<(), PickleError> {
        let len = match code {
            0x8c | b'U' | b'C' => u64::from(u8::from_le_bytes(self.array()?)),
            0x8d | 0x8e => u64::from_le_bytes(self.array()?),
            _ => u64::from(u32::from_le_bytes(self.array()?)),
        };
        let len = usize::try_from(len).map_err(|_too_long| PickleError::Truncated)?;
        let text = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.leaf(Value::String(text));
        Ok(())
    }

    fn tuple(&mut self, len: usize) -> Result<(), PickleError> {
        let start = self.stack.len().checked_sub(len);
        let start = start.ok_or(PickleError::Damaged(self.at))?;
        let items = self.stack.split_off(start);
        self.push(Node::List(items));
        Ok(())
    }

    /// Adds members to the container on the stack.
    fn fill(&mut self, code: u8) -> Result<(), PickleError> {
        let members = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        let top = self.stack.last().copied();
        let container = top.and_then(|top| self.nodes.get_mut(top));
        match (container, code) {
            (Some(Node::List(list)), b'a' | b'e') => list.extend(members),
            (Some(Node::Dict(dict)), b's' | b'u') => dict.extend(members),
            _ => return Err(PickleError::Damaged(self.at)),
        }
        Ok(())
    }

    /// Stores the top of the stack, or pushes what was stored.
    fn remember(&mut self, code: u8) -> Result<(), PickleError> {
        let slot = match code {
            b'q' | b'h' => u64::from(u8::from_le_bytes(self.array()?)),
            b'r' | b'j' => u64::from(u32::from_le_bytes(self.array()?)),
            _ => self.memo.len() as u64,
        };
        let slot = usize::try_from(slot).map_err(|_too_large| PickleError::TooLarge)?;
        let damaged = PickleError::Damaged(self.at);
        if matches!(code, b'h' | b'j') {
            let known = self.memo.get(slot).copied().flatten();
            self.stack.push(known.ok_or(damaged)?);
            return Ok(());
        }
        // Writers number the slots in order, so there are never more than bytes.
        if slot > self.bytes.len() {
            return Err(damaged);
        }
        if self.memo.len() <= slot {
            self.memo.resize(slot + 1, None);
        }
        let top = self.stack.last().copied();
        if let Some(known) = self.memo.get_mut(slot) {
            *known = top;
        }
        Ok(())
    }

    /// Error of a `GLOBAL` instruction: module and name follow it, each on a line.
    fn global_lines(&self) -> PickleError {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut lines = rest.split(|byte| *byte == b'\n');
        let mut line = || name(lines.next().unwrap_or_default());
        let (module, name) = (line(), line());
        PickleError::Global(format!("{module}.{name}"))
    }

    /// Error of a `STACK_GLOBAL` instruction: module and name are the two texts on the stack.
    fn stack_global(&self) -> PickleError {
        let mut names = self.stack.iter().rev().take(2);
        let mut part = || match names.next().and_then(|index| self.nodes.get(*index)) {
            Some(Node::Leaf(Value::String(text))) => printable(text, MAX_NAME),
            _ => "?".to_owned(),
        };
        let (name, module) = (part(), part());
        PickleError::Global(format!("{module}.{name}"))
    }

    fn leaf(&mut self, value: Value) {
        self.push(Node::Leaf(value));
    }

    fn push(&mut self, node: Node) {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
    }

    fn pop(&mut self) -> Result<Index, PickleError> {
        self.stack.pop().ok_or(PickleError::Damaged(self.at))
    }

    fn since_mark(&mut self) -> Result<Vec<Index>, PickleError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        let mark = mark.ok_or(PickleError::Damaged(self.at))?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], PickleError> {
        let end = self.at.checked_add(len).ok_or(PickleError::Truncated)?;
        let taken = self.bytes.get(self.at..end);
        self.at = end;
        taken.ok_or(PickleError::Truncated)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_short| PickleError::Truncated)
    }

    /// Converts a value and its members; `values` counts them over the whole pickle.
    fn value(&self, index: Index, depth: usize, values: &mut usize) -> Result<Value, PickleError> {
        if depth > MAX_DEPTH {
            return Err(PickleError::TooLarge);
        }
        match self.counted(index, values)? {
            Node::Leaf(value) => Ok(value.clone()),
            Node::List(list) => {
                let members = list
                    .iter()
                    .map(|member| self.value(*member, depth + 1, values));
                Ok(Value::Array(members.collect::<Result<_, _>>()?))
            }
            Node::Dict(dict) => {
                let mut map = Map::new();
                for pair in dict.chunks(2) {
                    let [key, value] = pair else {
                        return Err(PickleError::Damaged(self.at));
                    };
                    let key = match self.counted(*key, values)? {
                        Node::Leaf(Value::String(text)) => text.clone(),
                        Node::Leaf(other) => other.to_string(),
                        _ => return Err(PickleError::Damaged(self.at)),
                    };
                    map.insert(key, self.value(*value, depth + 1, values)?);
                }
                Ok(Value::Object(map))
            }
        }
    }

    /// Returns a node, and counts it by the memory that its value takes.
    fn counted(&self, index: Index, values: &mut usize) -> Result<&Node, PickleError> {
        let node = self.nodes.get(index);
        let node = node.ok_or(PickleError::Damaged(self.at))?;
        let text_len = match node {
            Node::Leaf(Value::String(text)) => text.len(),
            _ => 0,
        };
        *values = values.saturating_add(1 + text_len / TEXT_PER_VALUE);
        if *values > self.bytes.len().saturating_mul(MAX_VALUES_PER_BYTE) {
            return Err(PickleError::TooLarge);
        }
        Ok(node)
    }
}

/// Decodes a signed little-endian number of up to eight bytes.
fn long(bytes: &[u8]) -> Option<i64> {
    let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    let (low, _) = wide.split_at_mut_checked(bytes.len())?;
    low.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

/// Returns a name for a message.
fn name(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes), MAX_NAME)
}

#[cfg(test)]
mod tests;
