//! How large a statement may be, and how large what it makes may get.

/// Longest text, bytes.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Bytes of a number or an instant as text.
pub(super) const SHORT: u64 = 64;

/// Most opening brackets, wherever they stand.
pub const MAX_BRACKETS: usize = 400;

/// Most bytes that the parser may make of a WINDOW clause, as the length of the text for each use of a window.
pub(super) const MAX_WINDOW_BYTES: usize = 100_000;

/// Longest tree as JSON, bytes: of nodes that may be taken, a few hundred bytes each.
pub const MAX_TREE_BYTES: usize = 4 * 1024 * 1024;

/// Most nodes of the tree: expressions, tables and queries.
pub(super) const MAX_NODES: u64 = 1_500;

/// Most nodes that the binder and the planner may make of them, where names are used again and again: those of the select
/// list, and those of subqueries and of WITH, into which filters move.
pub(super) const MAX_BOUND_NODES: u64 = 10_000;

/// Most tables in one FROM.
pub(super) const MAX_TABLES_OF_FROM: u64 = 8;

/// Most tables in all, each as often as the expressions of WITH that it is in are used.
pub(super) const MAX_TABLES: u64 = 40;

/// Most columns of one SELECT.
pub(super) const MAX_COLUMNS: u64 = 400;

/// Most columns that a published view has.
pub(super) const VIEW_COLUMNS: u64 = 40;

/// Nodes that a column of a published view is made of at most.
pub(super) const VIEW_NODES: u64 = 5;

/// Most combinations of GROUPING SETS, ROLLUP and CUBE.
pub(super) const MAX_GROUPINGS: usize = 16;

/// Most arguments of a function.
pub(super) const MAX_ARGUMENTS: usize = 64;

/// Longest name, as parts with dots between.
pub(super) const MAX_NAME_PARTS: usize = 4;

/// Bytes that a value of a view is taken for. The strings in them may be longer; what counts is how often they are
/// repeated.
pub(super) const COLUMN_BYTES: u64 = 256;

/// Bytes that a value of the columns is taken for which hold as much as somebody sends.
pub(super) const LONG_COLUMN_BYTES: u64 = 16 * 1024;

/// Most bytes that an expression may make of one row.
pub(super) const MAX_VALUE_BYTES: u64 = 64 * 1024;

/// Most bytes that all expressions of a statement together may make of one row. The engine works on 2,048 rows at a time
/// and holds what each expression made of them until it is done with the operator, apart from the memory that it counts:
/// that is 128 MiB for each thread that works on the statement. All statements share the threads of the engine.
pub(super) const MAX_MADE_BYTES: u64 = 64 * 1024;

/// Longest pattern of LIKE, GLOB and regular expressions, bytes.
pub(super) const MAX_PATTERN_BYTES: usize = 128;

/// Most bytes that a pattern may be searched in.
pub(super) const MAX_SEARCHED_BYTES: u64 = 16 * 1024;

/// Most steps of searching for patterns in one row. A step takes up to 7 us for 2,048 rows, which nothing interrupts: the
/// statement is back within a second of its deadline.
pub(super) const MAX_SEARCH_STEPS: u64 = 128 * 1024;

/// Most rows of `range` and of a sample.
pub(super) const MAX_MADE_ROWS: i128 = 1_000_000;
