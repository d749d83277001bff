//! How a cluster stands, in a few words: pure.

use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::quality::DataQuality;

use super::format::{length, plain};

/// Events older than this, in seconds, say nothing about the present.
const STALE_AFTER_S: f64 = 60.0;

/// How much a reader has to care. The word says the same as the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing is wrong.
    Good,
    /// Nothing is known.
    Idle,
    /// Something is wrong.
    Warn,
    /// Something is very wrong.
    Bad,
}

impl Tone {
    /// Name in the style sheet.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Idle => "idle",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    /// The tone of a severity as answers name it.
    pub(super) fn of_severity(severity: &str) -> Self {
        match severity {
            "critical" => Self::Bad,
            _ => Self::Warn,
        }
    }
}

/// How a cluster stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    /// How much to care.
    pub(super) tone: Tone,
    /// In a few words.
    pub(super) words: String,
    /// What to know before trusting them.
    pub(super) doubt: Option<String>,
}

impl Standing {
    /// By who holds it back at the end of a window.
    pub(super) fn of(answer: &Outliers) -> Self {
        let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
        let n_culprits = culprits.filter(|one| one.lifecycle.is_open()).count();
        let mut conditions = answer.conditions.iter();
        let condition = conditions.find(|one| one.lifecycle.is_open());
        let condition = condition.map(|condition| plain(condition.kind));
        Self::by((n_culprits, condition), &answer.data_quality)
    }

    /// By how many culprits and which condition there are.
    fn by((n_culprits, condition): (usize, Option<String>), quality: &DataQuality) -> Self {
        let doubt = doubt(quality);
        let (tone, words) = match (n_culprits, &condition) {
            (1, _) => (Tone::Bad, "1 rank holds back its peers".to_owned()),
            (2.., _) => (
                Tone::Bad,
                format!("{n_culprits} ranks hold back their peers"),
            ),
            (0, Some(kind)) => (Tone::Warn, capitalised(kind)),
            (0, None) if doubt.is_some() => (Tone::Idle, "Not known".to_owned()),
            (0, None) => (Tone::Good, "Healthy".to_owned()),
        };
        Self { tone, words, doubt }
    }
}

fn doubt(quality: &DataQuality) -> Option<String> {
    match quality.last_event_age_s {
        None => Some(quality.note.clone().unwrap_or_default()),
        Some(age_s) if age_s > STALE_AFTER_S => {
            let age = length(age_s);
            Some(format!("stale: the last event came {age} ago"))
        }
        Some(_) if !quality.quorum_met => {
            Some("low coverage: too few ranks report to compare them".to_owned())
        }
        Some(_) => quality.note.clone(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use echo_tools::quality::DataQuality;

    use super::{Standing, Tone};

    /// How a cluster stands with that many culprits, by an answer of that quality.
    fn standing(n_culprits: usize, age_s: Option<f64>, quorum_met: bool) -> Standing {
        let quality = DataQuality {
            ranks_reporting: 4,
            ranks_expected: 4,
            coverage: Some(1.0),
            last_event_age_s: age_s,
            quorum_met,
            note: None,
        };
        Standing::by((n_culprits, None), &quality)
    }

    #[test]
    fn only_a_cluster_of_which_enough_is_known_is_called_healthy() {
        assert_eq!(standing(0, Some(1.0), true).tone, Tone::Good);
        for unknown in [
            standing(0, None, false),
            standing(0, Some(61.0), true),
            standing(0, Some(1.0), false),
        ] {
            assert_eq!(
                (unknown.tone, unknown.words.as_str()),
                (Tone::Idle, "Not known")
            );
            assert!(unknown.doubt.is_some());
        }
    }

    #[test]
    fn a_culprit_is_named_also_where_the_data_is_old() {
        let stale = standing(2, Some(300.0), true);
        assert_eq!(stale.tone, Tone::Bad);
        assert_eq!(stale.words, "2 ranks hold back their peers");
        let doubt = stale.doubt.unwrap().replace('\u{a0}', " ");
        assert_eq!(doubt, "stale: the last event came 5 min ago");
    }
}
