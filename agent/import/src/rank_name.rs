//! Rank that the name of a file tells.

/// Words whose number may be the rank, or a size, an epoch or a host. Several words of one kind in a
/// name are coordinates, and none of them is the rank.
const WORDS: [&[&str]; 2] = [&["worker"], &["tp", "pp", "dp", "ep", "cp"]];

/// Returns the number after the word, such as `rank_3`; `None` if the name has none. That of a local
/// rank is not the rank.
pub(crate) fn named_rank(file_name: &str) -> Option<u32> {
    number_after(&file_name.to_ascii_lowercase(), "rank")
}

/// Returns the number after another word that may be the rank, such as `worker0` or `TP-1`.
pub(crate) fn possible_rank(file_name: &str) -> Option<u32> {
    let name = file_name.to_ascii_lowercase();
    WORDS.into_iter().find_map(|words| {
        let numbers = words.iter().filter_map(|word| number_after(&name, word));
        let numbers: Vec<u32> = numbers.collect();
        let [number] = numbers[..] else {
            return None;
        };
        Some(number)
    })
}

/// The number that follows the word, or a sign after it.
fn number_after(name: &str, word: &str) -> Option<u32> {
    name.match_indices(word).find_map(|(place, _)| {
        let (before, rest) = name.split_at_checked(place)?;
        let is_part = before.ends_with(|letter: char| letter.is_ascii_alphabetic());
        let is_local = before.trim_end_matches(['_', '-']).ends_with("local");
        let after = rest.strip_prefix(word)?.trim_start_matches(['_', '-', '=']);
        let digits = after.split(|letter: char| !letter.is_ascii_digit()).next();
        let number = digits.and_then(|digits| digits.parse().ok());
        number.filter(|_| !is_part && !is_local)
    })
}

/// Last number in the name of a file, without its extensions: `nccl_trace_12.json` -> 12. It may be
/// that of a process or of a step.
pub(crate) fn trailing_number(file_name: &str) -> Option<u32> {
    let stem = file_name.split('.').next().unwrap_or(file_name);
    let mut numbers = stem.split(|letter: char| !letter.is_ascii_digit());
    let last = numbers.rfind(|digits| !digits.is_empty());
    last.and_then(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_a_word_for_a_rank_is_or_may_be_the_rank() {
        for (name, rank) in [
            ("rank_3.json", Some(3)),
            ("rank1_iter16_18.json.gz", Some(1)),
            ("local_rank_0_rank_12.json", Some(12)),
            ("worker0.1708722599999.pt.trace.json.gz", Some(0)),
            ("Qwen1.5_tp1.json.gz", Some(1)),
            ("1708722576.381-TP-1.trace.json.gz", Some(1)),
            ("1708722576.381-TP-1-DP-0.trace.json.gz", None),
            ("node1_123.170872257631.pt.trace.json.gz", None),
            ("mi250_minitoy_train_ROCm6_2_kineto.json.gz", None),
            ("frank_7.json", None),
            ("http2.json", None),
        ] {
            let found = named_rank(name).or_else(|| possible_rank(name));
            assert_eq!(found, rank, "{name}");
            assert_eq!(
                named_rank(name).is_some(),
                name.contains("_rank_12") || name.starts_with("rank"),
                "{name}"
            );
        }
    }

    #[test]
    fn the_last_number_of_a_name_is_before_its_extensions() {
        assert_eq!(trailing_number("nccl_trace_12.json"), Some(12));
        assert_eq!(trailing_number("host_7.170.pt.trace.json.gz"), Some(7));
        assert_eq!(trailing_number("trace.json"), None);
    }
}
