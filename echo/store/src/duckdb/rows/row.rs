//! Row of a result, read value by value: for short results.

use std::str::FromStr;

use arrow::array::{
    Array, BooleanArray, Float64Array, Int64Array, ListArray, StringArray, UInt32Array, UInt64Array,
};
use arrow::record_batch::RecordBatch;
use echo_core::ids::IdError;

use crate::duckdb::engine::EngineResult;
use crate::duckdb::rows::column::{Unexpected, column, malformed, maybe};

/// Row of a batch. A value that is NULL or of another type is an error unless the method is named
/// `maybe_*`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'b> {
    batch: &'b RecordBatch,
    row: usize,
}

macro_rules! value {
    ($name:ident, $maybe:ident, $array:ty, $value:ty) => {
        pub(super) fn $name(&self, name: &'static str) -> EngineResult<$value> {
            self.$maybe(name)?
                .ok_or_else(|| malformed(Unexpected(name)))
        }

        pub(super) fn $maybe(&self, name: &'static str) -> EngineResult<Option<$value>> {
            let column: &$array = column(self.batch, name)?;
            Ok(maybe!(column, self.row))
        }
    };
}

impl<'b> Row<'b> {
    /// Row `row` of the batch, from 0.
    pub(super) const fn new(batch: &'b RecordBatch, row: usize) -> Self {
        Self { batch, row }
    }

    value!(u32, maybe_u32, UInt32Array, u32);
    value!(u64, maybe_u64, UInt64Array, u64);
    value!(i64, maybe_i64, Int64Array, i64);
    value!(f64, maybe_f64, Float64Array, f64);
    value!(text, maybe_text, StringArray, &'b str);
    value!(bool, maybe_bool, BooleanArray, bool);

    /// Numbers of a list; empty if the list is NULL.
    pub(super) fn list(&self, name: &'static str) -> EngineResult<Vec<u32>> {
        let column: &ListArray = column(self.batch, name)?;
        let Some(list) = maybe!(column, self.row) else {
            return Ok(Vec::new());
        };
        let numbers = list.as_any().downcast_ref::<UInt32Array>();
        let numbers = numbers.ok_or_else(|| malformed(Unexpected(name)))?;
        Ok(numbers.iter().flatten().collect())
    }

    /// The element of `all` with the name in the column.
    pub(super) fn named<T>(
        &self,
        name: &'static str,
        all: impl IntoIterator<Item = T>,
        name_of: impl Fn(&T) -> &'static str,
    ) -> EngineResult<T> {
        let text = self.text(name)?;
        let mut all = all.into_iter();
        let found = all.find(|value| name_of(value) == text);
        found.ok_or_else(|| malformed(Unexpected(name)))
    }

    pub(super) fn id<T: FromStr<Err = IdError>>(&self, name: &'static str) -> EngineResult<T> {
        parse(name, self.text(name)?)
    }

    pub(super) fn maybe_id<T: FromStr<Err = IdError>>(
        &self,
        name: &'static str,
    ) -> EngineResult<Option<T>> {
        let text = self.maybe_text(name)?;
        text.map(|text| parse(name, text)).transpose()
    }
}

fn parse<T: FromStr<Err = IdError>>(name: &'static str, text: &str) -> EngineResult<T> {
    text.parse()
        .map_err(|_checked_when_written| malformed(Unexpected(name)))
}
