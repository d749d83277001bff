//! Chrome traces of the `PyTorch` profiler (Kineto), one per rank.
//!
//! Kernels of collectives are recognised by their names: `ncclDevKernel_...` and, before NCCL 2.19,
//! `ncclKernel_...`; RCCL uses the same. Times are of the clock of the host. The events are visited
//! one by one, so that a trace needs the memory of its bytes and of its collectives.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::flight_recorder::{parse_ranks, trailing_number};
use crate::kernel::{is_nccl, kernel_op};
use crate::trace::{Collective, RankTrace, parse_op};

/// Reads a trace. `file_name` tells the rank where the content does not.
pub fn read(bytes: &[u8], file_name: &str) -> Result<RankTrace, serde_json::Error> {
    let mut trace = RankTrace::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.deserialize_map(TopLevel(&mut trace))?;
    trace.rank = trace.rank.or_else(|| trailing_number(file_name));
    Ok(trace)
}

struct TopLevel<'t>(&'t mut RankTrace);

#[derive(Deserialize)]
struct DistributedInfo {
    rank: Option<u32>,
    world_size: Option<u32>,
    #[serde(default)]
    pg_config: Vec<GroupConfig>,
}

#[derive(Deserialize)]
struct GroupConfig {
    pg_name: Option<String>,
    ranks: Option<Ranks>,
}

#[derive(Deserialize)]
struct DeviceProperties {
    name: Option<String>,
}

/// Ranks as a list, or as text that may be abbreviated.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ranks {
    List(Vec<u32>),
    Text(String),
}

impl Ranks {
    fn list(self) -> Vec<u32> {
        match self {
            Self::List(ranks) => ranks,
            Self::Text(text) => parse_ranks(&text),
        }
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a Chrome trace with traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "traceEvents" => map.next_value_seed(Events(self.0))?,
                "distributedInfo" => {
                    let info: DistributedInfo = map.next_value()?;
                    (self.0.rank, self.0.world_size) = (info.rank, info.world_size);
                    for group in info.pg_config {
                        if let (Some(name), Some(ranks)) = (group.pg_name, group.ranks) {
                            self.0.groups.insert(name, ranks.list());
                        }
                    }
                }
                "deviceProperties" => {
                    let devices: Vec<DeviceProperties> = map.next_value()?;
                    let names = devices.into_iter().filter_map(|device| device.name);
                    self.0.gpu_model = names.into_iter().next();
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Events<'t>(&'t mut RankTrace);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<TraceEvent<'de>>()? {
            add(self.0, event);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct TraceEvent<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(borrow, default)]
    args: Option<Args<'a>>,
}

#[derive(Default, Deserialize)]
struct Args<'a> {
    #[serde(borrow, default, rename = "Collective name")]
    collective: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "Process Group Name")]
    group: Option<Cow<'a, str>>,
    #[serde(default, rename = "Process Group Ranks")]
    ranks: Option<Ranks>,
    #[serde(default, rename = "In msg nelems")]
    elements: Option<u64>,
    #[serde(default, rename = "Seq")]
    seq: Option<i64>,
    #[serde(default)]
    stream: Option<serde_json::Value>,
}

/// Adds the event if it is a kernel or a step.
fn add(trace: &mut RankTrace, event: TraceEvent<'_>) {
    if event.ph != "X" {
        return;
    }
    if event.cat == "user_annotation" && event.name.starts_with("ProfilerStep") {
        trace.n_steps += 1;
    }
    if event.cat != "kernel" {
        return;
    }
    let duration_ns = nanos(event.dur);
    if !is_nccl(&event.name) {
        let busy_ns = trace.busy_ns.get_or_insert(0);
        *busy_ns = busy_ns.saturating_add(duration_ns);
        return;
    }
    let args = event.args.unwrap_or_default();
    let by_framework = args.collective.as_deref().and_then(parse_op);
    let Some(op) = by_framework.or_else(|| parse_op(kernel_op(&event.name))) else {
        trace.n_transfers += 1;
        return;
    };
    let group = match args.group {
        Some(group) => group.into_owned(),
        // Before PyTorch named groups, a group had a stream of its own on all ranks alike.
        None => format!("stream {}", args.stream.unwrap_or_default()),
    };
    if let Some(ranks) = args.ranks.map(Ranks::list) {
        trace.groups.entry(group.clone()).or_insert(ranks);
    }
    trace.collectives.push(Collective {
        group,
        seq: args.seq.and_then(|seq| u64::try_from(seq).ok()),
        op,
        size: args.elements.unwrap_or(0),
        start_ns: Some(nanos(event.ts)),
        duration_ns,
    });
}

/// Converts microseconds; what is not a time becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn nanos(us: f64) -> u64 {
    (us * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(event: &str) -> RankTrace {
        let text = format!(r#"{{"schemaVersion":1,"traceEvents":[{event}],"traceName":"x"}}"#);
        read(text.as_bytes(), "rank7.pt.trace.json").unwrap()
    }

    #[test]
    fn kernels_with_new_and_old_names_are_collectives() {
        for (name, group) in [
            (
                r#""ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)","args":{"stream":20,"Process Group Name":"3","Seq":5,"Collective name":"allreduce","Process Group Ranks":"[0, 7]"}"#,
                "3",
            ),
            (
                r#""ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)","args":{"stream":20}"#,
                "stream 20",
            ),
        ] {
            let event = format!(r#"{{"ph":"X","cat":"kernel","ts":2.5,"dur":1.25,"name":{name}}}"#);
            let read = trace(&event);
            let [one] = &read.collectives[..] else {
                panic!("{read:?}")
            };
            assert_eq!((one.group.as_str(), read.rank), (group, Some(7)));
            assert_eq!((one.start_ns, one.duration_ns), (Some(2_500), 1_250));
        }
    }

    #[test]
    fn other_kernels_are_computation_and_transfers_are_counted() {
        let read = trace(
            r#"{"ph":"X","cat":"kernel","name":"gemm","ts":1,"dur":3},
               {"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv(x)","ts":1,"dur":3,"args":{"Collective name":"send"}},
               {"ph":"X","cat":"cpu_op","name":"record_param_comms","ts":1,"dur":3,"args":{"Collective name":"allreduce"}},
               {"ph":"M","name":"process_name","pid":"x","args":{"name":"python"}}"#,
        );
        assert_eq!((read.busy_ns, read.n_transfers), (Some(3_000), 1));
        assert!(read.collectives.is_empty());
    }
}
