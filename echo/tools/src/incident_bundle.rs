//! Archive of one incident: the answers of the tools about its time and its ranks, and a README.md that
//! lists the files. It can be read without access to Echo.

mod captured;

use std::collections::BTreeSet;
use std::io;

use echo_core::ids::{JobId, Rank};
use echo_core::model::detector_output::{Finding, Incident};
use echo_core::units::{Nanos, Window};
use echo_store::process_reports::{FilePart, ProcessQuery};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::event_history::EventHistory;
use crate::explain_rank::ExplainRank;
use crate::find_outlier_nodes::FindOutlierNodes;
use crate::get_cost::GetCost;
use crate::host::causal_chains::GetCausalChains;
use crate::host::check::HostCheck;
use crate::host::stacks::GetStacks;
use crate::host::trace_stats::GetTraceStats;
use crate::quality::Presence;
use crate::rank_trace::RankTrace;
use crate::registry::Registry;
use crate::scope::{Scope, ScopeRequest};
use crate::time::{TimeRange, WindowArg};
use crate::tool::Tool;
use crate::{ToolContext, ToolError};

/// Maximum number of named ranks with files of their own.
const MAX_RANKS: usize = 4;

/// Time before an incident that is part of its bundle, nanoseconds: what was usual.
const BEFORE_NANOS: i64 = 300_000_000_000;

/// Time after it, nanoseconds: agents send stacks and losses some seconds later.
const AFTER_NANOS: i64 = 60_000_000_000;

/// Request for the bundle of an incident.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncidentBundle {
    /// Cluster. Default: the one that has the incident.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Incident id, 16 hexadecimal digits.
    pub incident: String,
}

/// Gzipped tar archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Name of the folder in it.
    pub folder: String,
    /// The archive itself.
    pub bytes: Vec<u8>,
}

impl Archive {
    /// Name of the file to save it in.
    pub fn file_name(&self) -> String {
        format!("{}.tar.gz", self.folder)
    }
}

/// File of a bundle.
struct File {
    path: String,
    content: Vec<u8>,
}

/// Finds an incident of a cluster, by default of any that the caller may see, at any time. Returns `None` if
/// there is no such incident, and an error if the caller may not query outliers.
pub async fn find_incident(
    registry: &Registry,
    context: &ToolContext,
    cluster: Option<&str>,
    id: &str,
) -> Result<Option<Incident>, ToolError> {
    registry.find(&context.caller, FindOutlierNodes::NAME)?;
    let Some(cluster) = cluster else {
        return context.run_limited(find_in_any_cluster(context, id)).await;
    };
    let request = ScopeRequest {
        cluster: Some(cluster.to_owned()),
        time: TimeRange {
            window: Some(WindowArg::All),
            ..TimeRange::default()
        },
        page_window: None,
    };
    let found = async {
        let scope = Scope::resolve(context, request).await?;
        let cluster = scope.require_cluster()?;
        let all = context.store.incidents(Some(cluster), scope.window).await?;
        Ok(all.iter().find(|one| one.id.to_string() == id).cloned())
    };
    context.run_limited(found).await
}

async fn find_in_any_cluster(
    context: &ToolContext,
    id: &str,
) -> Result<Option<Incident>, ToolError> {
    let ever = TimeRange {
        window: Some(WindowArg::All),
        ..TimeRange::default()
    };
    let window = ever.resolve(context, None).await?;
    let all = context.store.incidents(None, window).await?;
    let mut visible = all
        .into_iter()
        .filter(|one| context.caller.may_see(&one.cluster));
    Ok(visible.find(|one| one.id.to_string() == id))
}

impl IncidentBundle {
    /// Returns the archive. Answers of tools that the caller may not use are missing, and its README.md
    /// says so. An error if the id is invalid or the cluster has no such incident.
    pub async fn archive(
        &self,
        registry: &Registry,
        context: &ToolContext,
    ) -> Result<Archive, ToolError> {
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        if self.incident.len() != 16 || !self.incident.chars().all(is_digit) {
            return Err(ToolError::invalid(
                "incident",
                "is not 16 hexadecimal digits",
            ));
        }
        let cluster = self.cluster.as_deref();
        let incident = find_incident(registry, context, cluster, &self.incident).await?;
        let Some(incident) = incident else {
            let id = self.incident.clone();
            return Err(ToolError::UnknownIncident { id });
        };
        let files = files(registry, context, &incident).await?;
        let folder = format!("incident-{}", incident.id);
        let bytes = packed(&folder, &files, incident.last_seen).map_err(ToolError::Archive)?;
        Ok(Archive { folder, bytes })
    }
}

/// Stands for a trace, which is made of the answers of several tools.
const TRACE: &str = "trace";

/// Files about the time of an incident: name, tool, and what it is for.
const FILES: [(&str, &str, &str); 4] = [
    (
        "incidents.json",
        FindOutlierNodes::NAME,
        "all incidents of that time, with reason, evidence and advice",
    ),
    ("cost.json", GetCost::NAME, "what they cost"),
    (
        "hosts.json",
        HostCheck::NAME,
        "what each node reports, and what is missing",
    ),
    (
        "events.json",
        EventHistory::NAME,
        "the last events: operations that each rank issued, durations, evidence",
    ),
];

/// The same about a rank.
const RANK_FILES: [(&str, &str, &str); 5] = [
    (
        "explanation.json",
        ExplainRank::NAME,
        "lag, evidence, chains and verdicts",
    ),
    (
        "stacks.json",
        GetStacks::NAME,
        "where its threads were sampled",
    ),
    (
        "chains.json",
        GetCausalChains::NAME,
        "what its process lost time to",
    ),
    (
        "calls.json",
        GetTraceStats::NAME,
        "durations of its calls of CUDA, HIP and NCCL",
    ),
    ("trace.json", TRACE, "for ui.perfetto.dev"),
];

/// Number of events, the latest.
const MAX_EVENTS: usize = 1_000;

/// Makes the files of one incident.
struct Maker<'a> {
    registry: &'a Registry,
    context: &'a ToolContext,
    incident: &'a Incident,
    window: Window,
    files: Vec<File>,
    /// Lines about the files, and about those that are missing.
    contents: Vec<String>,
}

impl Maker<'_> {
    /// Adds a file, or the reason why it is missing.
    async fn add(&mut self, path: String, tool: &str, rank: Option<Rank>, about: &str) {
        let line = match self.answer(tool, rank).await {
            Ok(text) => {
                let line = format!("- `{path}`: {about}");
                let content = text.into_bytes();
                self.files.push(File { path, content });
                line
            }
            Err(error) => format!("- `{path}` is missing: {error}"),
        };
        self.contents.push(line);
    }

    /// Returns the parts of the files that agents made about the ranks of the job.
    async fn captured(&self) -> Result<Vec<FilePart>, ToolError> {
        self.registry.find(&self.context.caller, GetStacks::NAME)?;
        let query = ProcessQuery {
            cluster: Some(self.incident.cluster.clone()),
            job: self.incident.job.clone(),
            ..ProcessQuery::new(self.window, captured::MAX_PARTS)
        };
        let parts = async { Ok(self.context.store.file_parts(query).await?) };
        self.context.run_limited(parts).await
    }

    /// Adds the files that an agent made about a rank.
    fn add_captured(&mut self, rank: Rank, parts: &[FilePart]) {
        let of_rank = parts.iter().filter(|part| part.process.rank == Some(rank));
        // The name comes from an agent, which must not replace an answer of Echo.
        let is_taken = |name: &str| RANK_FILES.iter().any(|(own, ..)| *own == name);
        let files = captured::files(of_rank).into_iter();
        for (name, content) in files.filter(|(name, _)| !is_taken(name)) {
            let path = format!("rank-{rank}/{name}");
            let about = captured::about(name);
            self.contents.push(match &content {
                Ok(_) => format!("- `{path}`: {about} (rank {rank}, when the job hung)"),
                Err(reason) => format!("- `{path}` is missing: {reason}"),
            });
            self.files
                .extend(content.ok().map(|content| File { path, content }));
        }
    }

    async fn answer(&self, tool: &str, rank: Option<Rank>) -> Result<String, ToolError> {
        let input = self.input(tool, rank);
        if tool == TRACE {
            let trace: RankTrace = serde_json::from_value(input).map_err(ToolError::Json)?;
            return Box::pin(trace.json(self.registry, self.context)).await;
        }
        let output = self.registry.dispatch(self.context, tool, input);
        Ok(output.await?.text)
    }

    fn input(&self, tool: &str, rank: Option<Rank>) -> Value {
        let job = self.incident.job.as_ref().map(JobId::as_str);
        let job = job.filter(|_| [ExplainRank::NAME, TRACE].contains(&tool));
        let limit = (tool == EventHistory::NAME).then_some(MAX_EVENTS);
        let fields = [
            ("cluster", Some(json!(self.incident.cluster.as_str()))),
            ("from", Some(json!(self.window.from().to_string()))),
            ("to", Some(json!(self.window.to().to_string()))),
            ("rank", rank.map(|rank| json!(rank.value()))),
            ("job", job.map(|job| json!(job))),
            ("limit", limit.map(|limit| json!(limit))),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(given.collect())
    }
}

async fn files(
    registry: &Registry,
    context: &ToolContext,
    incident: &Incident,
) -> Result<Vec<File>, ToolError> {
    let window = window(incident)?;
    let presence = Presence::load(context, Some(&incident.cluster), window);
    let presence = context.run_limited(presence).await?;
    let mut maker = Maker {
        registry,
        context,
        incident,
        window,
        files: Vec::new(),
        contents: Vec::new(),
    };
    for (name, tool, about) in FILES {
        maker.add(name.to_owned(), tool, None, about).await;
    }
    let named = named(incident);
    let parts = maker.captured().await;
    if let Err(error) = &parts {
        let line = format!("- files that agents made when the job hung are missing: {error}");
        maker.contents.push(line);
    }
    let parts = parts.unwrap_or_default();
    let captured: BTreeSet<Rank> = parts.iter().filter_map(|part| part.process.rank).collect();
    let others = others(incident, &named, &presence, &captured);
    let named = named.iter().take(MAX_RANKS).map(|rank| (*rank, "named"));
    let others = others.into_iter().map(|rank| (rank, "to compare with"));
    for (rank, who) in named.chain(others) {
        for (name, tool, about) in RANK_FILES {
            let about = format!("{about} (rank {rank}, {who})");
            let path = format!("rank-{rank}/{name}");
            maker.add(path, tool, Some(rank), &about).await;
        }
        maker.add_captured(rank, &parts);
    }
    let content = readme(incident, window, &maker.contents).into_bytes();
    let path = "README.md".to_owned();
    maker.files.insert(0, File { path, content });
    Ok(maker.files)
}

/// Ranks that an incident names.
fn named(incident: &Incident) -> Vec<Rank> {
    match &incident.finding {
        Finding::Culprit(culprit) => vec![culprit.rank],
        Finding::Condition(condition) => condition.ranks.clone(),
    }
}

/// The first rank of the job that is not named, or the first two if none is named, if possible with files of their
/// agents.
fn others(
    incident: &Incident,
    named: &[Rank],
    presence: &Presence,
    captured: &BTreeSet<Rank>,
) -> Vec<Rank> {
    let ranks = presence.ranks().filter(|origin| origin.job == incident.job);
    let ranks = ranks.filter_map(|origin| Some(origin.rank?.rank()));
    let others = ranks.filter(|rank| !named.contains(rank));
    let mut others: Vec<Rank> = others.collect();
    others.sort_by_key(|rank| (!captured.contains(rank), *rank));
    others.truncate(if named.is_empty() { 2 } else { 1 });
    others
}

fn window(incident: &Incident) -> Result<Window, ToolError> {
    let from = incident.first_seen.offset(-BEFORE_NANOS);
    let end = incident.cleared_at.unwrap_or(incident.last_seen);
    let window = Window::new(from, end.offset(AFTER_NANOS));
    window.ok_or_else(|| ToolError::invalid("incident", "ends before it begins"))
}

fn readme(incident: &Incident, window: Window, contents: &[String]) -> String {
    let end = match incident.cleared_at {
        Some(end) => format!("until {end}"),
        None => "open when this was made".to_owned(),
    };
    format!(
        "# Incident {} of {}\n\n{}.\n\nSince {}, {end}. The files cover {} to {}.\n\n{}\n",
        incident.id,
        incident.cluster,
        incident.reason,
        incident.first_seen,
        window.from(),
        window.to(),
        contents.join("\n")
    )
}

fn packed(folder: &str, files: &[File], at: Nanos) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(u64::try_from(at.value() / 1_000_000_000).unwrap_or(0));
        let path = format!("{folder}/{}", file.path);
        archive.append_data(&mut header, path, file.content.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests;
