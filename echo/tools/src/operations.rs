//! Operations that are spelled otherwise than NCCL, and Echo's agents, spell them.

/// Operations of communicators, as agents send them and they are stored.
const OPERATIONS: [&str; 10] = [
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "AlltoAll",
    "Gather",
    "Scatter",
    "Send",
    "Recv",
];

/// Text before a string with which the column `op` is compared.
const COMPARED: [&str; 3] = ["op =", "op=", "op in ("];

/// A note on the first operation with which `op` is compared in another spelling, such as `ALL_REDUCE` or
/// `ncclAllReduce`.
pub(crate) fn note(sql: &str) -> Option<String> {
    let mut is_of_list = false;
    let mut before = "";
    for (number, part) in sql.split('\'').enumerate() {
        if number % 2 == 0 {
            before = part;
            continue;
        }
        // Each second part is between two quotes.
        let text = before.trim().to_ascii_lowercase();
        let is_compared = COMPARED.iter().any(|end| text.ends_with(end));
        is_of_list = is_compared || is_of_list && text == ",";
        if let Some(stored) = stored(part).filter(|_| is_of_list) {
            return Some(format!("'{part}' is stored as '{stored}'"));
        }
    }
    None
}

/// The operation that a text spells in another way, as it is stored.
pub(crate) fn stored(text: &str) -> Option<&'static str> {
    let plain = text.replace(['_', '-'], "").to_ascii_lowercase();
    let plain = plain.strip_prefix("nccl").unwrap_or(&plain);
    let stored = OPERATIONS
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case(plain))?;
    (stored != text).then_some(stored)
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn an_operation_in_another_spelling_is_noted() {
        for spelled in ["ALL_REDUCE", "allreduce", "ncclAllReduce", "all-reduce"] {
            for compared in [
                format!("op = '{spelled}'"),
                format!("c.op='{spelled}' AND rank = 1"),
                format!("op IN ('Send', '{spelled}')"),
            ] {
                let sql = format!("SELECT count(*) FROM collectives c WHERE {compared}");
                let expected = format!("'{spelled}' is stored as 'AllReduce'");
                assert_eq!(note(&sql), Some(expected), "{sql}");
            }
        }
    }

    #[test]
    fn other_strings_and_the_stored_spelling_are_not_noted() {
        for sql in [
            "SELECT 1",
            "SELECT count(*) FROM collectives WHERE op IN ('AllReduce', 'Send')",
            "SELECT count(*) FROM process_calls WHERE function = 'ncclAllReduce'",
            "SELECT count(*) FROM collectives WHERE lower(op) = 'allreduce'",
            "SELECT count(*) FROM collectives WHERE op ILIKE 'allreduce'",
            "SELECT rank FROM ranks WHERE node_id = 'it''s' AND job = 'reduce'",
        ] {
            assert_eq!(note(sql), None, "{sql}");
        }
    }
}
