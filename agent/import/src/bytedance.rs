//! Operations of a job as `ByteDance`'s `StragglerAnalysis` publishes them: Parquet, one row per
//! operation of a pipeline worker, with the columns `dp_rank`, `stage`, `step`, `optype`,
//! `start_ts` and `duration`, seconds.
//!
//! A worker becomes a rank, stage by stage. The steps are a sample of the job whose times begin
//! again with each step, so they are laid end to end. The operation of the embedding joins stages
//! with different work, and is counted as a transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fleet_agent_core::event::Op;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use crate::trace::{Collective, RankTrace};

/// First bytes of a file.
pub const MAGIC: &[u8] = b"PAR1";
/// Columns that are read.
const COLUMNS: [&str; 6] = ["dp_rank", "stage", "step", "optype", "start_ts", "duration"];
/// Maximum number of rows; the published jobs have 100,000.
const MAX_ROWS: i64 = 20_000_000;
/// Maximum size of the columns, bytes.
const MAX_BYTES: i64 = 8 << 30;
/// Maximum number of workers.
const MAX_WORKERS: u32 = 1 << 20;

/// Error of a file.
#[derive(Debug, thiserror::Error)]
pub enum OperationsError {
    /// The file is not valid Parquet.
    #[error("invalid Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// A column is missing.
    #[error(
        "no column {0}: of Parquet files, only those of ByteDance's StragglerAnalysis are read, with dp_rank, stage, step, optype, start_ts and duration"
    )]
    NoColumn(&'static str),
    /// A row has an invalid value.
    #[error("invalid value in column {0}")]
    Value(&'static str),
    /// The file is larger than any such file.
    #[error("{0}, more than any such file")]
    TooLarge(String),
}

/// Row of a file.
#[derive(Debug, Clone)]
struct Operation {
    dp_rank: u32,
    stage: u32,
    step: i64,
    kind: Kind,
    start_s: f64,
    duration_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Compute,
    Collective(Op),
    Transfer,
    Other,
}

impl Kind {
    fn new(optype: &str) -> Self {
        match optype {
            "forward-compute" | "backward-compute" => Self::Compute,
            "params-all-gather" => Self::Collective(Op::AllGather),
            "grads-reduce-scatter" => Self::Collective(Op::ReduceScatter),
            "optimizer" | "gc" => Self::Other,
            _ => Self::Transfer,
        }
    }
}

/// Reads the operations of all ranks.
pub fn read(bytes: &[u8]) -> Result<Vec<RankTrace>, OperationsError> {
    let operations = operations(bytes)?;
    let count = |number: fn(&Operation) -> u32| {
        let highest = operations.iter().map(number).max();
        highest.map_or(0, |highest| highest.saturating_add(1))
    };
    let (n_replicas, n_stages) = (count(|one| one.dp_rank), count(|one| one.stage));
    let world_size = n_replicas.saturating_mul(n_stages);
    if world_size > MAX_WORKERS {
        return Err(OperationsError::TooLarge(format!("{world_size} workers")));
    }
    let offsets = offsets(&operations);
    let mut traces: BTreeMap<u32, RankTrace> = BTreeMap::new();
    for operation in &operations {
        let first = operation.stage * n_replicas;
        let rank = first + operation.dp_rank;
        let group = format!("dp_stage{}", operation.stage);
        let trace = traces.entry(rank).or_insert_with(|| RankTrace {
            rank: Some(rank),
            world_size: Some(world_size),
            groups: [(group.clone(), (first..first + n_replicas).collect())].into(),
            n_steps: offsets.len() as u64,
            busy_ns: Some(0),
            ..RankTrace::default()
        });
        let duration_ns = nanos(operation.duration_s);
        match operation.kind {
            Kind::Compute => {
                let busy_ns = trace.busy_ns.get_or_insert(0);
                *busy_ns = busy_ns.saturating_add(duration_ns);
            }
            Kind::Transfer => trace.n_transfers += 1,
            Kind::Other => {}
            Kind::Collective(op) => {
                let offset_s = offsets.get(&operation.step).copied().unwrap_or(0.0);
                trace.collectives.push(Collective {
                    group,
                    seq: None,
                    op,
                    size: 0,
                    start_ns: Some(nanos(offset_s + operation.start_s)),
                    duration_ns,
                });
            }
        }
    }
    Ok(traces.into_values().collect())
}

/// Times at which the steps begin if they follow one another, seconds.
fn offsets(operations: &[Operation]) -> BTreeMap<i64, f64> {
    let mut ends: BTreeMap<i64, f64> = BTreeMap::new();
    for one in operations {
        let end = ends.entry(one.step).or_default();
        *end = end.max(one.start_s + one.duration_s);
    }
    let mut begin_s = 0.0;
    let offset = |(step, end_s)| {
        let own = begin_s;
        begin_s += end_s;
        (step, own)
    };
    ends.into_iter().map(offset).collect()
}

/// Reads the rows.
fn operations(bytes: &[u8]) -> Result<Vec<Operation>, OperationsError> {
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(bytes))?;
    let metadata = reader.metadata();
    let rows = metadata.file_metadata().num_rows();
    let sizes = metadata
        .row_groups()
        .iter()
        .map(RowGroupMetaData::total_byte_size);
    let size = sizes.fold(0_i64, i64::saturating_add);
    if rows > MAX_ROWS || size > MAX_BYTES {
        let found = format!("{rows} rows in {size} bytes");
        return Err(OperationsError::TooLarge(found));
    }
    let schema = metadata.file_metadata().schema();
    let mut columns = Vec::new();
    for name in COLUMNS {
        let column = schema
            .get_fields()
            .iter()
            .find(|field| field.name() == name);
        let column = column.filter(|field| field.is_primitive());
        columns.push(Arc::clone(column.ok_or(OperationsError::NoColumn(name))?));
    }
    let projection = Type::group_type_builder(schema.name()).with_fields(columns);
    let mut operations = Vec::new();
    for row in reader.get_row_iter(Some(projection.build()?))? {
        operations.push(operation(&row?)?);
    }
    Ok(operations)
}

fn operation(row: &Row) -> Result<Operation, OperationsError> {
    let field = |name: &'static str| {
        let mut columns = row.get_column_iter();
        let found = columns.find(|(column, _)| *column == name);
        found
            .map(|(_, field)| field)
            .ok_or(OperationsError::Value(name))
    };
    let integer = |name| integer(field(name)?).ok_or(OperationsError::Value(name));
    let small = |name| u32::try_from(integer(name)?).map_err(|_large| OperationsError::Value(name));
    let seconds = |name| seconds(field(name)?).ok_or(OperationsError::Value(name));
    let Field::Str(optype) = field("optype")? else {
        return Err(OperationsError::Value("optype"));
    };
    Ok(Operation {
        dp_rank: small("dp_rank")?,
        stage: small("stage")?,
        step: integer("step")?,
        kind: Kind::new(optype),
        start_s: seconds("start_ts")?,
        duration_s: seconds("duration")?,
    })
}

fn integer(field: &Field) -> Option<i64> {
    match field {
        Field::Byte(value) => Some((*value).into()),
        Field::Short(value) => Some((*value).into()),
        Field::Int(value) => Some((*value).into()),
        Field::Long(value) => Some(*value),
        Field::UByte(value) => Some((*value).into()),
        Field::UShort(value) => Some((*value).into()),
        Field::UInt(value) => Some((*value).into()),
        _ => None,
    }
}

/// A time of at most 30 years, so that sums stay finite.
fn seconds(field: &Field) -> Option<f64> {
    let value = match field {
        Field::Double(value) => *value,
        Field::Float(value) => (*value).into(),
        _ => return None,
    };
    (0.0..1e9).contains(&value).then_some(value)
}

/// Converts seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn nanos(s: f64) -> u64 {
    (s * 1e9) as u64
}
