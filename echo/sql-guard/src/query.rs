//! Queries: SELECT, set operations and WITH.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use serde_json::Value;

use crate::collected::Collected;
use crate::fields::Fields;
use crate::limits::{MAX_COLUMNS, MAX_GROUPINGS, MAX_NODES, MAX_TABLES};
use crate::refusal::Refusal;
use crate::size::{Cost, Shape, Size};
use crate::views;

/// Traversal of a tree. Every node is visited once.
#[derive(Debug, Default)]
pub(super) struct Walk {
    nodes: u64,
    /// Cost of all expressions that are not part of others.
    pub(super) spent: Cost,
    /// Names of tables in the statement: used as a column, such a name is a whole row.
    pub(super) rows: BTreeSet<String>,
    /// Number of reads of each field of a JSON column in the current query.
    pub(super) read: BTreeMap<(String, String), u64>,
    /// Size by which fields are shorter than the texts that they are read from, in the current
    /// expression.
    pub(super) shorter: u64,
    /// Collected values.
    pub(super) collected: Collected,
    /// True if the whole result is sorted before its first row is known.
    pub(super) sorts_all: bool,
}

/// Names defined by WITH, from the innermost query to the outermost.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    names: BTreeMap<String, Shape>,
    outer: Option<&'a Self>,
}

/// Names visible to an expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisibleNames<'a> {
    /// Names of tables.
    pub(super) scope: &'a Scope<'a>,
    /// Columns of FROM, and of the enclosing queries.
    pub(super) columns: Shape,
    /// Columns of the select list, which later clauses may use.
    pub(super) aliases: &'a BTreeMap<String, Size>,
}

impl Scope<'_> {
    /// Finds the table that a name refers to.
    pub(super) fn find(&self, name: &str) -> Option<Shape> {
        let found = self.names.get(&name.to_lowercase()).copied();
        found.or_else(|| self.outer?.find(name))
    }
}

impl Walk {
    /// Counts a node.
    pub(super) fn count(&mut self) -> Result<(), Refusal> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Refusal::new(
                format!("the statement has more than {MAX_NODES} parts"),
                "split the statement, or join with a view instead of listing values",
            ));
        }
        Ok(())
    }

    /// Checks the output of the parser.
    pub(super) fn document(&mut self, tree: &Value) -> Result<(), Refusal> {
        let mut fields = Fields::new(tree, "the parser's output")?;
        if fields.flag("error")? {
            return Err(Refusal::new(
                "only SELECT statements are allowed",
                "write one SELECT; PIVOT, EXPLAIN, SET, CALL and statements that write are not allowed",
            ));
        }
        let statements = fields.list("statements")?;
        fields.finish()?;
        let [statement] = statements else {
            return Err(Refusal::new(
                format!(
                    "the text has {} statements; only one is allowed",
                    statements.len()
                ),
                "send them one by one",
            ));
        };
        let outermost = VisibleNames {
            scope: &Scope::default(),
            columns: Shape::default(),
            aliases: &BTreeMap::new(),
        };
        let shape = self.statement(statement, &outermost)?;
        self.sorts_all = sorts_all(statement);
        if shape.tables > MAX_TABLES {
            return Err(Refusal::new(
                format!(
                    "{} tables would be read; the limit is {MAX_TABLES}, and a name of WITH counts for each use",
                    shape.tables
                ),
                "use a name of WITH fewer times",
            ));
        }
        Ok(())
    }

    /// Checks a statement: a query and its parameters.
    pub(super) fn statement(
        &mut self,
        value: &Value,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        let mut fields = Fields::new(value, "a statement")?;
        let node = fields.take("node")?;
        fields.empty(&["named_param_map"])?;
        fields.finish()?;
        self.query(node, around)
    }

    fn query(&mut self, value: &Value, around: &VisibleNames<'_>) -> Result<Shape, Refusal> {
        self.count()?;
        self.collected.enter_query();
        let mut fields = Fields::new(value, "a query")?;
        let shape = match fields.text("type")? {
            "SELECT_NODE" => self.select(&mut fields, around),
            "SET_OPERATION_NODE" => self.set_operation(&mut fields, around),
            "RECURSIVE_CTE_NODE" => Err(Refusal::new(
                "WITH RECURSIVE is not allowed",
                "count with FROM range(0, 24) AS t(i), and use windows for values of other rows",
            )),
            other => Err(Refusal::unknown(other)),
        }?;
        fields.finish()?;
        check_columns(shape)?;
        self.collected.leave_query();
        Ok(shape)
    }

    fn select(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        let scope = self.with(fields, around)?;
        let around = VisibleNames {
            scope: &scope,
            ..*around
        };
        let from = self.from(fields.take("from_table")?, &around)?;
        // A subquery can use the names of the select list that contains it.
        let mut aliases = around.aliases.clone();
        let mut shape = Shape {
            tables: from.tables,
            ..Shape::default()
        };
        let read = mem::take(&mut self.read);
        let columns = seen(from, &around);
        let items = fields.list("select_list")?;
        self.collected.returned_by(items);
        self.items(items, (&scope, columns), (&mut aliases, &mut shape))?;
        let visible = VisibleNames {
            scope: &scope,
            columns,
            aliases: &aliases,
        };
        for name in ["where_clause", "having", "qualify"] {
            if let Some(condition) = fields.optional(name)? {
                self.filter(condition, &visible, &mut shape)?;
            }
        }
        for group in fields.list("group_expressions")? {
            self.whole(group, &visible, &mut shape)?;
        }
        if fields.list("group_sets")?.len() > MAX_GROUPINGS {
            return Err(Refusal::new(
                format!("GROUP BY has more than {MAX_GROUPINGS} combinations"),
                "group by fewer columns, or list the combinations in GROUPING SETS",
            ));
        }
        fields.one_of(
            "aggregate_handling",
            &["STANDARD_HANDLING", "FORCE_AGGREGATES"],
        )?;
        if let Some(sample) = fields.optional("sample")? {
            self.sample(sample)?;
        }
        self.modifiers(fields.list("modifiers")?, &visible, &mut shape)?;
        self.read = read;
        Ok(shape)
    }

    fn set_operation(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'_>,
    ) -> Result<Shape, Refusal> {
        let scope = self.with(fields, around)?;
        let around = VisibleNames {
            scope: &scope,
            ..*around
        };
        let known = ["UNION", "UNION_BY_NAME", "EXCEPT", "INTERSECT"];
        let is_by_name = fields.one_of("setop_type", &known)? == "UNION_BY_NAME";
        fields.flag("setop_all")?;
        let mut shape = Shape::default();
        for side in ["left", "right"] {
            let part = self.query(fields.take(side)?, &around)?;
            shape = if is_by_name {
                shape.beside(part)
            } else {
                shape.above(part)
            };
        }
        let visible = VisibleNames {
            scope: &scope,
            columns: seen(shape, &around),
            aliases: &BTreeMap::new(),
        };
        self.modifiers(fields.list("modifiers")?, &visible, &mut shape)?;
        Ok(shape)
    }

    /// Adds the names defined by WITH to those of the enclosing queries.
    fn with<'s>(
        &mut self,
        fields: &mut Fields<'_>,
        around: &VisibleNames<'s>,
    ) -> Result<Scope<'s>, Refusal> {
        let mut scope = Scope {
            names: BTreeMap::new(),
            outer: Some(around.scope),
        };
        let mut map = Fields::new(fields.take("cte_map")?, "WITH")?;
        let entries = map.list("map")?;
        map.finish()?;
        for entry in entries {
            self.count()?;
            let mut entry = Fields::new(entry, "WITH")?;
            let name = entry.text("key")?;
            let mut value = Fields::new(entry.take("value")?, "WITH")?;
            entry.finish()?;
            let is_renamed = !value.list("aliases")?.is_empty();
            let known = [
                "CTE_MATERIALIZE_DEFAULT",
                "CTE_MATERIALIZE_ALWAYS",
                "CTE_MATERIALIZE_NEVER",
            ];
            value.one_of("materialized", &known)?;
            value.empty(&["key_targets"])?;
            let query = value.take("query")?;
            value.finish()?;
            check_name(name)?;
            let inside = VisibleNames {
                scope: &scope,
                ..*around
            };
            let shape = self.statement(query, &inside)?;
            let shape = if is_renamed { shape.renamed() } else { shape };
            scope.names.insert(name.to_lowercase(), shape);
        }
        Ok(scope)
    }

    fn modifiers(
        &mut self,
        modifiers: &[Value],
        visible: &VisibleNames<'_>,
        shape: &mut Shape,
    ) -> Result<(), Refusal> {
        for modifier in modifiers {
            self.count()?;
            let mut fields = Fields::new(modifier, "a modifier")?;
            match fields.text("type")? {
                "ORDER_MODIFIER" => self.orders(fields.list("orders")?, visible, shape)?,
                "DISTINCT_MODIFIER" => {
                    self.collected.check_compared()?;
                    for target in fields.list("distinct_on_targets")? {
                        self.whole(target, visible, shape)?;
                    }
                }
                "LIMIT_MODIFIER" | "LIMIT_PERCENT_MODIFIER" => {
                    for name in ["limit", "offset"] {
                        if let Some(value) = fields.optional(name)? {
                            self.whole(value, visible, shape)?;
                        }
                    }
                }
                other => return Err(Refusal::unknown(other)),
            }
            fields.finish()?;
        }
        Ok(())
    }

    /// Checks ORDER BY.
    pub(super) fn orders(
        &mut self,
        orders: &[Value],
        visible: &VisibleNames<'_>,
        shape: &mut Shape,
    ) -> Result<(), Refusal> {
        for order in orders {
            let mut fields = Fields::new(order, "ORDER BY")?;
            fields.one_of("type", &["ORDER_DEFAULT", "ASCENDING", "DESCENDING"])?;
            fields.text("null_order")?;
            let expression = fields.take("expression")?;
            // ALL, or the number of a column.
            let class = expression.get("class").and_then(Value::as_str);
            if matches!(class, Some("STAR" | "CONSTANT")) {
                self.collected.check_compared()?;
            }
            self.whole(expression, visible, shape)?;
            fields.finish()?;
        }
        Ok(())
    }
}

/// Merges the columns of FROM and of the enclosing queries.
fn seen(from: Shape, around: &VisibleNames<'_>) -> Shape {
    Shape {
        bytes: from.bytes.max(around.columns.bytes),
        usual: from.usual.max(around.columns.usual),
        copied: from.copied.max(around.columns.copied),
        ..from
    }
}

pub(super) fn check_columns(shape: Shape) -> Result<(), Refusal> {
    if shape.columns > MAX_COLUMNS {
        return Err(Refusal::new(
            format!(
                "a query would have more than {MAX_COLUMNS} columns (a star counts as the maximum number)"
            ),
            "name the columns that you need",
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_plain = name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_');
    if !is_plain || views::is_published(name) || views::is_private(name) {
        return Err(Refusal::new(
            format!("WITH cannot define the name {name:?}"),
            "use a plain name that no table or view has",
        ));
    }
    Ok(())
}

/// Returns true if a statement sorts without a limit.
fn sorts_all(statement: &Value) -> bool {
    let modifiers = statement
        .pointer("/node/modifiers")
        .and_then(Value::as_array);
    let has = |kind: &str| {
        modifiers
            .into_iter()
            .flatten()
            .any(|modifier| modifier.get("type").is_some_and(|name| name == kind))
    };
    has("ORDER_MODIFIER") && !has("LIMIT_MODIFIER") && !has("LIMIT_PERCENT_MODIFIER")
}
