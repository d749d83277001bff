//! Names of types, as the engine writes them.

use duckdb::core::{LogicalTypeHandle, LogicalTypeId};

use crate::sql::SqlColumn;

/// Columns with these names and types.
pub(super) fn columns(names: Vec<String>, kinds: impl Iterator<Item = String>) -> Vec<SqlColumn> {
    let both = names.into_iter().zip(kinds);
    both.map(|(name, kind)| SqlColumn { name, kind }).collect()
}

/// Name of a type.
pub(super) fn name(kind: &LogicalTypeHandle) -> String {
    if let Some(alias) = kind.get_alias().filter(|alias| !alias.is_empty()) {
        return alias;
    }
    match kind.id() {
        LogicalTypeId::List => format!("{}[]", name(&kind.child(0))),
        LogicalTypeId::Array => format!("{}[...]", name(&kind.child(0))),
        LogicalTypeId::Decimal => {
            format!("DECIMAL({},{})", kind.decimal_width(), kind.decimal_scale())
        }
        LogicalTypeId::Struct => {
            let field = |index| format!("{} {}", kind.child_name(index), name(&kind.child(index)));
            let fields: Vec<String> = (0..kind.num_children()).map(field).collect();
            format!("STRUCT({})", fields.join(", "))
        }
        LogicalTypeId::Map => format!("MAP({}, {})", name(&kind.child(0)), name(&kind.child(1))),
        LogicalTypeId::TimestampS => "TIMESTAMP_S".to_owned(),
        LogicalTypeId::TimestampMs => "TIMESTAMP_MS".to_owned(),
        LogicalTypeId::TimestampNs => "TIMESTAMP_NS".to_owned(),
        LogicalTypeId::TimestampTZ => "TIMESTAMP WITH TIME ZONE".to_owned(),
        LogicalTypeId::TimeTZ => "TIME WITH TIME ZONE".to_owned(),
        LogicalTypeId::TimeNs => "TIME_NS".to_owned(),
        LogicalTypeId::SqlNull => "NULL".to_owned(),
        plain => format!("{plain:?}").to_uppercase(),
    }
}
