//! Prompts for frequent queries.

use echo_core::text::is_hidden;
use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

/// A prompt: its listing, and its text with placeholders.
struct Template {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    /// Text in which `{name}` is replaced by an argument.
    text: &'static str,
}

struct Argument {
    name: &'static str,
    description: &'static str,
    /// Default value; an argument without one is required.
    default: Option<&'static str>,
}

const TEMPLATES: [Template; 2] = [
    Template {
        name: "investigate_stragglers",
        title: "Investigate stragglers",
        description: "Finds out which rank holds a cluster back, why, since when and at what cost.",
        arguments: &[
            Argument {
                name: "cluster",
                description: "Cluster to examine.",
                default: None,
            },
            Argument {
                name: "window",
                description: "Window up to now, such as 15m, 24h or 7d; 1h if omitted.",
                default: Some("1h"),
            },
        ],
        text: "\
Find out what slows down the jobs of cluster {cluster}, over the last {window}.

1. Call find_outlier_nodes with cluster {cluster} and window {window}. If data_quality.quorum_met is false, say that too \
few ranks report for a verdict, and which of the reasons given there applies.
2. For every open culprit call explain_rank. Say what the rank does later than its peers, by how much, since when, how \
confident the verdict is, and which evidence of its host explains it. Separate evidence from assumptions.
3. Conditions such as uniform_slowdown name no rank; report them as they are.
4. Call get_cost for the same cluster and window, and say what each incident cost.

End with: the rank and node to act on first (or that there is none), the reason in one sentence, the cost per hour if \
nothing is done, and what a person should check on that host.",
    },
    Template {
        name: "daily_cost_report",
        title: "Daily cost report",
        description: "Reports what stragglers cost in a window, by cluster and by incident.",
        arguments: &[
            Argument {
                name: "window",
                description: "Window of the report, such as 24h or 7d; 24h if omitted.",
                default: Some("24h"),
            },
            Argument {
                name: "cluster",
                description: "One cluster; all of them if omitted.",
                default: Some("(all clusters)"),
            },
        ],
        text: "\
Report what stragglers cost over the last {window}, for {cluster}.

1. Call get_cost with window {window}, and with the cluster if one is named. Leave the argument out for all clusters.
2. Give the total in its currency, the lost GPU-hours, and the run rate per hour. The total is what the window cost; the \
run rate is what one more hour would cost. Never add them up.
3. List the incidents that cost most, with their cluster, node and rank, and whether they are still open.
4. Report GPU-hours without a price as such; they are not free. Say how much of the cluster reported (data_quality) and \
whether the figures are stale.

Write it for a reader who approves budgets: a short table first, then at most five sentences.",
    },
];

/// Lists the prompts.
pub(super) fn list() -> Vec<Prompt> {
    let listed = |template: &Template| {
        let arguments = template.arguments.iter().map(|argument| {
            PromptArgument::new(argument.name)
                .with_description(argument.description)
                .with_required(argument.default.is_none())
        });
        let (description, arguments) = (Some(template.description), Some(arguments.collect()));
        Prompt::new(template.name, description, arguments).with_title(template.title)
    };
    TEMPLATES.iter().map(listed).collect()
}

/// Returns a prompt with its arguments filled in.
pub(super) fn get(name: &str, given: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let wrong = |message: String| ErrorData::invalid_params(message, None);
    let template = TEMPLATES.iter().find(|template| template.name == name);
    let template = template.ok_or_else(|| {
        let known = TEMPLATES.map(|template| template.name).join(", ");
        wrong(format!("no such prompt: {name:?} (known: {known})"))
    })?;
    let mut text = template.text.to_owned();
    for argument in template.arguments {
        let value = match given.get(argument.name) {
            None | Some(Value::Null) => argument.default,
            Some(value) => value.as_str().filter(|value| !value.trim().is_empty()),
        };
        let value = value.ok_or_else(|| {
            wrong(format!(
                "the prompt {name} requires the text argument {}",
                argument.name
            ))
        })?;
        // Arguments are data: none of their text may look like a line of the prompt.
        let plain: String = value.chars().filter(|c| !is_hidden(*c)).collect();
        text = text.replace(&format!("{{{}}}", argument.name), &plain);
    }
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(template.description))
}
