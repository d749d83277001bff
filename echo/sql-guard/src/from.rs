//! FROM clauses: tables, subqueries, joins, lists of values and table functions.

use serde_json::Value;

use crate::fields::{Fields, path};
use crate::query::Scope;
use crate::refusal::Refusal;
use crate::sample::sample;
use crate::views;
/// Functions that are allowed as tables.
const TABLE_FUNCTIONS: [&str; 3] = ["range", "generate_series", "unnest"];

impl Scope<'_> {
    /// Checks a table of a FROM clause, or a join of tables.
    pub(super) fn table(&self, value: &Value) -> Result<(), Refusal> {
        let mut fields = Fields::new(value, "a table")?;
        let kind = fields.text("type")?;
        fields.text("alias")?;
        if let Some(size) = fields.optional("sample")? {
            sample(size)?;
        }
        match kind {
            "EMPTY" => {}
            "BASE_TABLE" => {
                self.base_table(&mut fields)?;
                fields.list("column_name_alias")?;
            }
            "SUBQUERY" => {
                self.statement(fields.take("subquery")?)?;
                fields.list("column_name_alias")?;
            }
            "JOIN" => self.join(&mut fields)?,
            "EXPRESSION_LIST" => {
                fields.empty(&["expected_names", "expected_types"])?;
                for row in fields.list("values")? {
                    let row = row.as_array().ok_or_else(|| Refusal::unknown("VALUES"))?;
                    self.expressions(row)?;
                }
            }
            "TABLE_FUNCTION" => self.table_function(&mut fields)?,
            "SHOW_REF" => {
                return Err(Refusal::new(
                    "DESCRIBE, SUMMARIZE and SHOW are not allowed",
                    format!(
                        "SELECT * FROM a view shows its columns; the views are {}",
                        views::names()
                    ),
                ));
            }
            "PIVOT" => {
                return Err(Refusal::new(
                    "PIVOT and UNPIVOT are not allowed",
                    "aggregate with FILTER: sum(x) FILTER (WHERE y = 'a') AS a",
                ));
            }
            other => return Err(Refusal::unknown(other)),
        }
        fields.finish()
    }

    fn join(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let known = ["INNER", "LEFT", "RIGHT", "OUTER", "FULL", "SEMI", "ANTI"];
        fields.one_of("join_type", &known)?;
        let known = ["REGULAR", "CROSS", "NATURAL", "ASOF", "POSITIONAL"];
        fields.one_of("ref_type", &known)?;
        fields.empty(&["delim_flipped", "duplicate_eliminated_columns"])?;
        fields.ignore(&["using_columns"])?;
        for side in ["left", "right"] {
            self.table(fields.take(side)?)?;
        }
        match fields.optional("condition")? {
            Some(condition) => self.expression(condition),
            None => Ok(()),
        }
    }

    fn table_function(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.ignore(&["column_name_alias"])?;
        fields.one_of(
            "with_ordinality",
            &["WITHOUT_ORDINALITY", "WITH_ORDINALITY"],
        )?;
        let mut called = Fields::new(fields.take("function")?, "a table function")?;
        called.one_of("class", &["FUNCTION"])?;
        called.one_of("type", &["FUNCTION"])?;
        called.empty(&["filter", "distinct", "is_operator", "export_state"])?;
        called.ignore(&["alias"])?;
        let (catalog, schema) = (called.text("catalog")?, called.text("schema")?);
        let name = path(&[catalog, schema, called.text("function_name")?]);
        if !TABLE_FUNCTIONS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Refusal::new(
                format!("the table function {name} is not allowed"),
                format!(
                    "allowed are range, generate_series and unnest; the views are {}",
                    views::names()
                ),
            ));
        }
        if !order_bys(&mut called)?.is_empty() {
            return Err(Refusal::unknown("ORDER BY of a table function"));
        }
        let arguments = called.list("children")?;
        arguments.iter().try_for_each(unnamed)?;
        called.finish()?;
        self.expressions(arguments)
    }

    fn base_table(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let name = fields.text("table_name")?;
        let (catalog, schema) = (fields.text("catalog_name")?, fields.text("schema_name")?);
        if !catalog.is_empty() || !schema.is_empty() {
            return Err(Refusal::new(
                format!("{} is not a published view", path(&[catalog, schema, name])),
                format!("name a view without a prefix: {}", views::names()),
            ));
        }
        fields.empty(&["at_clause"])?;
        if self.defines(name) || views::is_published(name) {
            return Ok(());
        }
        let views = format!("the views are {}", views::names());
        let instead = views::instead(name).map(|hint| format!("{hint}; {views}"));
        Err(Refusal::new(
            format!("{name} is not a published view"),
            instead.unwrap_or(views),
        ))
    }
}

/// Returns the ORDER BY expressions of a call.
pub(super) fn order_bys<'a>(fields: &mut Fields<'a>) -> Result<&'a [Value], Refusal> {
    let mut order_bys = Fields::new(fields.take("order_bys")?, "ORDER BY")?;
    order_bys.one_of("type", &["ORDER_MODIFIER"])?;
    let orders = order_bys.list("orders")?;
    order_bys.finish()?;
    Ok(orders)
}

/// Refuses a named argument.
pub(super) fn unnamed(value: &Value) -> Result<(), Refusal> {
    Fields::new(value, "an argument")?.empty(&["alias"])
}
