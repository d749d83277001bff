//! Operations of a job as `ByteDance`'s `StragglerAnalysis` publishes them: Parquet, one row per
//! operation of a pipeline worker, with the columns `dp_rank`, `stage`, `step`, `optype`,
//! `start_ts` and `duration`, seconds.
//!
//! A worker becomes a rank, stage by stage. The steps are a sample of the job whose times begin
//! again with each step, so they are laid end to end. The operation of the embedding joins stages
//! with different work, and is counted as a transfer.

mod pages;

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use bytes::Bytes;
use fleet_agent_core::event::Op;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaDataReader, RowGroupMetaData};

use self::pages::Pages;
use crate::trace::{Collective, RankTrace};

/// First bytes of a file.
pub const MAGIC: &[u8] = b"PAR1";
/// Columns that are read.
const COLUMNS: [&str; 6] = ["dp_rank", "stage", "step", "optype", "start_ts", "duration"];
/// Number of rows that are read at once.
const CHUNK: usize = 65_536;
/// Maximum number of rows; the published jobs have 100,000.
const MAX_ROWS: i64 = 20_000_000;
/// Maximum size of the columns, bytes.
const MAX_BYTES: i64 = 8 << 30;
/// Maximum number of entries in the lists of replicas of all workers: 256 MB.
const MAX_LISTED: u64 = 1 << 26;

/// Error of a file.
#[derive(Debug, thiserror::Error)]
pub enum OperationsError {
    /// The file is not valid Parquet.
    #[error("invalid Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// The library failed on a page.
    #[error("invalid Parquet: a page is damaged")]
    Damaged,
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
    // Version 60 of the library panics on some damaged pages.
    let operations =
        catch_unwind(|| operations(bytes)).map_err(|_panic| OperationsError::Damaged)??;
    traces(&operations)
}

/// Assigns the operations to ranks. Each worker has operations, and each rank lists its replicas: a
/// damaged number of one row must not make a job of millions of them.
fn traces(operations: &[Operation]) -> Result<Vec<RankTrace>, OperationsError> {
    let count = |number: fn(&Operation) -> u32| {
        let highest = operations.iter().map(number).max();
        highest.map_or(0, |highest| highest.saturating_add(1))
    };
    let (n_replicas, n_stages) = (count(|one| one.dp_rank), count(|one| one.stage));
    let world_size = n_replicas.saturating_mul(n_stages);
    let listed = u64::from(world_size).saturating_mul(n_replicas.into());
    if u64::from(world_size) > operations.len() as u64 || listed > MAX_LISTED {
        let found = format!("{world_size} workers in {} rows", operations.len());
        return Err(OperationsError::TooLarge(found));
    }
    let offsets = offsets(operations);
    let mut traces: BTreeMap<u32, RankTrace> = BTreeMap::new();
    for operation in operations {
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
    let file = Bytes::copy_from_slice(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file)?;
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
    let schema = metadata.file_metadata().schema_descr();
    let column = |name: &'static str| {
        let mut columns = schema.columns().iter();
        let index = columns.position(|column| column.path().parts() == [name]);
        index.map(|index| Column { name, index })
    };
    let [dp_rank, stage, step, optype, start_ts, duration] =
        COLUMNS.map(|name| column(name).ok_or(OperationsError::NoColumn(name)));
    let columns = [dp_rank?, stage?, step?, optype?, start_ts?, duration?];
    let mut operations = Vec::new();
    for metadata in metadata.row_groups() {
        let file = file.clone();
        operations.extend(rows_of(&RowGroup { file, metadata }, &columns)?);
        if operations.len() as u64 > MAX_ROWS.unsigned_abs() {
            return Err(OperationsError::TooLarge(format!(
                "{} rows",
                operations.len()
            )));
        }
    }
    Ok(operations)
}

/// Part of a file that holds the values of some rows.
struct RowGroup<'a> {
    file: Bytes,
    metadata: &'a RowGroupMetaData,
}

impl RowGroup<'_> {
    fn n_rows(&self) -> usize {
        usize::try_from(self.metadata.num_rows()).unwrap_or(0)
    }

    fn column(&self, index: usize) -> Result<ColumnReader, ParquetError> {
        let column = self.metadata.column(index);
        let pages = Pages::new(&self.file, column, self.n_rows())?;
        Ok(get_column_reader(
            column.column_descr_ptr(),
            Box::new(pages),
        ))
    }
}

/// Reads the rows of a row group.
fn rows_of(
    group: &RowGroup<'_>,
    columns: &[Column; COLUMNS.len()],
) -> Result<Vec<Operation>, OperationsError> {
    let [dp_rank, stage, step, optype, start_ts, duration] = columns;
    let kinds = optype.kinds(group)?;
    let mut integers = [Vec::new(), Vec::new(), Vec::new()];
    for (values, column) in integers.iter_mut().zip([dp_rank, stage, step]) {
        *values = column.integers(group)?;
    }
    let [dp_ranks, stages, steps] = integers;
    let (starts, durations) = (start_ts.seconds(group)?, duration.seconds(group)?);
    let small = |column: &Column, value| u32::try_from(value).map_err(|_large| column.invalid());
    let numbers = dp_ranks.into_iter().zip(stages).zip(steps);
    let rows = numbers.zip(kinds).zip(starts.into_iter().zip(durations));
    let rows = rows.map(
        |((((own_rank, own_stage), step), kind), (start_s, duration_s))| {
            Ok(Operation {
                dp_rank: small(dp_rank, own_rank)?,
                stage: small(stage, own_stage)?,
                step,
                kind,
                start_s,
                duration_s,
            })
        },
    );
    rows.collect()
}

/// Column of a file.
struct Column {
    name: &'static str,
    index: usize,
}

impl Column {
    const fn invalid(&self) -> OperationsError {
        OperationsError::Value(self.name)
    }

    fn integers(&self, group: &RowGroup<'_>) -> Result<Vec<i64>, OperationsError> {
        match group.column(self.index)? {
            ColumnReader::Int32ColumnReader(reader) => {
                let values = self.values(group, reader)?;
                Ok(values.into_iter().map(i64::from).collect())
            }
            ColumnReader::Int64ColumnReader(reader) => self.values(group, reader),
            _ => Err(self.invalid()),
        }
    }

    /// Reads times of at most 30 years, so that sums stay finite.
    fn seconds(&self, group: &RowGroup<'_>) -> Result<Vec<f64>, OperationsError> {
        let values = match group.column(self.index)? {
            ColumnReader::FloatColumnReader(reader) => {
                let values = self.values(group, reader)?;
                values.into_iter().map(f64::from).collect()
            }
            ColumnReader::DoubleColumnReader(reader) => self.values(group, reader)?,
            _ => return Err(self.invalid()),
        };
        let is_valid = values.iter().all(|value| (0.0..1e9).contains(value));
        is_valid.then_some(values).ok_or_else(|| self.invalid())
    }

    fn kinds(&self, group: &RowGroup<'_>) -> Result<Vec<Kind>, OperationsError> {
        let ColumnReader::ByteArrayColumnReader(reader) = group.column(self.index)? else {
            return Err(self.invalid());
        };
        let values = self.values(group, reader)?;
        let kind = |value: &ByteArray| Kind::new(std::str::from_utf8(value.data()).unwrap_or(""));
        Ok(values.iter().map(kind).collect())
    }

    /// Reads one value per row; a row without a value is an error.
    fn values<T: DataType>(
        &self,
        group: &RowGroup<'_>,
        mut reader: ColumnReaderImpl<T>,
    ) -> Result<Vec<T::T>, OperationsError> {
        let n_rows = group.n_rows();
        let mut values = Vec::new();
        while values.len() < n_rows {
            let wanted = CHUNK.min(n_rows - values.len());
            let mut levels = Vec::new();
            let (n_read, n_values, _) =
                reader.read_records(wanted, Some(&mut levels), None, &mut values)?;
            if n_read == 0 || n_values != n_read {
                return Err(self.invalid());
            }
        }
        Ok(values)
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_changed_byte_of_a_file_is_read_or_refused() {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fuzz/import");
        let sound = std::fs::read(testdata.join("sound-operations.parquet")).unwrap();
        assert_eq!(read(&sound).unwrap().len(), 2);
        let mut n_refused = 0;
        for at in 0..sound.len() {
            let mut changed = sound.clone();
            changed[at] ^= 2;
            n_refused += u32::from(read(&changed).is_err());
        }
        assert!(n_refused > 0);
    }

    #[test]
    fn one_row_with_a_damaged_number_does_not_make_a_job_of_millions() {
        let row = |dp_rank| Operation {
            dp_rank,
            stage: 0,
            step: 0,
            kind: Kind::Compute,
            start_s: 0.0,
            duration_s: 1.0,
        };
        let sound: Vec<Operation> = (0..4).map(row).collect();
        assert_eq!(traces(&sound).unwrap().len(), 4);
        let damaged: Vec<Operation> = (0..3).chain([1_000_000]).map(row).collect();
        let refused = traces(&damaged).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "1000001 workers in 4 rows, more than any such file"
        );
    }
}
