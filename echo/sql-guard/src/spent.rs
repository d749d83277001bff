//! Total cost of the expressions of a statement.

use std::mem;

use serde_json::Value;

use crate::limits::{MAX_BOUND_NODES, MAX_MADE_BYTES, MAX_SEARCH_STEPS};
use crate::query::{VisibleNames, Walk};
use crate::refusal::Refusal;
use crate::size::{Cost, Shape, Size};
use crate::{constants, patterns};

impl Walk {
    /// Checks a top-level expression. The tables of its subqueries are added to those of the query.
    pub(super) fn whole(
        &mut self,
        value: &Value,
        visible: &VisibleNames<'_>,
        shape: &mut Shape,
    ) -> Result<Size, Refusal> {
        let mut tables = 0;
        let size = self.expression(value, visible, &mut tables)?;
        shape.tables = shape.tables.saturating_add(tables);
        // A plain name is a reference without an intermediate value.
        let is_a_name = value
            .get("class")
            .is_some_and(|class| class == "COLUMN_REF");
        self.spend(if is_a_name {
            Cost {
                nodes: size.cost.nodes,
                ..Cost::default()
            }
        } else {
            size.cost.times(size.columns)
        })?;
        Ok(size)
    }

    /// Checks a filter, which is moved down to the computation of the values that it uses.
    pub(super) fn filter(
        &mut self,
        value: &Value,
        visible: &VisibleNames<'_>,
        shape: &mut Shape,
    ) -> Result<(), Refusal> {
        let mut tables = 0;
        let size = self.expression(value, visible, &mut tables)?;
        shape.tables = shape.tables.saturating_add(tables);
        self.spend(size.cost.max(size.copied).times(size.columns))
    }

    fn spend(&mut self, cost: Cost) -> Result<(), Refusal> {
        let shorter = Cost {
            made: mem::take(&mut self.shorter),
            ..Cost::default()
        };
        self.spent = self.spent.plus(cost.less(shorter));
        check_spent(self.spent)
    }

    /// Records reads of fields of a JSON column. The fields of one text are together no longer than
    /// the text, if each is read once.
    pub(super) fn reads(&mut self, called: &[(&Value, Size)]) {
        let [(document, size), (path, _)] = called else {
            return;
        };
        let column = document.get("column_names").map(Value::to_string);
        let field = constants::text(path).and_then(patterns::field);
        let (Some(column), Some(field)) = (column, field) else {
            return;
        };
        let others = self.read.iter().filter(|((other, _), _)| *other == column);
        let most = others.map(|(_, times)| *times).max().unwrap_or(0);
        let times = self.read.entry((column, field.to_owned())).or_default();
        *times += 1;
        if *times <= most {
            self.shorter = self.shorter.saturating_add(size.bytes);
        }
    }
}

fn check_spent(spent: Cost) -> Result<(), Refusal> {
    if spent.nodes > MAX_BOUND_NODES {
        return Err(Refusal::new(
            format!(
                "names and stars expand to more than {MAX_BOUND_NODES} parts in total: filters on them are moved down to their definitions"
            ),
            "use a computed column fewer times, in the select list and in the queries around",
        ));
    }
    if spent.made > MAX_MADE_BYTES {
        return Err(Refusal::new(
            format!(
                "all expressions together could produce {} bytes per row; the limit is {MAX_MADE_BYTES}",
                spent.made
            ),
            "compute less in one statement; a column counts as 256 bytes, attrs as 16 KiB, left(attrs, 100) as 400 bytes",
        ));
    }
    if spent.searched > MAX_SEARCH_STEPS {
        return Err(Refusal::new(
            "searching for the patterns of the statement would take too long",
            "use shorter patterns, starts_with and contains, regular expressions with fewer than nine of . [ ? | and \\, \
             and search in left(attrs->>'$.key', 100)",
        ));
    }
    Ok(())
}
