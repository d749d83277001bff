//! Expressions.

use serde_json::Value;

use crate::fields::Fields;
use crate::functions::{self, Kind};
use crate::limits::MAX_NAME_PARTS;
use crate::query::{VisibleNames, Walk};
use crate::refusal::Refusal;
use crate::size::{Cost, Size};
use crate::{casts, constants, patterns, views};

/// Number of nodes that a table in a subquery counts as.
const TABLE_NODES: u64 = 100;

impl Walk {
    /// Checks an expression. The tables that its subqueries read are added to `tables`.
    pub(super) fn expression(
        &mut self,
        value: &Value,
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        self.count()?;
        let may_collect = self.collected.take_permission();
        let mut fields = Fields::new(value, "an expression")?;
        let class = fields.text("class")?;
        fields.ignore(&["alias"])?;
        let size = match class {
            "CONSTANT" => constants::check(&mut fields)?,
            "COLUMN_REF" => self.column(&mut fields, visible)?,
            "POSITIONAL_REFERENCE" => {
                fields.ignore(&["type", "index"])?;
                self.collected.check_compared()?;
                Size::column(visible.columns.bytes, visible.columns.copied)
            }
            "STAR" => self.star(&mut fields, visible, tables)?,
            "FUNCTION" => self.function(&mut fields, may_collect, (visible, tables))?,
            "WINDOW" => self.window(&mut fields, visible, tables)?,
            "CAST" => {
                fields.ignore(&["type", "try_cast"])?;
                let size = self.expression(fields.take("child")?, visible, tables)?;
                let bytes = casts::check(fields.take("cast_type")?, size.bytes)?;
                Size::around(&[size]).with_bytes(bytes).made()
            }
            "SUBQUERY" => self.subquery(&mut fields, visible, tables)?,
            "CASE" => self.case(&mut fields, visible, tables)?,
            "BETWEEN" => {
                self.parts(&mut fields, &["input", "lower", "upper"], (visible, tables))?
            }
            "COMPARISON" => self.parts(&mut fields, &["left", "right"], (visible, tables))?,
            "CONJUNCTION" => {
                fields.ignore(&["type"])?;
                let size = self.each(fields.list("children")?, visible, tables)?;
                size.with_bytes(1)
            }
            "OPERATOR" => self.operator(&mut fields, visible, tables)?,
            "LAMBDA" => self.arrow(&mut fields, visible, tables)?,
            "PARAMETER" => {
                return Err(Refusal::new(
                    "parameters are not supported",
                    "write the value itself",
                ));
            }
            "COLLATE" => {
                return Err(Refusal::new(
                    "COLLATE is not allowed",
                    "compare lower(a) with lower(b)",
                ));
            }
            other => return Err(Refusal::unknown(other)),
        };
        fields.finish()?;
        size.check("an expression")
    }

    /// Checks expressions that are parts of one.
    fn each(
        &mut self,
        values: &[Value],
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let mut sizes = Vec::with_capacity(values.len());
        for value in values {
            sizes.push(self.expression(value, visible, tables)?);
        }
        Ok(Size::around(&sizes))
    }

    /// Checks expressions in fields, as parts of one whose value is short.
    fn parts(
        &mut self,
        fields: &mut Fields<'_>,
        names: &[&str],
        (visible, tables): (&VisibleNames<'_>, &mut u64),
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let mut sizes = Vec::with_capacity(names.len());
        for name in names {
            sizes.push(self.expression(fields.take(name)?, visible, tables)?);
        }
        Ok(Size::around(&sizes).with_bytes(1))
    }

    fn case(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let mut sizes = Vec::new();
        for check in fields.list("case_checks")? {
            let mut check = Fields::new(check, "CASE")?;
            for name in ["when_expr", "then_expr"] {
                sizes.push(self.expression(check.take(name)?, visible, tables)?);
            }
            check.finish()?;
        }
        sizes.push(self.expression(fields.take("else_expr")?, visible, tables)?);
        Ok(Size::around(&sizes).made())
    }

    /// Checks `attrs->'key'`, which the parser represents as a lambda until it is bound.
    fn arrow(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        fields.ignore(&["type"])?;
        let path = fields.take("expr")?;
        let is_path = path.get("class").is_some_and(|class| class == "CONSTANT");
        if !is_path {
            return Err(Refusal::new(
                "lambda functions and list comprehensions are not allowed",
                "unnest the list and work on its rows",
            ));
        }
        let document = fields.take("lhs")?;
        let json = self.expression(document, visible, tables)?;
        let size = self.expression(path, visible, tables)?;
        let called = [(document, json), (path, size)];
        patterns::check("->", Kind::Json, &called)?;
        self.reads(&called);
        Ok(Size::around(&[json, size]).made())
    }

    fn operator(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
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
        let kind = fields.one_of("type", &known)?;
        let children = fields.list("children")?;
        if kind == "ARRAY_EXTRACT" {
            self.collected.permit_item(children);
        }
        let size = self.each(children, visible, tables)?;
        let is_a_part = [
            "ARRAY_EXTRACT",
            "ARRAY_SLICE",
            "OPERATOR_COALESCE",
            "STRUCT_EXTRACT",
        ];
        Ok(if is_a_part.contains(&kind) {
            size.made()
        } else {
            size.with_bytes(1)
        })
    }

    fn subquery(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
        tables: &mut u64,
    ) -> Result<Size, Refusal> {
        let kind = fields.one_of("subquery_type", &["SCALAR", "EXISTS", "NOT_EXISTS", "ANY"])?;
        fields.ignore(&["type", "comparison_type"])?;
        let mut size = Size::value(0);
        if let Some(child) = fields.optional("child")? {
            let child = self.expression(child, visible, tables)?;
            size = Size::around(&[child]);
        }
        let before = self.spent;
        let shape = self.statement(fields.take("subquery")?, visible)?;
        *tables = tables.saturating_add(shape.tables);
        // If the value is used again, the subquery is copied with the tables that it reads.
        let copied = self.spent.less(before).plus(Cost {
            nodes: shape.tables.saturating_mul(TABLE_NODES),
            ..Cost::default()
        });
        // It is counted with the expression that contains it.
        self.spent = before;
        let bytes = if kind == "SCALAR" { shape.bytes } else { 1 };
        Ok(size.and(copied).with_bytes(bytes))
    }

    /// Checks a column of FROM or of the select list, or a whole row.
    fn column(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
    ) -> Result<Size, Refusal> {
        let (name, is_bare) = parse_column(fields)?;
        self.collected.check_name(&name)?;
        let columns = visible.columns;
        let own = if is_bare && self.rows.contains(&name) {
            let bytes = columns.bytes.saturating_mul(columns.columns);
            Size::column(bytes, columns.all)
        } else if views::is_long(&name) {
            Size::column(columns.bytes, columns.copied)
        } else {
            Size::column(columns.usual, columns.copied)
        };
        let alias = visible.aliases.get(&name);
        Ok(alias.map_or(own, |alias| Size {
            cost: alias.cost.max(own.cost),
            copied: alias.copied.max(own.copied),
            bytes: alias.bytes.max(own.bytes),
            columns: 1,
        }))
    }

    fn star(
        &mut self,
        fields: &mut Fields<'_>,
        visible: &VisibleNames<'_>,
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
            let is_pattern = constants::text(chosen).is_some_and(|text| text.len() < 64);
            if !is_pattern {
                return Err(Refusal::new(
                    "COLUMNS requires a short quoted string here",
                    "COLUMNS('.*_ms') selects the columns whose names match",
                ));
            }
            self.expression(chosen, visible, tables)?;
        }
        // The total cost of all columns is known, but not that of each one.
        let columns = visible.columns.columns.max(1);
        let own = Size {
            cost: Cost {
                nodes: visible.columns.all.nodes.div_ceil(columns).max(1),
                ..Cost::default()
            },
            ..Size::column(visible.columns.bytes, visible.columns.copied)
        };
        let mut sizes = vec![own];
        for replaced in fields.list("replace_list")? {
            let mut replaced = Fields::new(replaced, "REPLACE")?;
            replaced.ignore(&["key"])?;
            sizes.push(self.expression(replaced.take("value")?, visible, tables)?);
            replaced.finish()?;
        }
        Ok(Size {
            columns,
            ..Size::around(&sizes)
        })
    }
}

/// Returns the lowercase name of a column, and true if it is unqualified.
fn parse_column(fields: &mut Fields<'_>) -> Result<(String, bool), Refusal> {
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
    if functions::is_session_function(last) {
        return Err(Refusal::new(
            format!("{last} is not allowed"),
            "the views have the names of clusters, nodes and jobs",
        ));
    }
    Ok((last.to_lowercase(), names.len() == 1))
}
