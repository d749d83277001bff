//! Labels of a measured process.

use fleet_agent_core::event::Started;
use fleet_agent_core::measurement::Attribute;
use fleet_agent_sources::placement::Placement;
use fleet_proto::attribute;

/// Returns the attributes of a rank.
pub(super) fn of_rank(started: &Started, placement: Option<&Placement>) -> Vec<Attribute> {
    let labels = &started.labels;
    let mut attributes = vec![
        Attribute::number("process.pid", started.process.pid),
        Attribute::number(attribute::FLEET_RANK, started.process.rank),
    ];
    add(
        &mut attributes,
        attribute::GPU_UUID,
        labels.gpu_uuid.as_ref(),
    );
    add_place(
        &mut attributes,
        [&labels.job, &labels.pod, &labels.namespace],
        placement,
    );
    attributes
}

/// Returns the attributes of a process without a rank.
pub(super) fn of_process(pid: u32, placement: Option<&Placement>) -> Vec<Attribute> {
    let mut attributes = vec![Attribute::number("process.pid", pid)];
    if let Some(place) = placement {
        add_place(
            &mut attributes,
            [&place.job, &place.pod, &place.namespace],
            placement,
        );
    }
    attributes
}

fn add_place(
    attributes: &mut Vec<Attribute>,
    [job, pod, namespace]: [&Option<String>; 3],
    placement: Option<&Placement>,
) {
    let [job_key, ..] = attribute::JOB;
    add(attributes, job_key, job.as_ref());
    add(attributes, attribute::POD, pod.as_ref());
    add(attributes, attribute::NAMESPACE, namespace.as_ref());
    let container = placement.and_then(|place| place.container.as_ref());
    add(attributes, "container.id", container);
}

fn add(attributes: &mut Vec<Attribute>, key: &'static str, value: Option<&String>) {
    attributes.extend(value.map(|value| Attribute::text(key, value.clone())));
}
