//! Operations that a statement spells otherwise than NCCL does, which match nothing without a word.

/// Operations of communicators, as they are stored.
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

/// A note on the first operation in a string of the statement that is spelled in another way, such as
/// `ALL_REDUCE` or `ncclAllReduce`.
pub(super) fn note(sql: &str) -> Option<String> {
    // Each second part is between two quotes.
    let strings = sql.split('\'').skip(1).step_by(2);
    let mut other = strings.filter_map(|text| {
        let plain = text.replace(['_', '-'], "").to_ascii_lowercase();
        let plain = plain.strip_prefix("nccl").unwrap_or(&plain);
        let stored = OPERATIONS
            .iter()
            .find(|name| name.eq_ignore_ascii_case(plain))?;
        (*stored != text).then(|| format!("'{text}' is stored as '{stored}'"))
    });
    other.next()
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn an_operation_in_another_spelling_is_noted_and_other_strings_are_not() {
        for spelled in ["ALL_REDUCE", "allreduce", "ncclAllReduce", "all-reduce"] {
            let sql = format!("SELECT count(*) FROM collectives WHERE op = '{spelled}'");
            let expected = format!("'{spelled}' is stored as 'AllReduce'");
            assert_eq!(note(&sql), Some(expected));
        }
        for sql in [
            "SELECT 1",
            "SELECT count(*) FROM collectives WHERE op IN ('AllReduce', 'Send')",
            "SELECT all_reduce FROM ranks WHERE node_id = 'it''s'",
        ] {
            assert_eq!(note(sql), None, "{sql}");
        }
    }
}
