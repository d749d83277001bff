//! Expressions.

use serde_json::Value;

use crate::fields::Fields;
use crate::query::Scope;
use crate::refusal::Refusal;
use crate::{casts, constants, functions};
/// Maximum number of dot-separated parts of a name.
const MAX_NAME_PARTS: usize = 4;
/// Operators besides functions.
const OPERATORS: [&str; 10] = [
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

impl Scope<'_> {
    /// Checks an expression; its subqueries can read the tables of this scope.
    pub(super) fn expression(&self, value: &Value) -> Result<(), Refusal> {
        let mut fields = Fields::new(value, "an expression")?;
        let class = fields.text("class")?;
        fields.ignore(&["alias"])?;
        match class {
            "CONSTANT" => constants::check(&mut fields)?,
            "COLUMN_REF" => column(&mut fields)?,
            "POSITIONAL_REFERENCE" => fields.ignore(&["type", "index"])?,
            "STAR" => self.star(&mut fields)?,
            "FUNCTION" => self.function(&mut fields)?,
            "WINDOW" => self.window(&mut fields)?,
            "CAST" => {
                fields.ignore(&["type", "try_cast"])?;
                self.expression(fields.take("child")?)?;
                casts::check(fields.take("cast_type")?)?;
            }
            "SUBQUERY" => self.subquery(&mut fields)?,
            "CASE" => self.case(&mut fields)?,
            "BETWEEN" => self.parts(&mut fields, &["input", "lower", "upper"])?,
            "COMPARISON" => self.parts(&mut fields, &["left", "right"])?,
            "CONJUNCTION" => {
                fields.ignore(&["type"])?;
                self.expressions(fields.list("children")?)?;
            }
            "OPERATOR" => {
                fields.one_of("type", &OPERATORS)?;
                self.expressions(fields.list("children")?)?;
            }
            "LAMBDA" => self.arrow(&mut fields)?,
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
        }
        fields.finish()
    }

    /// Checks each of several expressions.
    pub(super) fn expressions(&self, values: &[Value]) -> Result<(), Refusal> {
        values.iter().try_for_each(|value| self.expression(value))
    }

    /// Checks the expressions in these fields.
    fn parts(&self, fields: &mut Fields<'_>, names: &[&str]) -> Result<(), Refusal> {
        fields.ignore(&["type"])?;
        for name in names {
            self.expression(fields.take(name)?)?;
        }
        Ok(())
    }

    fn case(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.ignore(&["type"])?;
        for branch in fields.list("case_checks")? {
            let mut branch = Fields::new(branch, "CASE")?;
            for name in ["when_expr", "then_expr"] {
                self.expression(branch.take(name)?)?;
            }
            branch.finish()?;
        }
        self.expression(fields.take("else_expr")?)
    }

    /// Checks `attrs->'key'`, which the parser represents as a lambda until it is bound.
    fn arrow(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.ignore(&["type"])?;
        let path = fields.take("expr")?;
        let is_path = path.get("class").is_some_and(|class| class == "CONSTANT");
        if !is_path {
            return Err(Refusal::new(
                "lambda functions and list comprehensions are not allowed",
                "unnest the list and work on its rows",
            ));
        }
        self.expression(fields.take("lhs")?)?;
        self.expression(path)
    }

    fn subquery(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.one_of("subquery_type", &["SCALAR", "EXISTS", "NOT_EXISTS", "ANY"])?;
        fields.ignore(&["type", "comparison_type"])?;
        if let Some(child) = fields.optional("child")? {
            self.expression(child)?;
        }
        self.statement(fields.take("subquery")?)
    }

    fn star(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.ignore(&[
            "type",
            "relation_name",
            "exclude_list",
            "qualified_exclude_list",
            "rename_list",
            "columns",
        ])?;
        if let Some(chosen) = fields.optional("expr")? {
            if !constants::is_text(chosen) {
                return Err(Refusal::new(
                    "COLUMNS requires a quoted string here",
                    "COLUMNS('.*_ms') selects the columns whose names match",
                ));
            }
            self.expression(chosen)?;
        }
        for replaced in fields.list("replace_list")? {
            let mut replaced = Fields::new(replaced, "REPLACE")?;
            replaced.ignore(&["key"])?;
            self.expression(replaced.take("value")?)?;
            replaced.finish()?;
        }
        Ok(())
    }
}
/// Checks a column of FROM or of the select list, or a whole row.
fn column(fields: &mut Fields<'_>) -> Result<(), Refusal> {
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
    Ok(())
}
