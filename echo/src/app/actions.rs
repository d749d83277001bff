//! Actions on incidents, if a policy is configured.

use std::sync::Arc;

use echo_actions::dispatcher::{Dispatcher, Surroundings};
use echo_actions::journal::{Journal, kill_switch_file};
use echo_actions::record::{Outcome, Record};
use echo_core::clock::Clock;
use echo_core::policy_table::PolicyTable;
use echo_store::EventStore;
use echo_tools::ToolContext;
use echo_tools::rates::Rates;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::app::AppError;
use crate::app::inputs::Inputs;
use crate::config::ServeArgs;
use crate::feedback::actions::Actions;
use echo_serve::audit::log::AuditLog;

/// Store, clock, and the number of the last event that the detector has processed.
type Context<'a> = (
    &'a Arc<dyn EventStore>,
    &'a Arc<dyn Clock>,
    &'a watch::Receiver<u64>,
);

/// Loads the state of actions; `None` without a policy.
pub(super) fn dispatcher(
    args: &ServeArgs,
    inputs: &Inputs,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Dispatcher>, AppError> {
    let Some(policy) = inputs.actions.clone() else {
        return Ok(None);
    };
    let journal = Journal::beside(&args.db);
    let path = journal.path().to_owned();
    let loaded = Dispatcher::load(Surroundings {
        policy,
        journal,
        kill_switch_file: kill_switch_file(&args.db),
        clock: Arc::clone(clock),
        recorder: recorder(inputs.middleware.audit.log.clone(), Arc::clone(clock)),
        counts: inputs.action_counts.clone(),
    });
    loaded
        .map(Some)
        .map_err(|source| AppError::File { path, source })
}

/// Starts the task, until `stop` turns true. What is reported to agents goes to `table`.
pub(super) fn start(
    dispatcher: Option<Dispatcher>,
    (store, clock, judged): Context<'_>,
    table: watch::Sender<Arc<PolicyTable>>,
    stop: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(dispatcher) = dispatcher {
        let context = ToolContext::new(Arc::clone(store), Rates::default(), Arc::clone(clock));
        tasks.spawn(Actions::new(context, judged.clone(), dispatcher, table).run(stop.clone()));
    }
    tasks
}

/// Returns the function that logs and audits what happened.
fn recorder(audit: AuditLog, clock: Arc<dyn Clock>) -> echo_actions::dispatcher::Recorder {
    Box::new(move |record, described| {
        log(record, described);
        // Further attempts are logged and counted; the audit log has the result.
        if record.outcome == Outcome::Retried {
            return;
        }
        let notice = &record.notice;
        audit.record(&json!({
            "ts": clock.now().to_string(),
            "transport": "action",
            "consumer": record.consumer,
            "mode": record.mode.name(),
            "phase": record.phase.name(),
            "outcome": record.outcome.name(),
            "key": record.delivery.as_ref().map(|delivery| &delivery.key),
            "attempts": record.delivery.as_ref().map(|delivery| delivery.attempts),
            "cluster": notice.cluster,
            "node": notice.node,
            "incident_id": notice.incident_id,
            "detail": record.detail,
            "would": described,
        }));
    })
}

fn log(record: &Record, described: Option<&str>) {
    let notice = &record.notice;
    let (consumer, phase) = (&record.consumer, record.phase.name());
    let outcome = record.outcome.name();
    let detail = described.unwrap_or(&record.detail);
    let (cluster, incident) = (&notice.cluster, &notice.incident_id);
    let is_expected = matches!(
        record.outcome,
        Outcome::Shadow | Outcome::Sent | Outcome::Cancelled
    );
    if is_expected {
        info!(cluster.id = %cluster, incident.id = %incident, consumer, outcome, "action {phase}: {detail}");
    } else {
        warn!(cluster.id = %cluster, incident.id = %incident, consumer, outcome, "action {phase}: {detail}");
    }
}
