//! The report as text: the answer first, then what it rests on.

use std::fmt;

use fleet_agent_core::printable::printable;
use fleet_hang::{Blocked, Hang, Kind, noun};

use crate::format::Format;
use crate::report::Report;

/// Maximum number of ranks, groups and files that a line of text lists.
const LISTED: usize = 16;
/// Maximum length of a name that a file gives, characters.
const MAX_NAME: usize = 80;
/// Maximum length of a sentence, which may contain such names, characters.
const MAX_SENTENCE: usize = 400;

impl Report {
    /// Returns the lines of the verdict: why operations do not end, or why no rank is judged. Empty if
    /// neither is known, so that the detector of an instance decides.
    pub fn verdict(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            if let Some(hang) = &self.hang {
                write_hang(f, hang)?;
            }
            if let Some(refusal) = &self.refusal {
                writeln!(f, "  verdict  none: {refusal}")?;
            }
            Ok(())
        })
    }

    /// Returns the lines about the ranks that arrive last, the files, and what the format cannot show.
    pub fn evidence(&self) -> impl fmt::Display {
        fmt::from_fn(|f| {
            write_arrival(f, self)?;
            write_files(f, self)?;
            for (at, limit) in self.cannot_show.iter().enumerate() {
                let label = if at == 0 { "hidden " } else { "       " };
                writeln!(f, "  {label}  {limit}")?;
            }
            Ok(())
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.verdict(), self.evidence())
    }
}

fn write_arrival(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    if let Some(lateness) = report.lateness() {
        writeln!(f, "  arrival  {lateness}")
    } else if report.waiting.is_some() && !report.missing_ranks.is_empty() {
        let missing = noun(&report.missing_ranks);
        writeln!(
            f,
            "  arrival  of the ranks with a file none is late; a late one may be {missing}, without a file"
        )
    } else {
        Ok(())
    }
}

fn write_files(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let Report {
        format,
        files,
        world_size,
        ..
    } = report;
    writeln!(f, "  files    {format}, {files} of {world_size} ranks")?;
    if !report.missing_ranks.is_empty() {
        writeln!(f, "           no file of {}", noun(&report.missing_ranks))?;
    }
    for note in &report.notes {
        writeln!(f, "           {note}")?;
    }
    for one in report.skipped.iter().take(LISTED) {
        writeln!(f, "           not read: {}", one.reason)?;
    }
    if report.skipped.len() > LISTED {
        let more = report.skipped.len() - LISTED;
        writeln!(f, "           not read: {more} more")?;
    }
    if let Some(operations) = operations(report) {
        writeln!(f, "           {operations}")?;
    }
    if let Some(advance) = report.advance.as_ref().filter(|_| report.refusal.is_none()) {
        writeln!(f, "           {}", printable(advance, MAX_SENTENCE))?;
    }
    Ok(())
}

/// Returns how many operations the files have; `None` for recordings, whose events are not counted.
fn operations(report: &Report) -> Option<String> {
    let is_without_times = matches!(
        report.format,
        Format::FlightRecorder | Format::RasStatus | Format::Watchdog
    );
    match (report.format, report.collectives, report.iterations) {
        (Format::Recording, ..) => None,
        (_, 0, _) if is_without_times => Some("operations without times".to_owned()),
        (_, collectives, iterations) => Some(format!(
            "{collectives} collective operations, {} transfers{}",
            report.transfers,
            iterations.map_or_else(String::new, |n| format!(", {n} iterations"))
        )),
    }
}

fn write_hang(f: &mut fmt::Formatter<'_>, hang: &Hang) -> fmt::Result {
    for one in hang.findings.iter().take(LISTED) {
        match one.kind {
            // The operations follow.
            Kind::DidNotJoin => {
                writeln!(f, "  verdict  hang: did not join {}", noun(&one.ranks))?;
            }
            _ => writeln!(
                f,
                "  verdict  hang: {}",
                printable(&one.sentence, MAX_SENTENCE)
            )?,
        }
    }
    if !hang.links.is_empty() {
        writeln!(
            f,
            "           behind because they wait themselves: {}",
            noun(&hang.links)
        )?;
    }
    let waits = |one: &&Blocked| !one.behind.is_empty() || !one.unobserved.is_empty();
    let waiting: Vec<&Blocked> = hang.blocked.iter().filter(waits).collect();
    for one in waiting.iter().take(LISTED) {
        writeln!(f, "           {}", sentence(one))?;
    }
    if waiting.len() > LISTED {
        writeln!(
            f,
            "           and {} more communicators",
            waiting.len() - LISTED
        )?;
    }
    Ok(())
}

fn sentence(one: &Blocked) -> String {
    let name = |text: &str| printable(text, MAX_NAME);
    let purpose = if one.purpose.is_empty() {
        String::new()
    } else {
        format!(" ({})", name(&one.purpose))
    };
    let op = if one.op.is_empty() {
        "operation"
    } else {
        one.op.as_str()
    };
    let (op, group) = (name(op), name(&one.group));
    let absent = [&one.behind[..], &one.unobserved].concat();
    if one.is_transfer {
        return format!(
            "{op} {} of communicator {group}{purpose}: {} waits for {}, which did not enqueue the other half",
            one.seq,
            noun(&one.waiting),
            noun(&absent)
        );
    }
    format!(
        "{op} of communicator {group}{purpose}: {} entered operation {}, {} did not",
        noun(&one.waiting),
        one.seq,
        noun(&absent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_file_do_not_control_the_terminal() {
        let text = sentence(&Blocked {
            group: "3\u{1b}[2J".to_owned(),
            purpose: "DATA\nverdict".to_owned(),
            op: "x".repeat(1_000),
            seq: 7,
            waiting: vec![0],
            behind: vec![1],
            ..Blocked::default()
        });
        assert!(
            text.len() < 300 && !text.contains(char::is_control),
            "{text}"
        );
    }
}
