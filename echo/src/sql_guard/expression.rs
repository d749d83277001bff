//! Expressions.

use serde_json::Value;

use crate::sql_guard::fields::Fields;
use crate::sql_guard::from::{order_bys, path};
use crate::sql_guard::functions::{self, Function, Kind};
use crate::sql_guard::limits::{COLLECTED_BYTES, MAX_ARGUMENTS, MAX_NAME_PARTS};
use crate::sql_guard::query::{Sight, Walk};
use crate::sql_guard::refusal::Refusal;
use crate::sql_guard::size::{Shape, Size};
use crate::sql_guard::{casts, patterns};

/// Bytes of a number or an instant as text.
const SHORT: u64 = 64;

/// Copies of its arguments that a macro makes, and bytes that a letter of a format of instants can become.
const COPIES: u64 = 4;
const FORMATTED: u64 = 16;

/// Nodes that a table in a subquery is as expensive as.
const OF_A_TABLE: u64 = 100;

/// Most values of a list that is written out as an argument.
const MAX_LIST: usize = MAX_ARGUMENTS;

impl Walk {
    /// An expression. The tables that its subqueries read are added to `tables`.
    pub(super) fn expression(
        &mut self,
        value: &Value,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        self.count()?;
        let mut fields = Fields::of(value, "an expression")?;
        let class = fields.text("class")?;
        fields.ignore(&["alias"])?;
        let size = match class {
            "CONSTANT" => constant(&mut fields)?,
            "COLUMN_REF" => column(&mut fields, sight)?,
            "POSITIONAL_REFERENCE" => {
                fields.ignore(&["type", "index"])?;
                Size::value(sight.columns.bytes)
            }
            "STAR" => self.star(&mut fields, sight, tables)?,
            "FUNCTION" => self.function(&mut fields, sight, tables)?,
            "WINDOW" => self.window(&mut fields, sight, tables)?,
            "CAST" => {
                fields.ignore(&["type", "try_cast"])?;
                casts::check(fields.take("type_expr")?)?;
                let size = self.expression(fields.take("child")?, sight, tables)?;
                // A list as text has quotes and commas.
                let bytes = size.bytes.saturating_mul(2).max(SHORT);
                Size::around(&[size]).with_bytes(bytes)
            }
            "SUBQUERY" => self.subquery(&mut fields, sight, tables)?,
            "CASE" => self.case(&mut fields, sight, tables)?,
            "BETWEEN" => self.parts(&mut fields, &["input", "lower", "upper"], (sight, tables))?,
            "COMPARISON" => self.parts(&mut fields, &["left", "right"], (sight, tables))?,
            "CONJUNCTION" => {
                fields.ignore(&["type"])?;
                self.each(fields.list("children")?, sight, tables)?
            }
            "OPERATOR" => self.operator(&mut fields, sight, tables)?,
            "LAMBDA" => self.arrow(&mut fields, sight, tables)?,
            "PARAMETER" => {
                return Err(Refusal::new(
                    "there is nothing to put in for a parameter",
                    "write the value itself",
                ));
            }
            "COLLATE" => {
                return Err(Refusal::new(
                    "COLLATE is not run",
                    "compare lower(a) with lower(b)",
                ));
            }
            other => return Err(Refusal::unknown(other)),
        };
        fields.finish()?;
        size.check("an expression")
    }

    /// Several expressions, as parts of one.
    fn each(
        &mut self,
        values: &[Value],
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let mut sizes = Vec::with_capacity(values.len());
        for value in values {
            sizes.push(self.expression(value, sight, tables)?);
        }
        Ok(Size::around(&sizes))
    }

    /// Expressions in fields, as parts of one; its value is short.
    fn parts(
        &mut self,
        fields: &mut Fields<'_>,
        names: &[&str],
        (sight, tables): (&Sight<'_>, &mut u64),
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let mut sizes = Vec::with_capacity(names.len());
        for name in names {
            sizes.push(self.expression(fields.take(name)?, sight, tables)?);
        }
        Ok(Size::around(&sizes).with_bytes(1))
    }

    fn case(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let mut sizes = Vec::new();
        for check in fields.list("case_checks")? {
            let mut check = Fields::of(check, "CASE")?;
            for name in ["when_expr", "then_expr"] {
                sizes.push(self.expression(check.take(name)?, sight, tables)?);
            }
            check.finish()?;
        }
        sizes.push(self.expression(fields.take("else_expr")?, sight, tables)?);
        Ok(Size::around(&sizes))
    }

    /// `attrs->'key'`, which the parser takes for a function of a function until it is bound.
    fn arrow(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let path = fields.take("expr")?;
        let is_path = path.get("class").is_some_and(|class| class == "CONSTANT");
        if fields.text("syntax_type")? != "SINGLE_ARROW" || !is_path {
            return Err(Refusal::new(
                "functions of functions (lambda, list comprehensions) are not run",
                "unnest the list and work on its rows",
            ));
        }
        let json = self.expression(fields.take("lhs")?, sight, tables)?;
        let size = self.expression(path, sight, tables)?;
        patterns::check("->", Kind::Json, &[(path, json), (path, size)])?;
        Ok(Size::around(&[json, size]))
    }

    fn operator(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let known = [
            "ARRAY_EXTRACT",
            "ARRAY_SLICE",
            "COMPARE_IN",
            "COMPARE_NOT_IN",
            "GROUPING_FUNCTION",
            "OPERATOR_COALESCE",
            "OPERATOR_IS_NOT_NULL",
            "OPERATOR_IS_NULL",
            "OPERATOR_NOT",
            "STRUCT_EXTRACT",
        ];
        fields.one_of("type", &known)?;
        self.each(fields.list("children")?, sight, tables)
    }

    fn subquery(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let kind = fields.one_of("subquery_type", &["SCALAR", "EXISTS", "NOT_EXISTS", "ANY"])?;
        fields.ignore(&["type", "comparison_type"])?;
        let mut size = Size::value(0);
        if let Some(child) = fields.optional("child")? {
            let child = self.expression(child, sight, tables)?;
            size = Size::around(&[child]);
        }
        let before = self.bound();
        let shape = self.statement(fields.take("subquery")?, sight)?;
        *tables = tables.saturating_add(shape.tables);
        // Whoever uses the value again has the subquery copied, with the tables that it reads.
        let copied = self.bound() - before + shape.tables.saturating_mul(OF_A_TABLE);
        size.nodes = size.nodes.saturating_add(copied);
        let bytes = if kind == "SCALAR" { shape.bytes } else { 1 };
        Ok(size.with_bytes(bytes))
    }

    fn star(
        &mut self,
        fields: &mut Fields<'_>,
        sight: &Sight<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&[
            "type",
            "relation_name",
            "exclude_list",
            "qualified_exclude_list",
            "rename_list",
            "columns",
        ])?;
        if let Some(chosen) = fields.optional("expr")? {
            let is_pattern = patterns::constant(chosen).is_some_and(|text| text.len() < 64);
            if !is_pattern {
                return Err(Refusal::new(
                    "COLUMNS takes a short text in quotes here",
                    "COLUMNS('.*_ms') takes the columns whose names match",
                ));
            }
            self.expression(chosen, sight, tables)?;
        }
        let mut sizes = vec![Size::value(sight.columns.bytes)];
        for replaced in fields.list("replace_list")? {
            let mut replaced = Fields::of(replaced, "REPLACE")?;
            replaced.ignore(&["key"])?;
            sizes.push(self.expression(replaced.take("value")?, sight, tables)?);
            replaced.finish()?;
        }
        let columns = sight.columns.columns.max(1);
        Ok(Size {
            columns,
            ..Size::around(&sizes)
        })
    }

    fn function(
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

    fn window(
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
        let most = function.most.min(MAX_LIST);
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

/// A value that is written out.
pub(super) fn constant(fields: &mut Fields<'_>) -> Result<Size, Refusal> {
    fields.one_of("type", &["VALUE_CONSTANT"])?;
    let mut literal = Fields::of(fields.take("literal")?, "a constant")?;
    let known = [
        "BOOLEAN",
        "HEX",
        "INTEGER",
        "NULL_LITERAL",
        "NUMERIC",
        "STRING",
    ];
    literal.one_of("kind", &known)?;
    // NULL has none.
    let text = literal.take("text").ok().and_then(Value::as_str);
    literal.finish()?;
    Ok(Size::value(text.map_or(0, str::len) as u64))
}

fn column(fields: &mut Fields<'_>, sight: &Sight<'_>) -> Result<Size, Refusal> {
    fields.one_of("type", &["COLUMN_REF"])?;
    let names = fields.list("column_names")?;
    if names.is_empty() || names.len() > MAX_NAME_PARTS {
        return Err(Refusal::new(
            format!("a name has more than {MAX_NAME_PARTS} parts"),
            "name a column, or a view and its column",
        ));
    }
    let last = names.last().and_then(Value::as_str);
    let last = last.ok_or_else(|| Refusal::unknown("a name"))?;
    if functions::tells_about_the_session(last) {
        return Err(Refusal::new(
            format!("{last} is not among what may be asked"),
            "the views have the names of clusters, nodes and jobs",
        ));
    }
    let own = Size::value(sight.columns.bytes);
    let alias = sight.aliases.get(&last.to_lowercase());
    Ok(alias.map_or(own, |alias| Size {
        nodes: alias.nodes,
        bytes: alias.bytes.max(own.bytes),
        columns: 1,
    }))
}
