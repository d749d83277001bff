//! Ranks whose operations lack their times on the GPU. They are compared by the other operations, and
//! not at all where most are missing, so who reads a verdict has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::ids::{ClusterId, CommId, JobId, Rank};
use echo_core::model::event::{Block, Event, Reading, Source};
use echo_core::text::decimal;
use echo_core::units::Window;
use echo_store::EventQuery;
use fleet_proto::metric;

use crate::ToolError;
use crate::scope::Scope;

/// Time at the end of the window that is looked at.
const SPAN: Duration = Duration::from_mins(1);

/// Maximum number of blocks, the latest.
const MAX_BLOCKS: usize = 4_000;

/// Number of operations of a rank from which on a share of them tells something.
const LEAST_OPERATIONS: f64 = 100.0;

/// Share of lost times that is worth a note.
const LEAST_LOST: f64 = 0.01;

/// Maximum number of ranks in the note.
const MAX_NAMED: usize = 3;

/// Operations of one rank.
#[derive(Debug, Clone, Copy, Default)]
struct Operations {
    all: f64,
    timed: f64,
}

type JobKey = (ClusterId, Option<JobId>);

/// Returns a note about the ranks that lost the times of more than 1 % of their operations at the end of
/// the window.
pub(crate) async fn note(scope: &Scope<'_>) -> Result<Option<String>, ToolError> {
    let Some((_, last)) = scope.presence().await?.span() else {
        return Ok(None);
    };
    let to = last.offset(1);
    let Some(window) = Window::new(to.before(SPAN), to) else {
        return Ok(None);
    };
    let query = EventQuery {
        window,
        cluster: scope.cluster.clone(),
        node: None,
        rank: None,
        op: None,
        metric: metric::DURATION.parse().ok(),
        limit: MAX_BLOCKS,
        cursor: None,
    };
    let page = scope.context.store.events(query).await?;
    let events: Vec<&Event> = page.events.iter().map(|stored| &stored.event).collect();
    let lost = lost(&events);
    Ok((!lost.is_empty()).then(|| sentence(&lost)))
}

/// Shares of lost times by rank, largest first. Of some operations, such as broadcasts, no rank has
/// times; of each communicator, the rank with the most tells which ones have them.
fn lost(events: &[&Event]) -> Vec<(Rank, f64)> {
    let mut comms: BTreeMap<(JobKey, CommId), BTreeMap<Rank, Operations>> = BTreeMap::new();
    for event in events {
        let Some((block, rank, operations)) = operations(event) else {
            continue;
        };
        let job = (event.origin.cluster.clone(), event.origin.job.clone());
        let ranks = comms.entry((job, block.comm)).or_default();
        let own = ranks.entry(rank).or_default();
        own.all += operations.all;
        own.timed += operations.timed;
    }
    // Times that there could be, and those that there are.
    let mut by_rank: BTreeMap<(JobKey, Rank), Operations> = BTreeMap::new();
    for ((job, _), ranks) in comms {
        let shares = ranks.values().map(|own| own.timed / own.all);
        let most = shares.fold(0.0, f64::max);
        for (rank, own) in ranks {
            let sum = by_rank.entry((job.clone(), rank)).or_default();
            sum.all += most * own.all;
            sum.timed += own.timed;
        }
    }
    let known = by_rank
        .into_iter()
        .filter(|(_, own)| own.all >= LEAST_OPERATIONS);
    let shares = known.map(|((_, rank), own)| (rank, 1.0 - own.timed / own.all));
    let mut lost: Vec<(Rank, f64)> = shares.filter(|(_, share)| *share > LEAST_LOST).collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    lost
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the number of operations in a block is far below 2^53"
)]
fn operations(event: &Event) -> Option<(&Block, Rank, Operations)> {
    let block = event.block.as_ref()?;
    let is_transfer = matches!(block.op.as_ref()?.as_str(), "Send" | "Recv");
    let Reading::Histogram(summary) = event.reading else {
        return None;
    };
    let seqs = block.seqs?;
    let operations = Operations {
        all: (seqs.last() - seqs.first()) as f64 + 1.0,
        timed: summary.count as f64,
    };
    let is_of_gpu = block.source == Source::Device && !is_transfer;
    is_of_gpu.then_some((block, event.origin.rank?.rank(), operations))
}

fn sentence(lost: &[(Rank, f64)]) -> String {
    let named = lost.iter().take(MAX_NAMED);
    let named =
        named.map(|(rank, share)| format!("{} % of rank {rank}", decimal(100.0 * share, 0)));
    let named: Vec<String> = named.collect();
    let more = match lost.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and of {more} more ranks"),
    };
    format!(
        "times of GPU operations are lost ({}{more}), and ranks are compared by the others: `fleet-echo host check` \
         has the reason",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use echo_core::ids::{CommId, Rank};
    use echo_core::model::event::{Block, Event, Reading, SeqRange, Source, Summary};
    use fleet_proto::metric;

    use super::{lost, sentence};
    use crate::fixture::{at, origin};

    /// Ten blocks of 64 operations of a rank, so many of which have times.
    fn blocks(rank: u32, timed: u64) -> impl Iterator<Item = Event> {
        (0..10).map(move |block: u64| Event {
            timestamp: at(i64::try_from(block).unwrap()),
            start: None,
            origin: origin(rank),
            metric: metric::DURATION.parse().unwrap(),
            unit: Arc::from("ms"),
            reading: Reading::Histogram(Summary {
                count: timed,
                sum: 10.0,
                min: Some(0.1),
                max: None,
            }),
            block: Some(Block {
                comm: CommId::new(7),
                op: Some("AllReduce".parse().unwrap()),
                seqs: SeqRange::new(64 * block, 64 * block + 63),
                role: None,
                iterations: None,
                anchor: None,
                source: Source::Device,
            }),
            attrs: Arc::from("{}"),
            samples: Vec::new(),
        })
    }

    #[test]
    fn the_rank_that_lost_times_is_named_with_its_share() {
        let events: Vec<Event> = blocks(0, 64).chain(blocks(1, 29)).collect();
        let found = lost(&events.iter().collect::<Vec<_>>());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, Rank::new(1));
        let note = sentence(&found);
        assert!(
            note.starts_with("times of GPU operations are lost (55 % of rank 1)"),
            "{note}"
        );
    }

    #[test]
    fn operations_of_which_no_rank_has_times_are_not_lost() {
        let events: Vec<Event> = (0..4).flat_map(|rank| blocks(rank, 50)).collect();
        assert_eq!(lost(&events.iter().collect::<Vec<_>>()), []);
    }
}
