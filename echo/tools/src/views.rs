//! Documentation of the published SQL views.

use echo_store::sql::ViewDocs;
use serde_json::{Value, json};

use crate::{ToolContext, ToolError};

/// Returns the views with their columns and comments.
pub async fn views(context: &ToolContext) -> Result<Vec<Value>, ToolError> {
    let views = context.store.views().await?;
    Ok(views.iter().map(describe).collect())
}

fn describe(view: &ViewDocs) -> Value {
    let columns = view.columns.iter().map(
        |column| json!({ "name": column.name, "type": column.kind, "comment": column.comment }),
    );
    let columns: Vec<Value> = columns.collect();
    json!({ "name": view.name, "comment": view.comment, "columns": columns })
}
