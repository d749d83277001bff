//! Choice of the GPU that a process uses, from its memory on the GPUs and from its environment.
//! Pure.

use fleet_agent_sources::placement::Placement;

use crate::gpu::Gpu;

/// Returns the index of the GPU. `used` holds the GPUs on which the process has memory, with the
/// bytes.
pub(super) fn choose(gpus: &[Gpu], used: &[(u32, u64)], place: &Placement) -> Option<u32> {
    let allowed = allowed(gpus, place);
    match *used {
        [] => allowed,
        [(only, _)] => Some(only),
        // Processes also open contexts on GPUs that they do not work on, each of a few hundred
        // megabytes.
        _ => allowed
            .filter(|index| used.iter().any(|(one, _)| one == index))
            .or_else(|| {
                used.iter()
                    .max_by_key(|(_, bytes)| *bytes)
                    .map(|(index, _)| *index)
            }),
    }
}

/// GPU that the environment selects: the only visible one, else the one at the local rank, which is
/// how launchers assign GPUs.
fn allowed(gpus: &[Gpu], place: &Placement) -> Option<u32> {
    let all: Vec<&Gpu> = gpus.iter().collect();
    let in_container = match place.container_devices.as_deref() {
        // Values of the container runtime that mean no restriction here.
        None | Some("all" | "void" | "none") => all,
        // With a list of UUIDs or indices, the runtime exposes just these GPUs to the container.
        Some(list) => visible(&all, list),
    };
    let own = match place.process_devices.as_deref() {
        None => in_container,
        Some(list) => visible(&in_container, list),
    };
    if let [only] = *own {
        return Some(only.index);
    }
    let local_rank = usize::try_from(place.local_rank?).ok()?;
    own.get(local_rank).map(|gpu| gpu.index)
}

/// GPUs named by a list of indices and UUID prefixes, up to the first entry that names none, as
/// CUDA reads it.
fn visible<'a>(gpus: &[&'a Gpu], list: &str) -> Vec<&'a Gpu> {
    let named = list.split(',').map(|entry| named(gpus, entry.trim()));
    named.map_while(|gpu| gpu).collect()
}

fn named<'a>(gpus: &[&'a Gpu], entry: &str) -> Option<&'a Gpu> {
    if entry.starts_with("GPU-") {
        let is_it = |gpu: &&&Gpu| {
            gpu.uuid
                .as_deref()
                .is_some_and(|uuid| uuid.starts_with(entry))
        };
        let mut found = gpus.iter().filter(is_it);
        let first = found.next().copied();
        return first.filter(|_| found.next().is_none());
    }
    gpus.get(entry.parse::<usize>().ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus() -> Vec<Gpu> {
        let gpu = |index| Gpu {
            index,
            uuid: Some(format!("GPU-{index}aaa-bbbb")),
            model: None,
        };
        (0..4).map(gpu).collect()
    }

    fn place(
        container: Option<&str>,
        process: Option<&str>,
        local_rank: impl Into<Option<u32>>,
    ) -> Placement {
        Placement {
            local_rank: local_rank.into(),
            container_devices: container.map(str::to_owned),
            process_devices: process.map(str::to_owned),
            ..Placement::default()
        }
    }

    #[test]
    fn memory_on_one_gpu_decides() {
        let elsewhere = place(None, Some("0"), 0);
        assert_eq!(choose(&gpus(), &[(3, 10)], &elsewhere), Some(3));
    }

    #[test]
    fn of_several_gpus_the_allowed_one_is_chosen_else_the_fullest() {
        let used = [(0, 500), (2, 70_000), (3, 500)];
        assert_eq!(choose(&gpus(), &used, &place(None, None, 3)), Some(3));
        assert_eq!(choose(&gpus(), &used, &place(None, None, 1)), Some(2));
        assert_eq!(choose(&gpus(), &used, &place(None, None, None)), Some(2));
    }

    #[test]
    fn the_environment_decides_where_memory_is_unknown() {
        let chosen =
            |container, process, local| choose(&gpus(), &[], &place(container, process, local));
        assert_eq!(chosen(None, None, Some(2)), Some(2));
        assert_eq!(chosen(None, None, None), None);
        assert_eq!(chosen(None, None, Some(4)), None);
        assert_eq!(chosen(None, Some("3"), None), Some(3));
        assert_eq!(chosen(None, Some("3,1"), Some(1)), Some(1));
        assert_eq!(chosen(None, Some("GPU-2a"), None), Some(2));
        assert_eq!(
            chosen(Some("GPU-1aaa-bbbb,GPU-3aaa-bbbb"), Some("1"), None),
            Some(3)
        );
        assert_eq!(
            chosen(Some("GPU-1aaa-bbbb,GPU-3aaa-bbbb"), None, Some(0)),
            Some(1)
        );
        assert_eq!(chosen(Some("all"), None, Some(0)), Some(0));
    }

    #[test]
    fn a_device_list_ends_at_the_first_invalid_entry() {
        for list in ["-1,2", "", "9", "MIG-1", "GPU-", "GPU-x", "1x"] {
            assert_eq!(
                choose(&gpus(), &[], &place(None, Some(list), 0)),
                None,
                "{list}"
            );
        }
        assert_eq!(
            choose(&gpus(), &[], &place(None, Some("2,-1,1"), None)),
            Some(2)
        );
    }

    #[test]
    fn a_host_without_gpus_has_none() {
        assert_eq!(choose(&[], &[], &place(None, Some("0"), 0)), None);
    }
}
