//! How a cluster stands, in a few words: pure.

use super::answers::Outliers;
use super::words::length;

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
        let n_culprits = culprits.filter(|one| one.course.is_open()).count();
        let open = answer.conditions.iter().filter(|one| one.course.is_open());
        let kinds: Vec<String> = open.map(|one| super::words::plain(&one.kind)).collect();
        let doubt = doubt(answer);
        let (tone, words) = match (n_culprits, kinds.first()) {
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

fn doubt(answer: &Outliers) -> Option<String> {
    let quality = &answer.data_quality;
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
    use serde_json::json;

    use super::{Standing, Tone};

    /// How a cluster stands by an answer with that many culprits and that quality.
    fn standing(n_culprits: usize, age_s: Option<f64>, quorum_met: bool) -> Standing {
        let culprit = json!({
            "incident_id": "17", "node_id": "node-1", "rank": 2, "role": "culprit", "victims": [], "victim_count": 0,
            "victim_of": [], "class": "host", "lag_ms": 11.0, "effect_ratio": 0.1, "confidence": 0.9, "evidence": [],
            "state": "open", "severity": "critical", "provisional": false, "first_seen": "", "last_seen": "",
            "cleared_at": null, "occurrences": 1, "job": null, "baseline": "none", "period_ms": 1.0,
            "healthy_period_ms": 1.0, "reason": "",
        });
        let answer = json!({
            "window": { "from": "", "to": "" }, "outliers": vec![culprit; n_culprits], "conditions": [],
            "truncated": false,
            "data_quality": {
                "ranks_reporting": 4, "ranks_expected": 4, "coverage": 1.0, "last_event_age_s": age_s,
                "quorum_met": quorum_met, "note": null,
            },
        });
        Standing::of(&serde_json::from_value(answer).unwrap())
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
