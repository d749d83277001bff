//! Function calls.

use serde_json::Value;

use crate::fields::Fields;
use crate::from::{order_bys, path, unnamed};
use crate::functions::{self, Function, Kind};
use crate::limits::{MAX_ARGUMENTS, SHORT};
use crate::query::{VisibleNames, Walk};
use crate::refusal::Refusal;
use crate::size::{Cost, Shape, Size};
use crate::{collected, constants, patterns};

/// Copies of its arguments that a macro makes, and maximum bytes of a letter of a timestamp format.
const MACRO_COPIES: u64 = 4;
const FORMAT_BYTES_PER_LETTER: u64 = 16;

/// Maximum bytes of a letter as a list item, and of the shortest name in JSON text with its
/// delimiters.
const LIST_ITEM_BYTES: u64 = 16;
const MIN_JSON_NAME_BYTES: u64 = 4;

/// Maximum bytes of a letter.
const MAX_LETTER_BYTES: u64 = 4;

/// Functions allowed in frame bounds: intervals are written with these.
const BOUND_FUNCTIONS: [&str; 3] = ["-", "trunc", "to_"];

/// Functions whose value for a frame cannot be combined from those of smaller frames: each call
/// takes time proportional to the frame.
const WHOLE_FRAME_FUNCTIONS: [&str; 3] = ["entropy", "mad", "mode"];

impl Walk {
    /// Checks a function call.
    pub(super) fn function(
        &mut self,
        fields: &mut Fields<'_>,
        may_collect: bool,
        (visible, tables): (&VisibleNames<'_>, &mut u64),
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type", "distinct", "is_operator"])?;
        fields.empty(&["export_state"])?;
        let (name, function) = resolve_function(fields)?;
        self.collected
            .check_call(name, function.kind, may_collect)?;
        self.sorted(order_bys(fields)?, visible, tables)?;
        let filter = fields.optional("filter")?;
        let arguments = fields.list("children")?;
        let mut size = self.call((name, function), arguments, (visible, tables))?;
        if let Some(filter) = filter {
            let filter = self.expression(filter, visible, tables)?;
            size = Size::around(&[size, filter]).with_bytes(size.bytes);
        }
        Ok(if function.is_of_groups {
            size.kept()
        } else {
            size
        })
    }

    /// Checks a call over a window.
    pub(super) fn window(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let kind = fields.text("type")?;
        if !kind.starts_with("WINDOW_") {
            return Err(Refusal::unknown(kind));
        }
        fields.ignore(&["ignore_nulls", "distinct"])?;
        let (name, function) = resolve_function(fields)?;
        self.collected.check_call(name, function.kind, false)?;
        let is_whole = frame(fields)?;
        let mut others = Vec::new();
        for partition in fields.list("partitions")? {
            others.push(self.expression(partition, visible, tables)?);
        }
        let orders = fields.list("orders")?;
        if !(is_whole && orders.is_empty()) && needs_whole_frame(name) {
            return Err(Refusal::new(
                format!("{name} is not allowed over frames"),
                "omit ORDER BY and the frame, or use GROUP BY with the columns of PARTITION BY",
            ));
        }
        self.sorted(orders, visible, tables)?;
        self.sorted(fields.list("arg_orders")?, visible, tables)?;
        for name in ["start_expr", "end_expr"] {
            if let Some(bound) = fields.optional(name)? {
                check_bound(bound)?;
                others.push(self.expression(bound, visible, tables)?);
            }
        }
        for name in ["offset_expr", "default_expr", "filter_expr"] {
            if let Some(part) = fields.optional(name)? {
                others.push(self.expression(part, visible, tables)?);
            }
        }
        let arguments = fields.list("children")?;
        let size = self.call((name, function), arguments, (visible, tables))?;
        others.push(size);
        let bytes = others.iter().map(|part| part.bytes).max();
        let whole = Size::around(&others).with_bytes(bytes.unwrap_or(SHORT));
        Ok(whole.kept())
    }

    fn sorted(
        &mut self,
        orders: &[Value],
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<(), Refusal> {
        let mut shape = Shape::default();
        self.orders(orders, visible, &mut shape)?;
        *tables = tables.saturating_add(shape.tables);
        Ok(())
    }

    fn call(
        &mut self,
        (name, function): (&str, Function),
        arguments: &[Value],
        (visible, tables): (&VisibleNames<'_>, &mut u64),
    ) -> Result<Size, Refusal> {
        let most = function.most.min(MAX_ARGUMENTS);
        if arguments.len() > most {
            return Err(Refusal::new(
                format!(
                    "{name} has {} arguments; the limit is {most}",
                    arguments.len()
                ),
                "IN accepts many values",
            ));
        }
        if name == collected::SORTED && !arguments.first().is_some_and(is_plain_list) {
            return Err(unknown(name));
        }
        self.collected.permit_arguments(name, arguments);
        let mut called = Vec::with_capacity(arguments.len());
        for argument in arguments {
            // The names are those of the fields of a struct.
            if name != "struct_pack" {
                unnamed(argument)?;
            }
            called.push((argument, self.expression(argument, visible, tables)?));
        }
        let searched = patterns::check(name, function.kind, &called)?;
        if function.kind == Kind::Json {
            self.reads(&called);
        }
        let whole = result_size(function.kind, &called).check(name)?;
        Ok(whole.made().and(Cost {
            searched,
            ..Cost::default()
        }))
    }
}

/// Size of the value of a function.
fn result_size(kind: Kind, arguments: &[(&Value, Size)]) -> Size {
    let sizes: Vec<Size> = arguments.iter().map(|(_, size)| *size).collect();
    let whole = Size::around(&sizes);
    let bytes = |place: usize| sizes.get(place).map_or(0, |size| size.bytes);
    let joined = sizes
        .iter()
        .fold(0_u64, |sum, size| sum.saturating_add(size.bytes));
    let between = bytes(0).saturating_mul(sizes.len() as u64);
    let items = bytes(0).saturating_mul(LIST_ITEM_BYTES);
    let replaced = bytes(0)
        .saturating_add(1)
        .saturating_mul(bytes(2).saturating_add(1));
    let length = match kind {
        Kind::Short | Kind::Found | Kind::Like => SHORT,
        Kind::AsLong | Kind::Macro | Kind::Regex | Kind::RegexPart | Kind::Json => {
            whole.bytes.max(SHORT)
        }
        Kind::JsonKeys => bytes(0).saturating_mul(MIN_JSON_NAME_BYTES).max(SHORT),
        Kind::Start => start(arguments).min(bytes(0)).max(SHORT),
        Kind::Split | Kind::SplitPart => items.max(SHORT),
        Kind::Joined => joined.saturating_add(SHORT),
        Kind::Separated => joined.saturating_add(between).saturating_add(SHORT),
        Kind::Collected => joined.max(SHORT),
        Kind::Replaced | Kind::RegexReplaced => replaced,
        Kind::Formatted => whole.bytes.saturating_mul(FORMAT_BYTES_PER_LETTER),
    };
    match kind {
        Kind::Macro => Size {
            cost: whole.cost.times(MACRO_COPIES),
            copied: whole.copied.times(MACRO_COPIES),
            ..whole.with_bytes(length)
        },
        // The list is built first.
        Kind::SplitPart => whole.with_bytes(length).made().with_bytes(whole.bytes),
        _ => whole.with_bytes(length),
    }
}

/// Maximum bytes of the prefix whose length in letters is the last argument, if that is a literal
/// number.
fn start(arguments: &[(&Value, Size)]) -> u64 {
    let letters = arguments.get(1..).and_then(|rest| rest.last());
    let letters = letters.and_then(|(value, _)| constants::whole(value));
    let letters = letters.and_then(|letters| u64::try_from(letters).ok());
    letters.map_or(u64::MAX, |letters| letters.saturating_mul(MAX_LETTER_BYTES))
}

/// Checks the frame of a window. Returns true if it contains all rows when nothing is sorted.
///
/// With excluded rows, or bounds that differ by row, the engine aggregates every frame separately,
/// in one call.
fn frame(fields: &mut Fields<'_>) -> Result<bool, Refusal> {
    let start = fields.text("start")?;
    let end = fields.text("end")?;
    if fields.one_of("exclude_clause", &["NO_OTHER"]).is_err() {
        return Err(Refusal::new(
            "EXCLUDE in a window is not allowed",
            "subtract the row itself: sum(x) OVER w - x",
        ));
    }
    let is_open = matches!(end, "UNBOUNDED_FOLLOWING" | "CURRENT_ROW_RANGE");
    Ok(start == "UNBOUNDED_PRECEDING" && is_open)
}

fn needs_whole_frame(name: &str) -> bool {
    WHOLE_FRAME_FUNCTIONS
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// Refuses a frame bound that could differ by row.
fn check_bound(value: &Value) -> Result<(), Refusal> {
    let name = value.get("function_name").and_then(Value::as_str);
    let is_known = match value.get("class").and_then(Value::as_str) {
        Some("CONSTANT" | "CAST") => true,
        Some("FUNCTION") => {
            name.is_some_and(|name| BOUND_FUNCTIONS.iter().any(|known| name.starts_with(known)))
        }
        _ => false,
    };
    if !is_known {
        return Err(Refusal::new(
            "a window bound must be a literal number or interval",
            "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, or RANGE BETWEEN INTERVAL 1 MINUTE PRECEDING AND CURRENT ROW",
        ));
    }
    let arguments = value.get("children").and_then(Value::as_array);
    let inner = arguments.into_iter().flatten();
    inner.chain(value.get("child")).try_for_each(check_bound)
}

/// Functions that the parser qualifies with the schema `main`, because they implement syntax such
/// as `[1, 2]` and `extract(hour FROM t)`.
const PARSER_FUNCTIONS: [&str; 13] = [
    "date_part",
    "ilike_escape",
    "like_escape",
    "list_value",
    "ltrim",
    "not_ilike_escape",
    "not_like_escape",
    "position",
    "row",
    "rtrim",
    "struct_pack",
    "substring",
    "trim",
];

/// Returns the called function, if it is allowed.
fn resolve_function<'a>(fields: &mut Fields<'a>) -> Result<(&'a str, Function), Refusal> {
    let name = fields.text("function_name")?;
    let (catalog, schema) = (fields.text("catalog")?, fields.text("schema")?);
    let is_plain = schema.is_empty() || (schema == "main" && PARSER_FUNCTIONS.contains(&name));
    let function = functions::allowed(name).filter(|_| catalog.is_empty() && is_plain);
    let function = function.map(|function| (name, function));
    function.ok_or_else(|| unknown(&path(&[catalog, schema, name])))
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(
        format!("the function {name} is not allowed"),
        functions::alternative_to(name),
    )
}

/// Returns true if an argument is a list of the values of a group. Sorting a list is one call,
/// which cannot be interrupted, so it is allowed once for each collected list.
fn is_plain_list(argument: &Value) -> bool {
    let name = argument.get("function_name").and_then(Value::as_str);
    name == Some("list")
}
