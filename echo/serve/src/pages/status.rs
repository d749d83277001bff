//! Status of a cluster in a few words; pure functions.

use echo_core::units::Nanos;
use echo_tools::find_outlier_nodes::Outliers;

use super::format::{STALE_AFTER_S, length, parse_instant};
use super::open_incidents::OpenIncident;

/// Severity of a status, most severe first. The text expresses the same as the color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tone {
    /// A severe problem.
    Bad,
    /// A problem.
    Warn,
    /// Unknown.
    Idle,
    /// No problem.
    Good,
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

    /// Returns the tone of an open incident.
    pub(super) fn from_incident(incident: &OpenIncident<'_>) -> Self {
        match incident {
            OpenIncident::Hang(_) => Self::Bad,
            OpenIncident::Outlier(_) | OpenIncident::Condition(_) => {
                Self::from_severity(incident.lifecycle().severity)
            }
        }
    }

    fn from_severity(severity: &str) -> Self {
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
    /// True if there are no recent events.
    pub(super) is_stale: bool,
}

impl ClusterStatus {
    /// Summarizes an answer, by the incidents open at the end of its window.
    pub(super) fn new(open: &[OpenIncident<'_>], answer: &Outliers, now: Nanos) -> Self {
        let age_s = last_event_age_s(answer, now);
        let is_stale = age_s.is_none_or(|age_s| age_s > STALE_AFTER_S);
        let caveat = caveat(answer, age_s);
        let (tone, summary) = match open {
            [] if caveat.is_some() => (Tone::Idle, "Unknown".to_owned()),
            [] => (Tone::Good, "Healthy".to_owned()),
            [first, others @ ..] => (Tone::from_incident(first), summary(first, others.len())),
        };
        Self {
            tone,
            summary,
            caveat,
            is_stale,
        }
    }
}

fn summary(first: &OpenIncident<'_>, n_others: usize) -> String {
    let headline = first.headline();
    match n_others {
        0 => headline,
        1 => format!("{headline}, and 1 more incident"),
        n => format!("{headline}, and {n} more incidents"),
    }
}

/// Returns the age of the last event in seconds, now rather than at the end of the window; `None`
/// without events.
pub(super) fn last_event_age_s(answer: &Outliers, now: Nanos) -> Option<f64> {
    let to = parse_instant(&answer.window.to).unwrap_or(now);
    let since_end_s = (now.millis_since(to) / 1e3).max(0.0);
    let age_s = answer.data_quality.last_event_age_s?;
    Some(age_s + since_end_s)
}

fn caveat(answer: &Outliers, age_s: Option<f64>) -> Option<String> {
    let quality = &answer.data_quality;
    match age_s {
        None => Some(quality.note.clone().unwrap_or_default()),
        Some(age_s) if age_s > STALE_AFTER_S => {
            Some(format!("stale: last event {} ago", length(age_s)))
        }
        Some(_) if !quality.quorum_met => {
            Some("low coverage: too few ranks report to compare them".to_owned())
        }
        Some(_) => quality.note.clone(),
    }
}

#[cfg(test)]
mod tests {
    use echo_core::units::Nanos;
    use echo_tools::find_outlier_nodes::Outliers;
    use echo_tools::quality::DataQuality;
    use echo_tools::time::AnswerWindow;

    use super::{ClusterStatus, Tone};

    const NOW: i64 = 1_780_272_000_000_000_000;

    /// An answer for a window that ended `seconds` ago, without incidents.
    fn answer(seconds: i64, age_s: Option<f64>, quorum_met: bool) -> Outliers {
        let to = Nanos::new(NOW).offset(-seconds * 1_000_000_000);
        Outliers {
            cluster: None,
            window: AnswerWindow {
                from: String::new(),
                to: to.to_string(),
                seconds: 3_600.0,
            },
            outliers: Vec::new(),
            conditions: Vec::new(),
            truncated: false,
            next_cursor: None,
            data_quality: DataQuality {
                ranks_reporting: 4,
                ranks_expected: 4,
                coverage: Some(1.0),
                last_event_age_s: age_s,
                quorum_met,
                note: None,
            },
        }
    }

    fn status(answer: &Outliers) -> ClusterStatus {
        ClusterStatus::new(&[], answer, Nanos::new(NOW))
    }

    #[test]
    fn a_cluster_with_insufficient_data_is_not_healthy() {
        assert_eq!(status(&answer(0, Some(1.0), true)).tone, Tone::Good);
        for unknown in [
            status(&answer(0, None, false)),
            status(&answer(0, Some(61.0), true)),
            status(&answer(0, Some(1.0), false)),
        ] {
            assert_eq!(
                (unknown.tone, unknown.summary.as_str()),
                (Tone::Idle, "Unknown")
            );
            assert!(unknown.caveat.is_some());
        }
    }

    #[test]
    fn a_window_that_ends_with_old_events_is_stale() {
        let old = status(&answer(300, Some(0.0), true));
        assert_eq!((old.tone, old.is_stale), (Tone::Idle, true));
        let caveat = old.caveat.unwrap().replace('\u{a0}', " ");
        assert_eq!(caveat, "stale: last event 5 min ago");
    }
}
