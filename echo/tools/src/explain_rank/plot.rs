//! Plot of the lag of a rank, laid out from the answer alone.

use echo_core::stats::quantile;
use echo_core::text::decimal;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Explanation;
use super::lag_series::LagPoint;
use crate::outlier::Outlier;
use crate::picture::figure::{Axis, Figure, Legend, Series, Tooltip};
use crate::picture::ticks;

/// Half the width of the band, in robust standard deviations of the peers.
const BAND_SIGMAS: f64 = 3.0;

/// Quantile of the band that the axis must show. With all blocks, one outlier block, as during the
/// start of a job, would flatten everything else.
const USUAL_SHARE: f64 = 0.9;

/// Maximum length of a name in the title, in characters.
const MAX_NAME: usize = 24;

/// Minimum time span of the plot, seconds.
const MIN_SECONDS: f64 = 1.0;

/// Lays out the figure of an answer.
pub(super) fn figure(answer: &Explanation) -> Figure {
    let series = &answer.lag_series;
    let time = TimeScale::from_answer(answer);
    let at = |point: &LagPoint| time.seconds(&point.time);
    let line = segments(&series.points, |point| Some((at(point)?, point.lag_ms?)));
    let band = segments(&series.points, |point| {
        point.lag_ms?;
        Some((at(point)?, point.peers_sigma_ms? * BAND_SIGMAS))
    });
    let band: Series = band.into_iter().filter(|part| part.len() > 1).collect();
    let marked = answer.incidents.iter();
    let tooltip = |point: &LagPoint| {
        Some(Tooltip {
            at: at(point)?,
            text: format!("{}: lag {} ms", point.time, decimal(point.lag_ms?, 2)),
        })
    };
    let shown = line.iter().flatten().map(|(_, lag)| *lag);
    let halves: Vec<f64> = band.iter().flatten().map(|(_, half)| *half).collect();
    let usual = quantile(&halves, USUAL_SHARE).unwrap_or(0.0);
    let unit = match series.signal {
        Some("arrival") => "lag, ms per operation",
        _ => "lag, ms per iteration",
    };
    Figure {
        title: title(answer),
        description: description(answer),
        value: ticks::values(unit, shown.chain([-usual, usual])),
        spans: marked.filter_map(|one| time.span(&one.outlier)).collect(),
        tooltips: series.points.iter().filter_map(tooltip).collect(),
        legend: Legend {
            line: format!(
                "lag of rank {} behind the median of its peers",
                answer.who.rank
            ),
            band: "peers: \u{b1} 3 robust standard deviations",
            spans: "incident open",
        },
        message: line.is_empty().then(|| no_data_message(answer).to_owned()),
        time: time.axis(),
        line,
        band,
    }
}

/// Time axis: the span of the points, or the window when there are none.
struct TimeScale {
    from: Timestamp,
    seconds: f64,
}

impl TimeScale {
    fn from_answer(answer: &Explanation) -> Self {
        let points = &answer.lag_series.points;
        let (first, last) = points.first().zip(points.last()).map_or(
            (answer.window.from.as_str(), answer.window.to.as_str()),
            |(first, last)| (first.time.as_str(), last.time.as_str()),
        );
        let from = first.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let mut scale = Self { from, seconds: 0.0 };
        scale.seconds = scale.seconds(last).unwrap_or(0.0).max(MIN_SECONDS);
        scale
    }

    /// Seconds after the start of the axis.
    fn seconds(&self, time: &str) -> Option<f64> {
        let time: Timestamp = time.parse().ok()?;
        Some(time.duration_since(self.from).as_secs_f64())
    }

    /// Part of the axis during which an incident was open.
    fn span(&self, incident: &Outlier) -> Option<(f64, f64)> {
        let from = self.seconds(&incident.lifecycle.first_seen)?;
        let to = match (&incident.lifecycle.cleared_at, incident.lifecycle.state) {
            (Some(cleared), _) => self.seconds(cleared)?,
            (None, "open") => self.seconds,
            (None, _) => self.seconds(&incident.lifecycle.last_seen)?,
        };
        let (from, to) = (from.max(0.0), to.min(self.seconds));
        (from < to).then_some((from, to))
    }

    fn axis(&self) -> Axis {
        let length = SignedDuration::from_secs_f64(self.seconds);
        let to = self.from.checked_add(length).unwrap_or(self.from);
        let (first, last) = (self.from.as_second(), to.as_second());
        let (times, step) = ticks::times(first, last);
        let day = format_time(first, "%Y-%m-%d");
        let is_one_day = day == format_time(last, "%Y-%m-%d");
        let form = match step {
            86_400.. => "%Y-%m-%d",
            _ if !is_one_day => "%m-%d %H:%M:%S",
            60.. => "%H:%M",
            _ => "%H:%M:%S",
        };
        let tick = |second: i64| {
            let time = Timestamp::from_second(second).ok()?;
            let position = time.duration_since(self.from).as_secs_f64();
            (position >= 0.0).then(|| (position, format_time(second, form)))
        };
        Axis {
            label: if is_one_day {
                format!("time, UTC, on {day}")
            } else {
                "time, UTC".to_owned()
            },
            from: 0.0,
            to: self.seconds,
            ticks: times.into_iter().filter_map(tick).collect(),
        }
    }
}

fn format_time(second: i64, form: &str) -> String {
    let time = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(TimeZone::UTC).strftime(form).to_string()
}

/// Splits the points into runs of known values.
fn segments(points: &[LagPoint], point_of: impl Fn(&LagPoint) -> Option<(f64, f64)>) -> Series {
    let positions: Vec<Option<(f64, f64)>> = points.iter().map(point_of).collect();
    let parts = positions.split(Option::is_none);
    let known = parts.map(|part| part.iter().flatten().copied().collect::<Vec<_>>());
    known.filter(|part| !part.is_empty()).collect()
}

fn no_data_message(answer: &Explanation) -> &'static str {
    if answer.lag_series.points.is_empty() {
        "No data: the rank reported no block of collectives in this window."
    } else {
        "No data: the rank could not be compared with peers in any block."
    }
}

fn title(answer: &Explanation) -> String {
    let who = &answer.who;
    let job = who
        .job
        .as_deref()
        .map(|job| format!(", job {}", shorten(job)));
    format!(
        "Lag of rank {} on {} in cluster {}{}",
        who.rank,
        shorten(&who.node_id),
        shorten(&answer.cluster),
        job.unwrap_or_default()
    )
}

/// Shortens a name that is too long for a title.
fn shorten(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(MAX_NAME - 1).collect();
    short.push('\u{2026}');
    short
}

fn description(answer: &Explanation) -> String {
    let points = &answer.lag_series.points;
    let known = points.iter().filter_map(|point| point.lag_ms);
    let drawn = match (points.first(), points.last(), known.clone().count()) {
        (Some(first), Some(last), n @ 1..) => format!(
            "{n} points from {} to {}, between {} and {} ms.",
            first.time,
            last.time,
            decimal(known.clone().fold(f64::INFINITY, f64::min), 2),
            decimal(known.fold(f64::NEG_INFINITY, f64::max), 2),
        ),
        _ => no_data_message(answer).to_owned(),
    };
    format!("{} {drawn}", answer.summary)
}

#[cfg(test)]
mod tests;
