//! Expressions.

use serde_json::Value;

use crate::sql_guard::fields::Fields;
use crate::sql_guard::functions::{self, Kind};
use crate::sql_guard::limits::MAX_NAME_PARTS;
use crate::sql_guard::query::{Sight, Walk};
use crate::sql_guard::refusal::Refusal;
use crate::sql_guard::size::Size;
use crate::sql_guard::{casts, patterns};

/// Bytes of a number or an instant as text.
pub(super) const SHORT: u64 = 64;

/// Nodes that a table in a subquery is as expensive as.
const OF_A_TABLE: u64 = 100;

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
