//! Chrome traces of the `PyTorch` profiler (Kineto), one per rank.
//!
//! Kernels of collectives are recognised by their names: `ncclDevKernel_...` and, before NCCL 2.19,
//! `ncclKernel_...`; RCCL uses the same. Times are of the clock of the host. The events are visited
//! one by one, so that a trace needs the memory of its bytes and of its collectives. `damaged` reads a
//! trace that is not JSON, or has values of other types.

mod damaged;
mod marks;

use std::borrow::Cow;
use std::fmt;

use fleet_agent_core::event::Op;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::flight_recorder::parse_ranks;
use crate::kernel::{KernelKind, short_name};
use crate::kineto::marks::{Marks, Place};
use crate::rank_name::named_rank;
use crate::trace::{Collective, RankTrace, parse_op};

/// Reads a trace. A word in `file_name` tells the rank where the content does not.
pub fn read(bytes: &[u8], file_name: &str) -> Result<RankTrace, serde_json::Error> {
    let mut whole = Events::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let events = match deserializer.deserialize_map(TopLevel(&mut whole)) {
        Ok(()) => whole,
        Err(error) => damaged::read(bytes).ok_or(error)?,
    };
    let mut trace = events.finish();
    trace.rank = trace.rank.or_else(|| named_rank(file_name));
    Ok(trace)
}

/// What was read so far.
#[derive(Default)]
struct Events {
    trace: RankTrace,
    marks: Marks,
    unknown: Vec<UnknownKernel>,
}

/// Kernel whose name does not tell its operation.
struct UnknownKernel {
    stream: Place,
    kind: KernelKind,
    /// Its name, if its kind is unclear.
    name: Option<String>,
    kernel: Collective,
    ranks: Option<Vec<u32>>,
    correlation: Option<i64>,
}

struct TopLevel<'t>(&'t mut Events);

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
                "traceEvents" => map.next_value_seed(EventList(self.0))?,
                "distributedInfo" => {
                    let info: DistributedInfo = map.next_value()?;
                    let trace = &mut self.0.trace;
                    (trace.rank, trace.world_size) = (info.rank, info.world_size);
                    for group in info.pg_config {
                        set_group(trace, group);
                    }
                }
                "deviceProperties" => {
                    let devices: Vec<DeviceProperties> = map.next_value()?;
                    let names = devices.into_iter().filter_map(|device| device.name);
                    self.0.trace.gpu_model = names.into_iter().next();
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn set_group(trace: &mut RankTrace, group: GroupConfig) {
    if let (Some(name), Some(ranks)) = (group.pg_name, group.ranks) {
        trace.groups.insert(name, ranks.list());
    }
}

struct EventList<'t>(&'t mut Events);

impl<'de> DeserializeSeed<'de> for EventList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EventList<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<TraceEvent<'de>>()? {
            self.0.add(event);
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
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
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
    stream: Option<Value>,
    #[serde(default)]
    correlation: Option<i64>,
}

impl Events {
    /// Adds the event if it is a kernel or its launch, a step or a marked operation.
    fn add(&mut self, event: TraceEvent<'_>) {
        if event.ph != "X" {
            return;
        }
        if event.cat == "user_annotation" && event.name.starts_with("ProfilerStep") {
            self.trace.n_steps += 1;
        } else if matches!(&*event.cat, "gpu_user_annotation" | "user_annotation") {
            self.add_marked(&event);
        } else if matches!(&*event.cat, "cuda_runtime" | "cuda_driver") {
            self.add_launch(&event);
        } else if event.cat.eq_ignore_ascii_case("kernel") {
            self.add_kernel(event);
        }
    }

    /// Keeps a span such as `nccl:all_to_all`, which the framework put over its kernels.
    fn add_marked(&mut self, event: &TraceEvent<'_>) {
        if let Some(op) = event.name.strip_prefix("nccl:").and_then(parse_op) {
            let start_ns = nanos(event.ts);
            let end_ns = start_ns.saturating_add(nanos(event.dur));
            self.marks.add_span(event.place(), (start_ns, end_ns), op);
        }
    }

    fn add_launch(&mut self, event: &TraceEvent<'_>) {
        let correlation = event.args.as_ref().and_then(|args| args.correlation);
        if let Some(correlation) = correlation.filter(|_| event.name.contains("Launch")) {
            let start_ns = nanos(event.ts);
            self.marks.add_launch(correlation, event.place(), start_ns);
        }
    }

    fn add_kernel(&mut self, event: TraceEvent<'_>) {
        let duration_ns = nanos(event.dur);
        let kind = KernelKind::of(&event.name);
        if kind == KernelKind::Computation {
            let busy_ns = self.trace.busy_ns.get_or_insert(0);
            *busy_ns = busy_ns.saturating_add(duration_ns);
            return;
        }
        let stream = event.place();
        let name = (kind == KernelKind::Unclear).then(|| short_name(&event.name).to_owned());
        let args = event.args.unwrap_or_default();
        let by_framework = args.collective.as_deref().map(parse_op);
        let group = match args.group {
            Some(group) => group.into_owned(),
            // Before PyTorch named groups, a group had a stream of its own on all ranks alike.
            None => format!("stream {}", args.stream.unwrap_or_default()),
        };
        let ranks = args.ranks.map(Ranks::list);
        let kernel = Collective {
            group,
            seq: args.seq.and_then(|seq| u64::try_from(seq).ok()),
            op: Op::AllReduce,
            size: args.elements.unwrap_or(0),
            start_ns: Some(nanos(event.ts)),
            duration_ns,
        };
        match (by_framework, kind) {
            (Some(Some(op)), _) | (_, KernelKind::Collective(op)) => {
                self.push(Collective { op, ..kernel }, ranks);
            }
            // The framework says that it is a transfer.
            (Some(None), _) => self.trace.n_transfers += 1,
            (None, _) => self.unknown.push(UnknownKernel {
                stream,
                kind,
                name,
                kernel,
                ranks,
                correlation: args.correlation,
            }),
        }
    }

    /// Whether the collectives have numbers, so that none is taken for another one.
    fn are_numbered(&self) -> bool {
        let last = self.trace.collectives.last();
        self.unknown.is_empty() && last.is_some_and(|one| one.seq.is_some())
    }

    fn push(&mut self, collective: Collective, ranks: Option<Vec<u32>>) {
        if let Some(ranks) = ranks {
            let groups = &mut self.trace.groups;
            groups.entry(collective.group.clone()).or_insert(ranks);
        }
        self.trace.collectives.push(collective);
    }

    /// Returns the trace, with the operations of kernels whose names do not tell them.
    fn finish(mut self) -> RankTrace {
        self.marks.sort();
        let unknown = std::mem::take(&mut self.unknown);
        let has_unknown = !unknown.is_empty();
        for one in unknown {
            let half_ns = one.kernel.duration_ns / 2;
            let middle_ns = one.kernel.start_ns.unwrap_or(0).saturating_add(half_ns);
            let marked = self.marks.op(&one.stream, middle_ns, one.correlation);
            let op = match (marked, one.kind) {
                (Some(op), _) => op,
                (None, KernelKind::Generic) => self.trace.assumed_op(),
                (None, _) => {
                    match one.name {
                        Some(name) => self.trace.add_unclear(&name, one.kernel.duration_ns),
                        None => self.trace.n_transfers += 1,
                    }
                    continue;
                }
            };
            self.push(Collective { op, ..one.kernel }, one.ranks);
        }
        if has_unknown {
            self.trace.collectives.sort_by_key(|one| one.start_ns);
        }
        self.trace
    }
}

impl TraceEvent<'_> {
    fn place(&self) -> Place {
        (self.pid.to_string(), self.tid.to_string())
    }
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
    fn a_kernel_of_a_collective_that_the_framework_calls_otherwise_is_what_its_name_says() {
        let read = trace(
            r#"{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_u8(x)","ts":1,"dur":3,"args":{"Collective name":"barrier"}}"#,
        );
        assert_eq!((read.collectives.len(), read.n_transfers), (1, 0));
    }

    #[test]
    fn transfers_that_an_all_to_all_launched_are_one() {
        let kernel = |correlation: u32| {
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)","pid":0,"tid":7,"ts":90,"dur":3,"args":{{"correlation":{correlation}}}}}"#
            )
        };
        let launch = |correlation: u32, us: u32| {
            format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":50,"tid":51,"ts":{us},"dur":1,"args":{{"correlation":{correlation}}}}}"#
            )
        };
        let span = r#"{"ph":"X","cat":"user_annotation","name":"nccl:all_to_all","pid":50,"tid":51,"ts":10,"dur":5}"#;
        let events = [kernel(1), kernel(2), launch(1, 12), launch(2, 16)].join(",");
        let read = trace(&format!("{events},{span}"));
        assert_eq!((read.collectives.len(), read.n_transfers), (1, 1));
        assert_eq!(read.collectives.first().unwrap().op, Op::AllToAll);
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
