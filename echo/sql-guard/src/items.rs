//! Select lists.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::query::{Scope, VisibleNames, Walk, check_columns};
use crate::refusal::Refusal;
use crate::size::{Shape, Size};
use crate::views;

impl Walk {
    /// Checks a select list over these columns. Its names can be used in later clauses and items.
    pub(super) fn items(
        &mut self,
        items: &[Value],
        (scope, columns): (&Scope<'_>, Shape),
        (aliases, shape): (&mut BTreeMap<String, Size>, &mut Shape),
    ) -> Result<(), Refusal> {
        for item in items {
            let visible = VisibleNames {
                scope,
                columns,
                aliases,
            };
            self.collected.permit_returned(item);
            let size = self.whole(item, &visible, shape)?;
            *shape = with_item(*shape, item, (size, columns));
            check_columns(*shape)?;
            let alias = item.get("alias").and_then(Value::as_str);
            if let Some(name) = alias.filter(|name| !name.is_empty()) {
                aliases.insert(name.to_lowercase(), size);
            }
        }
        Ok(())
    }
}

/// Shape of a select list with one more item.
fn with_item(shape: Shape, item: &Value, (size, columns): (Size, Shape)) -> Shape {
    let is = |name: &str| {
        let value = item.get(name);
        value.is_some_and(|value| {
            !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
        })
    };
    let is_star = item.get("class").is_some_and(|class| class == "STAR");
    if is_star && !["expr", "rename_list", "replace_list"].into_iter().any(is) {
        // Its columns keep their names.
        let rest = shape.with(size, true);
        return Shape {
            usual: rest.usual.max(columns.usual),
            ..rest
        };
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_lowercase);
    let alias = text(item.get("alias")).filter(|alias| !alias.is_empty());
    let names = item.get("column_names").and_then(Value::as_array);
    let name = alias.or_else(|| text(names.and_then(|names| names.last())));
    shape.with(size, name.is_some_and(|name| views::is_long(&name)))
}
