//! Texts of the server in the words of the command line: flags for the fields of tools, commands for
//! their names.

use serde_json::Value;

/// Parts of messages and notes, and what is printed for them.
const PHRASES: [(&str, &str); 17] = [
    ("set job to", "set --job to"),
    ("set cluster", "set --cluster"),
    ("set from and to", "set --from and --to"),
    ("omit from, to and window", "omit --from, --to and --window"),
    ("nstead of from and to", "nstead of --from and --to"),
    ("instead of window", "instead of --window"),
    ("window=all", "--window all"),
    ("fleet.cluster.find_outlier_nodes", "fleet-echo outliers"),
    ("fleet.cluster.explain_rank", "fleet-echo explain"),
    ("fleet.cluster.get_cost", "fleet-echo cost"),
    ("fleet.cluster.event_history", "fleet-echo history"),
    ("fleet.cluster.run_analysis", "fleet-echo sql"),
    ("fleet.host.get_causal_chains", "fleet-echo host chains"),
    ("fleet.host.get_trace_stats", "fleet-echo host calls"),
    ("fleet.host.get_stacks", "fleet-echo host stacks"),
    ("fleet.host.graph_lifecycle", "fleet-echo host graphs"),
    ("fleet.host.check", "fleet-echo host check"),
];

/// Fields of answers that hold advice.
const ADVICE: [&str; 2] = ["note", "summary"];

/// Beginnings of messages that continue a sentence about an input.
const VERBS: [&str; 4] = ["is ", "must ", "cannot ", "reported "];

/// Inputs that a command takes without a flag.
const OPERANDS: [&str; 2] = ["sql", "incident"];

/// Returns a text with the names of flags and commands. A message about the tools themselves keeps
/// their names.
pub(super) fn reworded(text: &str) -> String {
    if text.starts_with("no such tool") {
        return text.to_owned();
    }
    PHRASES.iter().fold(text.to_owned(), |text, (said, meant)| {
        text.replace(said, meant)
    })
}

/// Rewords the notes and summaries of an answer.
pub(super) fn reworded_answer(answer: Value) -> Value {
    match answer {
        Value::Array(items) => items.into_iter().map(reworded_answer).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = match value {
                    Value::String(text) if ADVICE.contains(&name.as_str()) => {
                        Value::String(reworded(&text))
                    }
                    other => reworded_answer(other),
                };
                (name, value)
            });
            fields.collect()
        }
        plain => plain,
    }
}

/// Returns the message about an invalid input, which names the flag for it; `None` if the error does
/// not list what is invalid.
pub(super) fn violations(error: &Value) -> Option<String> {
    let details = error.get("details")?.as_array()?;
    let sentences: Vec<String> = details.iter().filter_map(violation).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

fn violation(detail: &Value) -> Option<String> {
    let message = detail.get("message")?.as_str()?;
    let pointer = detail.get("pointer").and_then(Value::as_str);
    let field = pointer.and_then(|pointer| pointer.strip_prefix('/'));
    let Some(field) = field else {
        return Some(message.to_owned());
    };
    // `fleet-echo job` takes its job without a flag.
    let is_operand = OPERANDS.contains(&field) || message.starts_with("reported ");
    let flag = || format!("--{}", field.replace('_', "-"));
    let subject = if is_operand { field.to_owned() } else { flag() };
    let is_predicate = VERBS.iter().any(|verb| message.starts_with(verb));
    let colon = if is_predicate { "" } else { ":" };
    Some(format!("{subject}{colon} {message}"))
}

#[cfg(test)]
mod tests {
    use echo_tools::registry::Registry;
    use serde_json::json;

    use super::{reworded, reworded_answer, violations};

    #[test]
    fn invalid_inputs_are_named_by_their_flags() {
        let error = json!({ "details": [
            { "pointer": "/cluster", "message": "is required: one of a, b" },
            { "pointer": "/max_rows", "message": "0 is less than the minimum of 1" },
            { "pointer": "/sql", "message": "is empty" },
            { "pointer": "/job", "message": "reported in several clusters; set cluster" },
            { "pointer": "", "message": "give a window" },
        ] });
        let expected = "--cluster is required: one of a, b; --max-rows: 0 is less than the minimum of 1; sql is empty; \
             job reported in several clusters; set cluster; give a window";
        assert_eq!(violations(&error).as_deref(), Some(expected));
        assert_eq!(violations(&json!({ "message": "no such cluster" })), None);
    }

    #[test]
    fn every_tool_is_named_by_its_command() {
        for tool in Registry::standard().tools() {
            let text = reworded(&format!("{} lists it", tool.name));
            assert!(text.starts_with("fleet-echo "), "{text}");
        }
    }

    #[test]
    fn only_notes_and_summaries_of_an_answer_are_reworded() {
        let answer = json!({ "data_quality": { "note": "use window=all" }, "rows": [{ "job": "set job to" }] });
        let expected = json!({ "data_quality": { "note": "use --window all" }, "rows": [{ "job": "set job to" }] });
        assert_eq!(reworded_answer(answer), expected);
    }
}
