//! Values collected from many rows: lists and joined strings.
//!
//! Their length is unknown until the statement has run. One function call on 2,048 rows of them can
//! allocate gigabytes, which the engine neither counts nor interrupts. So a statement may return a
//! collected value from the outermost SELECT or, where it is collected, take its length or one of
//! its items. The guard refuses all other uses: in expressions, subqueries, joins, comparisons and
//! sort orders.

use std::collections::BTreeSet;
use std::mem;

use serde_json::Value;

use crate::constants;
use crate::functions::{self, Kind};
use crate::refusal::Refusal;

/// Functions that return the length of a value.
const COUNTING: [&str; 3] = ["array_length", "len", "length"];

/// Functions that return one item of a list.
const ITEM: [&str; 3] = ["array_extract", "list_element", "list_extract"];

/// Function that the parser generates for `list(x ORDER BY x)`: a call on the list itself.
pub(super) const SORTED: &str = "list_sort";

/// Collected values of a statement.
#[derive(Debug, Default)]
pub(super) struct Collected {
    is_seen: bool,
    /// Depth of nested queries, including the current one.
    depth: u32,
    is_permitted: bool,
    /// Number of collected values that the outermost SELECT returns.
    n_returned: usize,
    /// Lowercase names that the outermost SELECT gives to collected values.
    names: BTreeSet<String>,
}

impl Collected {
    /// True if the statement collects values.
    pub(super) const fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Enters a query.
    pub(super) const fn enter_query(&mut self) {
        self.depth += 1;
    }

    /// Leaves a query.
    pub(super) const fn leave_query(&mut self) {
        self.depth -= 1;
    }

    /// Records the collected values that the outermost SELECT returns.
    pub(super) fn returned_by(&mut self, items: &[Value]) {
        if !self.is_outermost() {
            return;
        }
        for item in items.iter().filter(|item| is_collecting(item)) {
            self.n_returned += 1;
            let alias = item.get("alias").and_then(Value::as_str);
            let alias = alias.filter(|alias| !alias.is_empty());
            self.names.extend(alias.map(str::to_lowercase));
        }
    }

    /// Permits the next expression, an item of a select list, to collect.
    pub(super) fn permit_returned(&mut self, item: &Value) {
        self.is_permitted = self.is_outermost() && is_collecting(item);
    }

    /// Permits the next expression, an argument of this function, to collect.
    pub(super) fn permit_arguments(&mut self, name: &str, arguments: &[Value]) {
        let name = name.to_ascii_lowercase();
        if ITEM.contains(&name.as_str()) {
            self.permit_item(arguments);
        } else {
            self.is_permitted = COUNTING.contains(&name.as_str()) || name == SORTED;
        }
    }

    /// Permits the next expression, a list of which an item is taken, to collect if the index is a
    /// literal number.
    pub(super) fn permit_item(&mut self, arguments: &[Value]) {
        let place = arguments.get(1).and_then(constants::whole);
        self.is_permitted = place.is_some();
    }

    /// Returns true if the current expression may collect, and resets the permission for its parts.
    pub(super) const fn take_permission(&mut self) -> bool {
        mem::replace(&mut self.is_permitted, false)
    }

    /// Checks a function call that may or may not be permitted to collect.
    pub(super) fn check_call(
        &mut self,
        name: &str,
        kind: Kind,
        may_collect: bool,
    ) -> Result<(), Refusal> {
        if self.n_returned > 0 && self.is_outermost() && name.eq_ignore_ascii_case("unnest") {
            return Err(Refusal::new(
                "unnest would repeat a collected list or string for each item",
                "return one of the two",
            ));
        }
        if kind != Kind::Collected && !name.eq_ignore_ascii_case(SORTED) {
            return Ok(());
        }
        self.is_seen = true;
        if may_collect {
            Ok(())
        } else {
            Err(refusal(name))
        }
    }

    /// Refuses a column name that refers to a collected value.
    pub(super) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        if self.names.contains(name) {
            return Err(refusal(name));
        }
        Ok(())
    }

    /// Checks rows that are compared by all columns, or by the number of one.
    pub(super) fn check_compared(&self) -> Result<(), Refusal> {
        if self.n_returned > 0 && self.is_outermost() {
            return Err(Refusal::new(
                "collected lists and strings cannot be compared: DISTINCT, ORDER BY ALL and ORDER BY with the number of a column \
                 would",
                "order by the names of other columns",
            ));
        }
        Ok(())
    }

    const fn is_outermost(&self) -> bool {
        self.depth == 1
    }
}

/// Returns true if an item of a select list is a collected value.
fn is_collecting(item: &Value) -> bool {
    let name = item.get("function_name").and_then(Value::as_str);
    let is_plain = item.get("class").is_some_and(|class| class == "FUNCTION");
    is_plain
        && name.is_some_and(|name| {
            name.eq_ignore_ascii_case(SORTED)
                || functions::allowed(name).is_some_and(|function| function.kind == Kind::Collected)
        })
}

fn refusal(name: &str) -> Refusal {
    Refusal::new(
        format!(
            "{name} collects values of unknown length, which cannot be used in further expressions"
        ),
        "return them from the outermost SELECT, or use len(list(x)), count(x), or list(x ORDER BY y)[1]; arg_min, arg_max and \
         GROUP BY do the rest",
    )
}
