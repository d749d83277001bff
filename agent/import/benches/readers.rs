//! Speed of reading traces of the `PyTorch` profiler, per core: bytes of JSON, and the same
//! unpacked from gzip first.
//!
//! The events have the shapes and shares of a real trace of two A100, in which 3 of 1,000 kernels
//! are of NCCL: of 100 events 36 are operators, 22 calls of the runtime, 32 arrows, 10 kernels.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write as _};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use fleet_import::kineto;

/// Number of groups of 100 events; about 24 MB of JSON.
const GROUPS: u64 = 1_000;
/// One kernel of NCCL per this many groups.
const GROUPS_PER_COLLECTIVE: u64 = 30;

const HEAD: &str = r#"{
  "schemaVersion": 1,
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 16, "pg_count": 1, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 16, "ranks": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]}], "nccl_version": "2.17.1"},
  "traceEvents": ["#;
const TAIL: &str = r#"
  {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}}
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms"
}"#;

/// Writes an event; `at` makes times and numbers differ.
fn event(text: &mut String, kind: u64, at: u64) {
    let written = match kind {
        0..36 => write!(
            text,
            r#"
  {{
    "ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: AddmmBackward0", "pid": 2910249, "tid": 2919752,
    "ts": 4458676{at:06}.655, "dur": 156.777,
    "args": {{
      "External id": {at},"Record function id": {at}, "Sequence number": 1080, "Fwd thread id": 1, "Ev Idx": {at}
    }}
  }},"#
        ),
        36..58 => write!(
            text,
            r#"
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 2910249, "tid": 2919752,
    "ts": 4458676{at:06}.421, "dur": 9.5,
    "args": {{
      "External id": {at}, "cbid": 211, "correlation": {at}
    }}
  }},"#
        ),
        58..90 => write!(
            text,
            r#"
  {{
    "ph": "f", "id": {at}, "pid": 0, "tid": 7, "ts": 4458676{at:06}.001,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},"#
        ),
        _ => write!(
            text,
            r#"
  {{
    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)", "pid": 0, "tid": 7,
    "ts": 4458676{at:06}.903, "dur": 1.984,
    "args": {{
      "External id": {at},
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {at},
      "registers per thread": 16,
      "shared memory": 0,
      "blocks per SM": 0.018519,
      "warps per SM": 0.037037,
      "grid": [2, 1, 1],
      "block": [64, 1, 1],
      "est. achieved occupancy %": 0
    }}
  }},"#
        ),
    };
    black_box(written.is_ok());
}

fn collective(text: &mut String, seq: u64) {
    let written = write!(
        text,
        r#"
  {{
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "pid": 0, "tid": 20,
    "ts": 4458676{seq:06}.903, "dur": 741.984,
    "args": {{
      "Collective name": "allreduce", "In msg nelems": 8388608, "Out msg nelems": 8388608, "Group size": 16, "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]", "Seq": {seq},
      "stream": 20, "correlation": {seq}
    }}
  }},"#
    );
    black_box(written.is_ok());
}

fn trace() -> String {
    let mut text = HEAD.to_owned();
    for group in 0..GROUPS {
        for number in 0..100 {
            // 37 and 100 have no common divisor, so that each kind occurs as often as it should.
            event(&mut text, number * 37 % 100, group * 100 + number);
        }
        if group % GROUPS_PER_COLLECTIVE == 0 {
            collective(&mut text, group / GROUPS_PER_COLLECTIVE);
        }
    }
    text.push_str(TAIL);
    text
}

fn packed(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(4));
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

fn unpacked(packed: &[u8], capacity: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(capacity);
    MultiGzDecoder::new(packed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn kineto_traces(criterion: &mut Criterion) {
    let text = trace();
    let Ok(packed) = packed(&text) else {
        return;
    };
    // A trace that is not read would be fast.
    let n_collectives = kineto::read(text.as_bytes(), "").map(|trace| trace.collectives.len());
    assert!(matches!(n_collectives, Ok(34)), "{n_collectives:?}");
    let mut group = criterion.benchmark_group("kineto");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("json", |bencher| {
        bencher.iter(|| kineto::read(black_box(text.as_bytes()), ""));
    });
    group.bench_function("gzip", |bencher| {
        bencher.iter(|| {
            let bytes = unpacked(black_box(&packed), text.len())?;
            Ok::<_, std::io::Error>(kineto::read(&bytes, "")?)
        });
    });
    group.finish();
}

criterion_group!(benches, kineto_traces);
criterion_main!(benches);
