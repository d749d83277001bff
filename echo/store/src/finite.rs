//! Rejects NaN and infinite numbers: one of them corrupts every sum, median and sort that includes
//! it.

use echo_core::model::detector_output::{DetectorOutput, Finding, Incident};
use echo_core::model::event::{Event, EventBatch, Reading};
use echo_core::model::inputs::Inputs;

use crate::StoreError;

/// Accepts a batch in which all numbers are finite.
pub(super) fn check_batch(batch: &EventBatch) -> Result<(), StoreError> {
    for event in &batch.events {
        let whose = || format!("metric {}", event.metric);
        event_fields(event).try_for_each(|field| finite(field, whose))?;
    }
    Ok(())
}

/// Accepts detector output in which all numbers are finite.
pub(super) fn check_output(output: &DetectorOutput) -> Result<(), StoreError> {
    for incident in &output.incidents {
        let whose = || format!("incident {}", incident.id);
        incident_fields(incident).try_for_each(|field| finite(field, whose))?;
    }
    for lost in &output.lost {
        let whose = || format!("incident {}", lost.incident);
        finite(("iterations", lost.iterations), whose)?;
        finite(("lost_gpu_ms", lost.lost_gpu_ms), whose)?;
        let waited = lost.peer_wait_gpu_ms.unwrap_or(0.0);
        finite(("peer_wait_gpu_ms", waited), whose)?;
        finite(("saved_gpu_ms", lost.saved_gpu_ms), whose)?;
    }
    Ok(())
}

type Field = (&'static str, f64);

fn finite((what, value): Field, whose: impl Fn() -> String) -> Result<(), StoreError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(StoreError::NotFinite {
        what,
        whose: whose(),
        value,
    })
}

fn event_fields(event: &Event) -> impl Iterator<Item = Field> {
    let (value, summary) = match event.reading {
        Reading::Double(value) => (Some(value), None),
        Reading::Int(_) => (None, None),
        Reading::Histogram(summary) => (None, Some(summary)),
    };
    let block = event.block.as_ref();
    let fields = [
        ("value", value),
        ("sum", summary.map(|summary| summary.sum)),
        ("min", summary.and_then(|summary| summary.min)),
        ("max", summary.and_then(|summary| summary.max)),
        ("iterations", block.and_then(|block| block.iterations)),
        (
            "anchor_offset_ms",
            block
                .and_then(|block| block.anchor)
                .map(|anchor| anchor.offset_ms),
        ),
    ];
    let samples = event.samples.iter().map(|sample| ("sample", sample.value));
    fields
        .into_iter()
        .filter_map(|(what, value)| value.map(|value| (what, value)))
        .chain(samples)
}

fn incident_fields(incident: &Incident) -> impl Iterator<Item = Field> {
    let culprit = match &incident.finding {
        Finding::Culprit(culprit) => Some(culprit),
        Finding::Condition(_) => None,
    };
    let optional = [
        ("cleared_iteration", incident.cleared_iteration),
        ("lag_ms", culprit.map(|culprit| culprit.lag_ms)),
        ("z", culprit.map(|culprit| culprit.z)),
    ];
    [
        ("first_iteration", incident.first_iteration),
        ("raised_iteration", incident.raised_iteration),
        ("effect_ratio", incident.effect_ratio),
        ("period_ms", incident.period_ms),
        ("baseline_period_ms", incident.baseline.period_ms()),
        ("confidence", incident.confidence),
        ("stability", incident.stability),
    ]
    .into_iter()
    .chain(
        optional
            .into_iter()
            .filter_map(|(what, value)| value.map(|value| (what, value))),
    )
    .chain(
        incident
            .inputs
            .as_deref()
            .into_iter()
            .flat_map(input_fields),
    )
}

/// Inputs are stored as JSON, which cannot represent NaN or infinity either.
fn input_fields(inputs: &Inputs) -> impl Iterator<Item = Field> {
    let ranks = inputs.ranks.iter().flat_map(|one| {
        [
            ("inputs.caused", one.caused),
            ("inputs.usual", one.usual.unwrap_or(0.0)),
            ("inputs.z", one.z.unwrap_or(0.0)),
        ]
    });
    [
        ("inputs.center", inputs.center),
        ("inputs.sigma", inputs.sigma.unwrap_or(0.0)),
        ("inputs.limit", inputs.limit),
    ]
    .into_iter()
    .chain(ranks)
}
