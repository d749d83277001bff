//! Documentation of the published views: the comments of the migrations.

use duckdb::Connection;
use echo_sql_guard::views::PUBLISHED;

use crate::duckdb::engine::EngineResult;
use crate::sql::{ColumnDocs, ViewDocs};

const VIEWS: &str = "SELECT coalesce(comment, '') FROM duckdb_views()
    WHERE NOT internal AND database_name = current_database() AND view_name = ?";

// History columns mean the same as in the view of the latest state, where they are documented.
const COLUMNS: &str = "
    SELECT own.column_name, own.data_type, coalesce(own.comment, same.comment, '')
    FROM duckdb_columns() AS own
    LEFT JOIN duckdb_columns() AS same
        ON NOT same.internal AND same.database_name = own.database_name AND same.table_name = 'verdicts' AND same.column_name = own.column_name
    WHERE NOT own.internal AND own.database_name = current_database() AND own.table_name = ?
    ORDER BY own.column_index";

/// Returns the published views, in the order of their list.
pub(in crate::duckdb) fn views(connection: &Connection) -> EngineResult<Vec<ViewDocs>> {
    let mut views = Vec::with_capacity(PUBLISHED.len());
    for view in PUBLISHED {
        let comment = connection.query_row(VIEWS, [view.name], |row| row.get(0))?;
        let mut statement = connection.prepare(COLUMNS)?;
        let columns = statement
            .query_map([view.name], |row| {
                Ok(ColumnDocs {
                    name: row.get(0)?,
                    kind: row.get(1)?,
                    comment: row.get(2)?,
                })
            })?
            .collect::<EngineResult<_>>()?;
        views.push(ViewDocs {
            name: view.name.to_owned(),
            comment,
            columns,
        });
    }
    Ok(views)
}
