//! FROM clauses: tables, subqueries, joins, lists of values and table functions.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fields::Fields;
use crate::limits::{
    COLUMN_BYTES, LONG_COLUMN_BYTES, MAX_COLUMNS, MAX_MADE_ROWS, MAX_TABLES_OF_FROM, VIEW_COLUMNS,
    VIEW_NODES,
};
use crate::query::{VisibleNames, Walk};
use crate::refusal::Refusal;
use crate::size::{Cost, Shape};
use crate::{constants, views};

/// Shape of a table without columns.
const ONE: Shape = Shape {
    columns: 0,
    bytes: 0,
    usual: 0,
    copied: Cost::NODE,
    all: Cost::NODE,
    tables: 1,
};

impl Walk {
    /// Checks a FROM clause.
    pub(super) fn from(
        &mut self,
        value: &Value,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        let mut places = 0;
        self.table(value, around, &mut places)
    }

    fn table(
        &mut self,
        value: &Value,
        around: &VisibleNames<'_>,
        places: &mut u64,
    ) -> Result<Shape, Refusal> {
        self.count()?;
        let mut fields = Fields::new(value, "a table")?;
        let kind = fields.text("type")?;
        self.rows.insert(fields.text("alias")?.to_lowercase());
        if let Some(sample) = fields.optional("sample")? {
            self.sample(sample)?;
        }
        if !matches!(kind, "JOIN" | "EMPTY") {
            *places += 1;
        }
        if *places > MAX_TABLES_OF_FROM {
            return Err(Refusal::new(
                format!("one FROM has more than {MAX_TABLES_OF_FROM} tables"),
                "join fewer; the views have the names of nodes, ranks and jobs in them",
            ));
        }
        let shape = match kind {
            // Even an empty table is a part of the plan, each time the query is used.
            "EMPTY" => ONE,
            "BASE_TABLE" => {
                let name = fields.text("table_name")?;
                self.rows.insert(name.to_lowercase());
                let shape = base_table(name, &mut fields, around)?;
                renamed(&mut fields, shape)?
            }
            "SUBQUERY" => {
                let shape = self.statement(fields.take("subquery")?, around)?;
                renamed(&mut fields, shape)?
            }
            "JOIN" => self.join(&mut fields, around, places)?,
            "EXPRESSION_LIST" => self.values(&mut fields, around)?,
            "TABLE_FUNCTION" => self.table_function(&mut fields, around)?,
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
        };
        fields.finish()?;
        Ok(shape)
    }

    fn join(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'_>,
        places: &mut u64,
    ) -> Result<Shape, Refusal> {
        let known = ["INNER", "LEFT", "RIGHT", "OUTER", "FULL", "SEMI", "ANTI"];
        fields.one_of("join_type", &known)?;
        let known = ["REGULAR", "CROSS", "NATURAL", "ASOF", "POSITIONAL"];
        fields.one_of("ref_type", &known)?;
        fields.empty(&["delim_flipped", "duplicate_eliminated_columns"])?;
        fields.ignore(&["using_columns"])?;
        let left = self.table(fields.take("left")?, around, places)?;
        // The right side may refer to the left.
        let beside = VisibleNames {
            columns: around.columns.beside(left),
            ..*around
        };
        let right = self.table(fields.take("right")?, &beside, places)?;
        let mut both = left.beside(right);
        if let Some(condition) = fields.optional("condition")? {
            let visible = VisibleNames {
                columns: both.beside(around.columns),
                ..*around
            };
            self.filter(condition, &visible, &mut both)?;
        }
        Ok(both)
    }

    fn values(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        fields.empty(&["expected_names", "expected_types"])?;
        let mut shape = ONE;
        for row in fields.list("values")? {
            let row = row.as_array().ok_or_else(|| Refusal::unknown("VALUES"))?;
            shape.columns = shape.columns.max(row.len() as u64);
            for value in row {
                let size = self.whole(value, around, &mut shape)?;
                shape.bytes = shape.bytes.max(size.bytes);
            }
        }
        Ok(shape.renamed())
    }

    fn table_function(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        fields.ignore(&["column_name_alias"])?;
        fields.one_of(
            "with_ordinality",
            &["WITHOUT_ORDINALITY", "WITH_ORDINALITY"],
        )?;
        let (name, arguments) = call(fields.take("function")?)?;
        let mut shape = Shape { columns: 2, ..ONE };
        match name.as_str() {
            "unnest" => {
                let [list] = arguments.as_slice() else {
                    return Err(Refusal::new(
                        "unnest with options is not allowed",
                        "unnest one list",
                    ));
                };
                shape.bytes = self.whole(list, around, &mut shape)?.bytes;
                // A struct could have as many columns as it has fields.
                shape.columns = MAX_COLUMNS / 4;
            }
            "range" | "generate_series" => {
                let nothing = VisibleNames {
                    scope: around.scope,
                    columns: Shape::default(),
                    aliases: &BTreeMap::new(),
                };
                for argument in &arguments {
                    if refers(argument) {
                        return Err(bounds(&name));
                    }
                    self.expression(argument, &nothing, &mut shape.tables)?;
                }
                check_bounds(&name, &arguments)?;
                shape.bytes = 64;
            }
            other => {
                return Err(Refusal::new(
                    format!("the table function {other} is not allowed"),
                    format!(
                        "allowed are range, generate_series and unnest; the views are {}",
                        views::names()
                    ),
                ));
            }
        }
        Ok(shape.renamed())
    }

    /// Checks a sample of rows or of percent.
    pub(super) fn sample(&mut self, value: &Value) -> Result<(), Refusal> {
        self.count()?;
        let mut fields = Fields::new(value, "a sample")?;
        fields.one_of("method", &["Bernoulli", "Reservoir", "System"])?;
        fields.ignore(&["seed", "is_percentage"])?;
        let mut size = Fields::new(fields.take("sample_size")?, "the size of a sample")?;
        fields.finish()?;
        let mut kind = Fields::new(size.take("type")?, "the size of a sample")?;
        kind.one_of("id", &["BIGINT", "DOUBLE"])?;
        kind.empty(&["type_info"])?;
        kind.finish()?;
        size.empty(&["is_null"])?;
        let rows = size.take("value")?.as_f64();
        size.finish()?;
        match rows {
            Some(rows) if (0.0..=100_000.0).contains(&rows) => Ok(()),
            _ => Err(Refusal::new(
                "a sample has more than 100,000 rows",
                "take fewer rows, or percent",
            )),
        }
    }
}

/// Shape of a table whose columns may have been renamed.
fn renamed(fields: &mut Fields<'_>, shape: Shape) -> Result<Shape, Refusal> {
    let is_renamed = !fields.list("column_name_alias")?.is_empty();
    Ok(if is_renamed { shape.renamed() } else { shape })
}

fn base_table(
    name: &str,
    fields: &mut Fields<'_>,
    around: &VisibleNames<'_>,
) -> Result<Shape, Refusal> {
    let (catalog, schema) = (fields.text("catalog_name")?, fields.text("schema_name")?);
    if !catalog.is_empty() || !schema.is_empty() {
        return Err(Refusal::new(
            format!("{} is not a published view", path(&[catalog, schema, name])),
            format!("name a view without a prefix: {}", views::names()),
        ));
    }
    fields.empty(&["at_clause"])?;
    if let Some(shape) = around.scope.find(name) {
        return Ok(shape);
    }
    if views::is_published(name) {
        return Ok(view(name));
    }
    let views = format!("the views are {}", views::names());
    let instead = views::instead(name).map(|hint| format!("{hint}; {views}"));
    Err(Refusal::new(
        format!("{name} is not a published view"),
        instead.unwrap_or(views),
    ))
}

/// Shape of a published view.
fn view(name: &str) -> Shape {
    let of_a_column = Cost {
        nodes: VIEW_NODES,
        ..Cost::default()
    };
    Shape {
        columns: VIEW_COLUMNS,
        bytes: if views::has_long(name) {
            LONG_COLUMN_BYTES
        } else {
            COLUMN_BYTES
        },
        usual: COLUMN_BYTES,
        copied: of_a_column,
        all: of_a_column.times(VIEW_COLUMNS),
        tables: 1,
    }
}

/// Joins the non-empty parts of a name with dots.
pub(super) fn path(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(".")
}

/// Returns the name and the arguments of a call without other clauses.
fn call(value: &Value) -> Result<(String, Vec<&Value>), Refusal> {
    let mut fields = Fields::new(value, "a table function")?;
    fields.one_of("class", &["FUNCTION"])?;
    fields.one_of("type", &["FUNCTION"])?;
    let name = fields.text("function_name")?;
    let (catalog, schema) = (fields.text("catalog")?, fields.text("schema")?);
    if !catalog.is_empty() || !schema.is_empty() {
        let parts = path(&[catalog, schema, name]);
        return Err(Refusal::unknown(format!("{parts} as a table")));
    }
    fields.empty(&["filter", "distinct", "is_operator", "export_state"])?;
    fields.ignore(&["alias"])?;
    if !order_bys(&mut fields)?.is_empty() {
        return Err(Refusal::unknown("ORDER BY of a table function"));
    }
    let arguments: Vec<&Value> = fields.list("children")?.iter().collect();
    arguments.iter().try_for_each(|value| unnamed(value))?;
    fields.finish()?;
    Ok((name.to_ascii_lowercase(), arguments))
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

fn bounds(name: &str) -> Refusal {
    Refusal::new(
        format!(
            "{name} requires literal numbers or timestamps as bounds, and at most {MAX_MADE_ROWS} rows"
        ),
        "write literal bounds: range(0, 24), or generate_series(TIMESTAMP '2026-11-01', TIMESTAMP '2026-11-02', INTERVAL 1 HOUR)",
    )
}

/// Returns true if a bound depends on anything but literals.
fn refers(value: &Value) -> bool {
    let kind = value.get("class").and_then(Value::as_str);
    let is_known = matches!(kind, Some("CONSTANT" | "CAST" | "FUNCTION"));
    let parts = value.get("children").and_then(Value::as_array);
    let inner = parts.into_iter().flatten();
    !is_known || inner.chain(value.get("child")).any(refers)
}

/// Refuses bounds with too many integers. Timestamps are generated one by one and can be
/// interrupted.
fn check_bounds(name: &str, arguments: &[&Value]) -> Result<(), Refusal> {
    let numbers: Vec<Option<i128>> = arguments.iter().map(|value| whole(value)).collect();
    let (from, to, step) = match numbers.as_slice() {
        [Some(to)] => (0, *to, 1),
        [Some(from), Some(to)] => (*from, *to, 1),
        [Some(from), Some(to), Some(step)] => (*from, *to, *step),
        [None, None, None] if arguments.last().is_some_and(|step| is_interval(step)) => {
            return Ok(());
        }
        _ => return Err(bounds(name)),
    };
    let rows = to
        .checked_sub(from)
        .and_then(|length| length.checked_div(step));
    match rows {
        Some(rows) if rows <= MAX_MADE_ROWS => Ok(()),
        _ => Err(bounds(name)),
    }
}

/// Returns true if a step is an interval, as the parser represents `INTERVAL 1 HOUR` and `INTERVAL
/// '1 hour'`.
fn is_interval(value: &Value) -> bool {
    let type_name = value.pointer("/cast_type/id").and_then(Value::as_str);
    let function = value.get("function_name").and_then(Value::as_str);
    type_name == Some("INTERVAL")
        || function.is_some_and(|name| name.starts_with("to_") && name != "to_timestamp")
}

/// Value of an integer literal with an optional minus.
fn whole(value: &Value) -> Option<i128> {
    if let Some(number) = constants::whole(value) {
        return Some(number.into());
    }
    let is_minus = value.get("function_name")?.as_str()? == "-";
    let [only] = value.get("children")?.as_array()?.as_slice() else {
        return None;
    };
    constants::whole(only)
        .filter(|_| is_minus)
        .map(|number| -i128::from(number))
}
