//! Advice for a token that does not permit SQL.

use crate::cli::CliError;

/// Tool that runs SQL; a token sees it only if it permits SQL.
pub(super) const RUN_ANALYSIS: &str = "fleet.cluster.run_analysis";

/// Replaces the error that the SQL tool does not exist by one that names what the token lacks.
pub(super) fn explain(error: CliError) -> CliError {
    match error {
        CliError::Api { message, .. }
            if message.starts_with(&format!("no such tool: \"{RUN_ANALYSIS}\"")) =>
        {
            CliError::Usage(
                "this command runs SQL, which the token does not permit: \
                 use a token made with `fleet-echo token new --sql`"
                    .to_owned(),
            )
        }
        other => other,
    }
}
