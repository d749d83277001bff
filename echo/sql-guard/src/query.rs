//! Queries: SELECT, set operations and WITH.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::sample::sample;
use crate::views;
/// Names defined by WITH, from the innermost query to the outermost.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    names: BTreeSet<String>,
    outer: Option<&'a Self>,
}
impl Scope<'_> {
    /// Returns whether WITH defines a table of this name.
    pub(super) fn defines(&self, name: &str) -> bool {
        let is_outer = |outer: &&Self| outer.defines(name);
        self.names.contains(&name.to_lowercase()) || self.outer.as_ref().is_some_and(is_outer)
    }
}
/// Checks the output of the parser. Returns whether the whole result is sorted before its first row
/// is known.
pub(super) fn document(tree: &Value) -> Result<bool, Refusal> {
    let mut fields = Fields::new(tree, "the parser's output")?;
    if fields.flag("error")? {
        return Err(Refusal::new(
            "only SELECT statements are allowed",
            "write one SELECT; PIVOT, EXPLAIN, SET, CALL and statements that write are not allowed",
        ));
    }
    let statements = fields.list("statements")?;
    fields.finish()?;
    let [only] = statements else {
        return Err(Refusal::new(
            format!(
                "the text has {} statements; only one is allowed",
                statements.len()
            ),
            "send them one by one",
        ));
    };
    Scope::default().statement(only)?;
    Ok(sorts_all(only))
}

impl Scope<'_> {
    /// Checks a statement: a query and its parameters.
    pub(super) fn statement(&self, value: &Value) -> Result<(), Refusal> {
        let mut fields = Fields::new(value, "a statement")?;
        let node = fields.take("node")?;
        fields.empty(&["named_param_map"])?;
        fields.finish()?;
        self.query(node)
    }

    fn query(&self, value: &Value) -> Result<(), Refusal> {
        let mut fields = Fields::new(value, "a query")?;
        match fields.text("type")? {
            "SELECT_NODE" => self.select(&mut fields)?,
            "SET_OPERATION_NODE" => self.set_operation(&mut fields)?,
            "RECURSIVE_CTE_NODE" => {
                return Err(Refusal::new(
                    "WITH RECURSIVE is not allowed",
                    "count with FROM range(0, 24) AS t(i), and use windows for values of other rows",
                ));
            }
            other => return Err(Refusal::unknown(other)),
        }
        fields.finish()
    }

    fn select(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let scope = with(fields, self)?;
        scope.table(fields.take("from_table")?)?;
        for name in ["select_list", "group_expressions"] {
            scope.expressions(fields.list(name)?)?;
        }
        for name in ["where_clause", "having", "qualify"] {
            if let Some(condition) = fields.optional(name)? {
                scope.expression(condition)?;
            }
        }
        fields.list("group_sets")?;
        fields.one_of(
            "aggregate_handling",
            &["STANDARD_HANDLING", "FORCE_AGGREGATES"],
        )?;
        if let Some(size) = fields.optional("sample")? {
            sample(size)?;
        }
        scope.modifiers(fields.list("modifiers")?)
    }

    fn set_operation(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let scope = with(fields, self)?;
        let known = ["UNION", "UNION_BY_NAME", "EXCEPT", "INTERSECT"];
        fields.one_of("setop_type", &known)?;
        fields.flag("setop_all")?;
        for side in ["left", "right"] {
            scope.query(fields.take(side)?)?;
        }
        scope.modifiers(fields.list("modifiers")?)
    }

    fn modifiers(&self, modifiers: &[Value]) -> Result<(), Refusal> {
        for modifier in modifiers {
            let mut fields = Fields::new(modifier, "a modifier")?;
            match fields.text("type")? {
                "ORDER_MODIFIER" => self.orders(fields.list("orders")?)?,
                "DISTINCT_MODIFIER" => self.expressions(fields.list("distinct_on_targets")?)?,
                "LIMIT_MODIFIER" | "LIMIT_PERCENT_MODIFIER" => {
                    for name in ["limit", "offset"] {
                        if let Some(value) = fields.optional(name)? {
                            self.expression(value)?;
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
    pub(super) fn orders(&self, orders: &[Value]) -> Result<(), Refusal> {
        for order in orders {
            let mut fields = Fields::new(order, "ORDER BY")?;
            fields.one_of("type", &["ORDER_DEFAULT", "ASCENDING", "DESCENDING"])?;
            fields.text("null_order")?;
            self.expression(fields.take("expression")?)?;
            fields.finish()?;
        }
        Ok(())
    }
}
/// Adds the names defined by WITH to those of the enclosing queries.
fn with<'s>(fields: &mut Fields<'_>, outer: &'s Scope<'s>) -> Result<Scope<'s>, Refusal> {
    let mut scope = Scope {
        names: BTreeSet::new(),
        outer: Some(outer),
    };
    let mut map = Fields::new(fields.take("cte_map")?, "WITH")?;
    let entries = map.list("map")?;
    map.finish()?;
    for entry in entries {
        let mut entry = Fields::new(entry, "WITH")?;
        let name = entry.text("key")?;
        let mut value = Fields::new(entry.take("value")?, "WITH")?;
        entry.finish()?;
        value.list("aliases")?;
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
        scope.statement(query)?;
        scope.names.insert(name.to_lowercase());
    }
    Ok(scope)
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
