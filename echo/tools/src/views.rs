//! The published views, as whoever writes SQL wants to read about them.

use echo_store::sql::ViewDocs;
use serde_json::{Value, json};

use crate::{ToolContext, ToolError};

/// The views with their columns, each with what it means.
pub async fn views(context: &ToolContext) -> Result<Vec<Value>, ToolError> {
    let views = context.store.views().await?;
    Ok(views.iter().map(described).collect())
}

fn described(view: &ViewDocs) -> Value {
    let columns = view.columns.iter().map(
        |column| json!({ "name": column.name, "type": column.kind, "comment": column.comment }),
    );
    let columns: Vec<Value> = columns.collect();
    json!({ "name": view.name, "comment": view.comment, "columns": columns })
}
