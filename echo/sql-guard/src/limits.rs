//! Limits on the size of a statement and of its intermediate values.

/// Maximum length of the text, bytes.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Size of a number or a timestamp as text, bytes.
pub(super) const SHORT: u64 = 64;

/// Maximum number of opening brackets, anywhere in the text.
pub const MAX_BRACKETS: usize = 400;

/// Maximum size to which the parser may expand a WINDOW clause, bytes: the length of the text for
/// each use of a window.
pub(super) const MAX_WINDOW_BYTES: usize = 100_000;

/// Maximum size of the tree as JSON, bytes: allowed nodes have a few hundred bytes each.
pub const MAX_TREE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of nodes of the tree: expressions, tables and queries.
pub(super) const MAX_NODES: u64 = 1_500;

/// Maximum number of nodes after binding and planning, where names are expanded at each use: those
/// of the select list, and those of subqueries and of WITH, into which filters are moved.
pub(super) const MAX_BOUND_NODES: u64 = 10_000;

/// Maximum number of tables in one FROM.
pub(super) const MAX_TABLES_OF_FROM: u64 = 8;

/// Maximum number of tables in total, counted for each use of the WITH expression that contains
/// them.
pub(super) const MAX_TABLES: u64 = 40;

/// Maximum number of columns of a SELECT.
pub(super) const MAX_COLUMNS: u64 = 400;

/// Maximum number of columns of a published view.
pub(super) const VIEW_COLUMNS: u64 = 40;

/// Usual number of nodes of a column of a published view; a few have up to ten.
pub(super) const VIEW_NODES: u64 = 5;

/// Maximum number of combinations of GROUPING SETS, ROLLUP and CUBE.
pub(super) const MAX_GROUPINGS: usize = 16;

/// Maximum number of arguments of a function.
pub(super) const MAX_ARGUMENTS: usize = 64;

/// Maximum number of dot-separated parts of a name.
pub(super) const MAX_NAME_PARTS: usize = 4;

/// Assumed size of a value of a view, bytes. Strings may be longer, but the number of copies is
/// what matters.
pub(super) const COLUMN_BYTES: u64 = 256;

/// Assumed size of a value of a column whose size is chosen by the sender, bytes.
pub(super) const LONG_COLUMN_BYTES: u64 = 16 * 1024;

/// Maximum size of the value of an expression, bytes per row.
pub(super) const MAX_VALUE_BYTES: u64 = 64 * 1024;

/// Maximum size of the values of all expressions of a statement together, bytes per row. The engine
/// processes 2,048 rows at a time and keeps the values of each expression until the operator is
/// done, outside of the memory that it counts: 128 MiB for each thread that runs the statement. All
/// statements share the threads of the engine.
pub(super) const MAX_MADE_BYTES: u64 = 64 * 1024;

/// Maximum length of patterns of LIKE, GLOB and regular expressions, bytes.
pub(super) const MAX_PATTERN_BYTES: usize = 128;

/// Maximum size of a value in which a pattern is searched, bytes.
pub(super) const MAX_SEARCHED_BYTES: u64 = 16 * 1024;

/// Maximum number of search steps per row. A step takes up to 7 us for 2,048 rows, which cannot be
/// interrupted: the statement stops within a second of its deadline.
pub(super) const MAX_SEARCH_STEPS: u64 = 128 * 1024;

/// Maximum number of rows of `range` and of a sample.
pub(super) const MAX_MADE_ROWS: i128 = 1_000_000;
