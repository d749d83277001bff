//! Function calls.

use crate::fields::{Fields, path};
use crate::from::{order_bys, unnamed};
use crate::functions;
use crate::query::Scope;
use crate::refusal::Refusal;
/// Functions that the parser qualifies with the schema `main`, because they implement syntax such
/// as `[1, 2]` and `extract(hour FROM t)`.
const PARSER_FUNCTIONS: [&str; 13] = [
    "date_part",
    "ilike_escape",
    "like_escape",
    "list_value",
    "ltrim",
    "not_ilike_escape",
    "not_like_escape",
    "position",
    "row",
    "rtrim",
    "struct_pack",
    "substring",
    "trim",
];

impl Scope<'_> {
    /// Checks a function call.
    pub(super) fn function(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        fields.ignore(&["type", "distinct", "is_operator"])?;
        fields.empty(&["export_state"])?;
        let name = allowed_function(fields)?;
        self.orders(order_bys(fields)?)?;
        if let Some(filter) = fields.optional("filter")? {
            self.expression(filter)?;
        }
        self.arguments(name, fields)
    }

    /// Checks a call over a window.
    pub(super) fn window(&self, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let kind = fields.text("type")?;
        if !kind.starts_with("WINDOW_") {
            return Err(Refusal::unknown(kind));
        }
        fields.ignore(&["ignore_nulls", "distinct", "start", "end", "exclude_clause"])?;
        let name = allowed_function(fields)?;
        self.expressions(fields.list("partitions")?)?;
        for name in ["orders", "arg_orders"] {
            self.orders(fields.list(name)?)?;
        }
        for name in [
            "start_expr",
            "end_expr",
            "offset_expr",
            "default_expr",
            "filter_expr",
        ] {
            if let Some(part) = fields.optional(name)? {
                self.expression(part)?;
            }
        }
        self.arguments(name, fields)
    }

    fn arguments(&self, name: &str, fields: &mut Fields<'_>) -> Result<(), Refusal> {
        let arguments = fields.list("children")?;
        // The names of the arguments of this one are those of the fields of a struct.
        if name != "struct_pack" {
            arguments.iter().try_for_each(unnamed)?;
        }
        self.expressions(arguments)
    }
}
/// Returns the name of the called function, if it is allowed.
fn allowed_function<'a>(fields: &mut Fields<'a>) -> Result<&'a str, Refusal> {
    let name = fields.text("function_name")?;
    let (catalog, schema) = (fields.text("catalog")?, fields.text("schema")?);
    let is_plain = schema.is_empty() || (schema == "main" && PARSER_FUNCTIONS.contains(&name));
    if catalog.is_empty() && is_plain && functions::is_allowed(name) {
        return Ok(name);
    }
    Err(Refusal::new(
        format!(
            "the function {} is not allowed",
            path(&[catalog, schema, name])
        ),
        functions::alternative_to(name),
    ))
}
