//! Calls of functions.

use serde_json::Value;

use crate::sql_guard::expression::SHORT;
use crate::sql_guard::fields::Fields;
use crate::sql_guard::from::{order_bys, path};
use crate::sql_guard::functions::{self, Function, Kind};
use crate::sql_guard::limits::{COLLECTED_BYTES, MAX_ARGUMENTS};
use crate::sql_guard::patterns;
use crate::sql_guard::query::{Sight, Walk};
use crate::sql_guard::refusal::Refusal;
use crate::sql_guard::size::{Shape, Size};

/// Copies of its arguments that a macro makes, and bytes that a letter of a format of instants can become.
const COPIES: u64 = 4;
const FORMATTED: u64 = 16;

impl Walk {
    /// A call.
    pub(super) fn function(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type", "distinct", "is_operator"])?;
        fields.empty(&["export_state"])?;
        let (name, function) = called(fields)?;
        self.sorted(order_bys(fields)?, sight, tables)?;
        let filter = fields.optional("filter")?;
        let arguments = fields.list("arguments")?;
        let mut size = self.call((name, function), arguments, (sight, tables))?;
        if let Some(filter) = filter {
            let filter = self.expression(filter, sight, tables)?;
            size = Size::around(&[size, filter]).with_bytes(size.bytes);
        }
        Ok(size)
    }

    /// A call over a window.
    pub(super) fn window(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let kind = fields.text("type")?;
        if !kind.starts_with("WINDOW_") {
            return Err(Refusal::unknown(kind));
        }
        fields.ignore(&[
            "start",
            "end",
            "exclude_clause",
            "ignore_nulls",
            "has_ignore_nulls",
            "distinct",
        ])?;
        let (name, function) = called(fields)?;
        let mut others = Vec::new();
        for partition in fields.list("partitions")? {
            others.push(self.expression(partition, sight, tables)?);
        }
        for name in ["orders", "arg_orders"] {
            self.sorted(fields.list(name)?, sight, tables)?;
        }
        for name in [
            "start_expr",
            "end_expr",
            "offset_expr",
            "default_expr",
            "filter_expr",
        ] {
            if let Some(part) = fields.optional(name)? {
                others.push(self.expression(part, sight, tables)?);
            }
        }
        let arguments = fields.list("arguments")?;
        let size = self.call((name, function), arguments, (sight, tables))?;
        others.push(size);
        let bytes = others.iter().map(|part| part.bytes).max();
        Ok(Size::around(&others).with_bytes(bytes.unwrap_or(SHORT)))
    }

    fn sorted(
        &mut self,
        orders: &[Value],
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<(), Refusal> {
        let mut shape = Shape::default();
        self.orders(orders, sight, &mut shape)?;
        *tables = tables.saturating_add(shape.tables);
        Ok(())
    }

    fn call(
        &mut self,
        (name, function): (&str, Function),
        arguments: &[Value],
        (sight, tables): (&Sight<'_>, &mut u64),
    ) -> Result<Size, Refusal> {
        let most = function.most.min(MAX_ARGUMENTS);
        if arguments.len() > most {
            return Err(Refusal::new(
                format!(
                    "{name} has {} arguments, at most {most} are taken",
                    arguments.len()
                ),
                "IN takes many values",
            ));
        }
        let mut called = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let mut fields = Fields::of(argument, "an argument")?;
            // The names are those of the fields of a structure.
            if name == "struct_pack" {
                fields.ignore(&["name"])?;
            } else {
                fields.empty(&["name"])?;
            }
            let value = fields.take("expression")?;
            fields.finish()?;
            called.push((value, self.expression(value, sight, tables)?));
        }
        patterns::check(name, function.kind, &called)?;
        let sizes: Vec<Size> = called.iter().map(|(_, size)| *size).collect();
        made(function.kind, &sizes).check(name)
    }
}

/// How large the value of a function gets.
fn made(kind: Kind, arguments: &[Size]) -> Size {
    let whole = Size::around(arguments);
    let bytes = |place: usize| arguments.get(place).map_or(0, |size| size.bytes);
    let joined = arguments
        .iter()
        .fold(0_u64, |sum, size| sum.saturating_add(size.bytes));
    let replaced = bytes(0)
        .saturating_add(1)
        .saturating_mul(bytes(2).saturating_add(1));
    let length = match kind {
        Kind::Short | Kind::Found | Kind::Like => SHORT,
        Kind::AsLong | Kind::Macro | Kind::Regex | Kind::Json => whole.bytes.max(SHORT),
        Kind::Joined => joined.saturating_add(SHORT),
        Kind::Collected => COLLECTED_BYTES.max(joined),
        Kind::Replaced | Kind::RegexReplaced => replaced,
        Kind::Formatted => whole.bytes.saturating_mul(FORMATTED),
    };
    let copies = if kind == Kind::Macro { COPIES } else { 1 };
    Size {
        nodes: whole.nodes.saturating_mul(copies),
        ..whole.with_bytes(length)
    }
}

/// The function that is called, if it may be.
fn called<'a>(fields: &mut Fields<'a>) -> Result<(&'a str, Function), Refusal> {
    let name = fields.text("function_name")?;
    let parts = path(fields.take("qualified_name")?)?;
    let is_qualified = fields.empty(&["schema", "catalog"]).is_err() || parts.as_slice() != [name];
    let function = functions::allowed(name).filter(|_| !is_qualified);
    function.map(|function| (name, function)).ok_or_else(|| {
        Refusal::new(
            format!(
                "the function {} is not among what may be asked",
                parts.join(".")
            ),
            functions::instead_of(name),
        )
    })
}
