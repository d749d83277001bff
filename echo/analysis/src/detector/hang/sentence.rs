//! Sentences about hangs.

use echo_core::ids::Rank;

use crate::crash::{Crash, Doubt};
use crate::hang::{Hang, Standstill};

/// Maximum number of ranks that a sentence names; more are only counted.
const NAMED: usize = 8;

/// One sentence about a hang. `elsewhere` are the ranks that are missing from operations of other
/// communicators only.
pub(super) fn describe(hang: &Hang, elsewhere: &[Rank]) -> String {
    let n_ranks = hang.entered.len() + hang.missing.len();
    if let Some(crash) = &hang.crash {
        return crashed(crash, n_ranks);
    }
    let mut text = match &hang.standstill {
        Some(known) => standstill(hang, known, n_ranks),
        None => format!(
            "{} of {n_ranks} ranks entered operation {} of communicator {} and it {}: missing {}",
            hang.entered.len(),
            hang.seq,
            hang.comm,
            if hang.is_stall {
                "has not ended for seconds"
            } else {
                "does not end"
            },
            list(&hang.missing),
        ),
    };
    let remarks: [(&str, &[Rank]); 5] = [
        ("missing in other communicators: ", elsewhere),
        ("stopped by a signal or a debugger: ", &hang.stopped),
        ("silent since then: ", &hang.silent),
        ("not counted, silent since before then: ", &hang.unknown),
        ("waiting in other communicators: ", &hang.links),
    ];
    for (remark, ranks) in remarks.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
        text.push_str("; ");
        text.push_str(remark);
        text.push_str(&list(ranks));
    }
    text
}

fn crashed(crash: &Crash, n_ranks: usize) -> String {
    let exit = crash.end.exit;
    if let Some(Doubt::Alike(alike)) = crash.doubt {
        return format!("{alike} of {n_ranks} ranks ended {exit} at once");
    }
    let mut text = format!("the process of rank {} ended {exit}", crash.first);
    if !crash.later.is_empty() {
        let named = crash.later.iter().take(NAMED);
        let named: Vec<String> = named
            .map(|(rank, exit)| format!("rank {rank} {exit}"))
            .collect();
        text.push_str(", then ");
        text.push_str(&named.join(", "));
        let more = crash.later.len().saturating_sub(NAMED);
        if more > 0 {
            text.push_str(" and ");
            text.push_str(&more.to_string());
            text.push_str(" more");
        }
    }
    match &crash.doubt {
        Some(Doubt::Silent(ranks)) => {
            text.push_str("; it may not be the first: silent since before then: ");
            text.push_str(&list(ranks));
        }
        Some(Doubt::Order) => text.push_str("; it may not be the first: clocks of nodes differ"),
        Some(Doubt::Alike(_)) | None => {}
    }
    text
}

fn standstill(hang: &Hang, known: &Standstill, n_ranks: usize) -> String {
    let (seq, comm, missing) = (hang.seq, hang.comm, list(&hang.missing));
    let n_waiting = match known {
        Standstill::Orders(_) | Standstill::StuckGpus => n_ranks,
        Standstill::Unexplained | Standstill::Idle => hang.entered.len(),
    };
    let (gpus, are) = match hang.missing.len() {
        1 => ("GPU", "is"),
        _ => ("GPUs", "are"),
    };
    let reason = match known {
        Standstill::Orders(orders) => format!("; {orders}"),
        Standstill::StuckGpus => format!(
            "; the {gpus} of {missing} {are} in no NCCL operation, those of the other ranks are in one"
        ),
        Standstill::Idle => format!(
            "; not waiting: {missing}, whose {gpus} {are} in no NCCL operation, while those of the others are in one"
        ),
        Standstill::Unexplained if hang.missing.is_empty() => String::new(),
        Standstill::Unexplained => format!("; not waiting: {missing}"),
    };
    format!(
        "no rank has progressed beyond operation {seq} of communicator {comm}: {n_waiting} of {n_ranks} ranks wait for their GPUs{}{reason}",
        if hang.is_stall { " for seconds" } else { "" },
    )
}

fn list(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(NAMED);
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    if more > 0 {
        format!("{noun} {} and {more} more", names.join(", "))
    } else {
        format!("{noun} {}", names.join(", "))
    }
}
