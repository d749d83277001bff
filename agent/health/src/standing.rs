//! Standing of this host: the latest statement of Echo about it.

use std::time::Duration;

use fleet_agent_export::statement::Statement;
use fleet_proto::policy::Culprit;
use serde::Serialize;
use tokio::sync::watch;

/// Age from which a statement is no longer used. An agent gets one each minute at least.
const MAX_AGE: Duration = Duration::from_mins(3);

/// Maximum length of a message, in bytes: what node-problem-detector keeps.
pub const MAX_MESSAGE: usize = 80;

/// Reads the standing of this host. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Standings {
    statements: watch::Receiver<Option<Statement>>,
    node: String,
}

impl Standings {
    /// Creates a reader of statements, of which it uses those about `node`.
    pub fn new(statements: watch::Receiver<Option<Statement>>, node: &str) -> Self {
        let node = node.to_owned();
        Self { statements, node }
    }

    /// Returns the standing now.
    pub fn now(&self) -> Standing {
        let unknown = |why: String| Standing::Unknown(why);
        let statement = self.statements.borrow();
        let Some(statement) = &*statement else {
            return unknown("Echo has not answered yet".to_owned());
        };
        let age = statement.received.elapsed();
        if age > MAX_AGE {
            return unknown(format!("Echo has not answered for {} s", age.as_secs()));
        }
        let Some(culprits) = &statement.culprits else {
            return unknown("Echo reports no culprits to agents".to_owned());
        };
        let own = culprits.culprits.iter();
        let own = own.filter(|culprit| culprit.node_id == self.node);
        Standing::Culprits(own.cloned().collect())
    }

    /// Waits for the next statement; for ever if there are no more.
    pub async fn changed(&mut self) {
        if self.statements.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Standing of this host.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Echo makes no statement, for this reason.
    Unknown(String),
    /// Culprits on this host, most severe first; none on a healthy one.
    Culprits(Vec<Culprit>),
}

impl Standing {
    /// Returns the kind of the standing.
    pub fn state(&self) -> State {
        match self {
            Self::Unknown(_) => State::Unknown,
            Self::Culprits(culprits) if culprits.is_empty() => State::Ok,
            Self::Culprits(_) => State::Straggler,
        }
    }

    /// Describes the standing in at most 80 bytes.
    pub fn message(&self) -> String {
        let text = match self {
            Self::Unknown(why) => why.clone(),
            Self::Culprits(culprits) => match culprits.as_slice() {
                [] => "no straggler on this host".to_owned(),
                [culprit] => describe(culprit),
                [culprit, others @ ..] => format!("{} +{}", describe(culprit), others.len()),
            },
        };
        shorten(text)
    }
}

/// Kind of a standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No culprit.
    Ok,
    /// At least one culprit.
    Straggler,
    /// No statement.
    Unknown,
}

/// Describes a culprit in one line.
pub(crate) fn describe(culprit: &Culprit) -> String {
    let Culprit {
        incident_id,
        rank,
        class,
        severity,
        lag_ms,
        ..
    } = culprit;
    format!("rank {rank} is {lag_ms:.1} ms late ({class}, {severity}), incident {incident_id}")
}

/// Cuts a text at the maximum length of a message.
pub(crate) fn shorten(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_MESSAGE));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet_agent_export::statement::Statement;
    use fleet_proto::policy::Culprit;

    use super::{MAX_MESSAGE, Standing, State};
    use crate::sample::{culprit, standings, statement};

    #[tokio::test(start_paused = true)]
    async fn a_standing_needs_a_statement_of_the_last_minutes() {
        let (sender, standings) = standings(None);
        assert_eq!(standings.now().message(), "Echo has not answered yet");
        sender.send_replace(Some(statement(&[culprit("GPU-1")])));
        assert_eq!(standings.now().state(), State::Straggler);
        tokio::time::advance(Duration::from_secs(179)).await;
        assert_eq!(standings.now().state(), State::Straggler);
        tokio::time::advance(Duration::from_secs(2)).await;
        let expected = "Echo has not answered for 181 s";
        assert_eq!(standings.now().message(), expected);
        sender.send_replace(Some(statement(&[])));
        assert_eq!(standings.now().state(), State::Ok);
        sender.send_replace(Some(Statement::new(None)));
        assert_eq!(standings.now().state(), State::Unknown);
    }

    #[test]
    fn culprits_of_other_nodes_do_not_count() {
        let other = Culprit {
            node_id: "node-4".to_owned(),
            ..culprit("GPU-1")
        };
        let (_sender, standings) = standings(Some(statement(&[other])));
        assert_eq!(standings.now().state(), State::Ok);
    }

    #[test]
    fn a_message_describes_the_worst_culprit_in_eighty_bytes() {
        let one = Standing::Culprits(vec![culprit("GPU-1")]);
        let expected = "rank 17 is 26.8 ms late (host, critical), incident 00000000000000ab";
        assert_eq!(one.message(), expected);
        let two = Standing::Culprits(vec![culprit("GPU-1"), culprit("GPU-2")]);
        assert_eq!(two.message(), format!("{expected} +1"));
        let long = Culprit {
            incident_id: "\u{e9}".repeat(100),
            ..culprit("GPU-1")
        };
        let long = Standing::Culprits(vec![long]).message();
        assert!(
            (MAX_MESSAGE - 1..=MAX_MESSAGE).contains(&long.len()),
            "{long}"
        );
    }
}
