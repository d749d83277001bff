//! Status of a cluster in a few words; pure functions.

use echo_tools::find_outlier_nodes::Outliers;
use echo_tools::quality::DataQuality;

use super::format::{length, plain};

/// Age, in seconds, after which events do not describe the current state.
const STALE_AFTER_S: f64 = 60.0;

/// Severity of a status. The text expresses the same as the color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// No problem.
    Good,
    /// Unknown.
    Idle,
    /// A problem.
    Warn,
    /// A severe problem.
    Bad,
}

impl Tone {
    /// Returns the CSS class.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Idle => "idle",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    /// Returns the tone of a severity in an answer.
    pub(super) fn from_severity(severity: &str) -> Self {
        match severity {
            "critical" => Self::Bad,
            _ => Self::Warn,
        }
    }
}

/// Status of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterStatus {
    /// Severity.
    pub(super) tone: Tone,
    /// Text of a few words.
    pub(super) summary: String,
    /// Caveat about the data, if any.
    pub(super) caveat: Option<String>,
}

impl ClusterStatus {
    /// Summarizes an answer, by the incidents open at the end of its window.
    pub(super) fn from_outliers(answer: &Outliers) -> Self {
        let culprits = answer.outliers.iter().filter(|one| one.is_culprit());
        let n_culprits = culprits.filter(|one| one.lifecycle.is_open()).count();
        let mut conditions = answer.conditions.iter();
        let condition = conditions.find(|one| one.lifecycle.is_open());
        let condition = condition.map(|condition| plain(condition.kind));
        Self::new(n_culprits, condition, &answer.data_quality)
    }

    /// Summarizes the number of open culprits and an open condition.
    fn new(n_culprits: usize, condition: Option<String>, quality: &DataQuality) -> Self {
        let caveat = caveat(quality);
        let (tone, summary) = match (n_culprits, condition) {
            (1, _) => (Tone::Bad, "1 rank holds back its peers".to_owned()),
            (2.., _) => (
                Tone::Bad,
                format!("{n_culprits} ranks hold back their peers"),
            ),
            (0, Some(kind)) => (Tone::Warn, capitalized(&kind)),
            (0, None) if caveat.is_some() => (Tone::Idle, "Unknown".to_owned()),
            (0, None) => (Tone::Good, "Healthy".to_owned()),
        };
        Self {
            tone,
            summary,
            caveat,
        }
    }
}

fn caveat(quality: &DataQuality) -> Option<String> {
    match quality.last_event_age_s {
        None => Some(quality.note.clone().unwrap_or_default()),
        Some(age_s) if age_s > STALE_AFTER_S => {
            let age = length(age_s);
            Some(format!("stale: last event {age} ago"))
        }
        Some(_) if !quality.quorum_met => {
            Some("low coverage: too few ranks report to compare them".to_owned())
        }
        Some(_) => quality.note.clone(),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use echo_tools::quality::DataQuality;

    use super::{ClusterStatus, Tone};

    /// Returns the status for this number of culprits and this data quality.
    fn status(n_culprits: usize, age_s: Option<f64>, quorum_met: bool) -> ClusterStatus {
        let quality = DataQuality {
            ranks_reporting: 4,
            ranks_expected: 4,
            coverage: Some(1.0),
            last_event_age_s: age_s,
            quorum_met,
            note: None,
        };
        ClusterStatus::new(n_culprits, None, &quality)
    }

    #[test]
    fn a_cluster_with_insufficient_data_is_not_healthy() {
        assert_eq!(status(0, Some(1.0), true).tone, Tone::Good);
        for unknown in [
            status(0, None, false),
            status(0, Some(61.0), true),
            status(0, Some(1.0), false),
        ] {
            assert_eq!(
                (unknown.tone, unknown.summary.as_str()),
                (Tone::Idle, "Unknown")
            );
            assert!(unknown.caveat.is_some());
        }
    }

    #[test]
    fn a_culprit_is_reported_even_if_the_data_is_stale() {
        let stale = status(2, Some(300.0), true);
        assert_eq!(stale.tone, Tone::Bad);
        assert_eq!(stale.summary, "2 ranks hold back their peers");
        let caveat = stale.caveat.unwrap().replace('\u{a0}', " ");
        assert_eq!(caveat, "stale: last event 5 min ago");
    }
}
