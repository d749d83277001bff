//! Pages of a column, decompressed within bounds that follow from the compressed bytes. The library
//! allocates what the header of a page claims, which a damaged header makes gigabytes.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{CompressionCodec, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

/// Maximum ratio of Snappy: a copy of 64 bytes takes three.
const SNAPPY_RATIO: usize = 22;
/// Minimum size of a value of a dictionary, bytes: an integer, or the length of a string.
const DICTIONARY_VALUE_BYTES: usize = 4;

/// Reader of the pages of a column.
pub(super) struct Pages {
    /// Pages as they are in the file.
    compressed: SerializedPageReader<Bytes>,
    is_snappy: bool,
}

impl Pages {
    /// Reads the pages of `column` in `file`.
    pub(super) fn new(file: &Bytes, column: &ColumnChunkMetaData, n_rows: usize) -> Result<Self> {
        let is_snappy = match column.compression_codec() {
            CompressionCodec::UNCOMPRESSED => false,
            CompressionCodec::SNAPPY => true,
            other => return Err(general(format!("pages compressed by {other}, not Snappy"))),
        };
        let as_stored = column
            .clone()
            .into_builder()
            .set_compression_codec(CompressionCodec::UNCOMPRESSED)
            .build()?;
        let file = Arc::new(file.clone());
        Ok(Self {
            compressed: SerializedPageReader::new(file, &as_stored, n_rows, None)?,
            is_snappy,
        })
    }

    /// Decompresses a page and checks the numbers that its header claims.
    fn checked(&self, mut page: Page) -> Result<Page> {
        match &mut page {
            Page::DataPage { buf, .. } => *buf = self.decompressed(buf)?.into(),
            Page::DictionaryPage {
                buf, num_values, ..
            } => {
                *buf = self.decompressed(buf)?.into();
                if *num_values as usize > buf.len() / DICTIONARY_VALUE_BYTES {
                    let found = format!("{num_values} values in {} bytes", buf.len());
                    return Err(general(format!("a dictionary of {found}")));
                }
            }
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                ..
            } => {
                let n_levels =
                    (*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize);
                let Some((levels, values)) = buf.split_at_checked(n_levels) else {
                    return Err(general("a page shorter than its levels".to_owned()));
                };
                if *is_compressed && !values.is_empty() {
                    let values = self.decompressed(values)?;
                    *buf = [levels, &values].concat().into();
                }
            }
        }
        // The other encodings state a number of values of their own, which nothing bounds.
        match page.encoding() {
            Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => Ok(page),
            other => Err(general(format!("values encoded as {other}"))),
        }
    }

    fn decompressed(&self, stored: &[u8]) -> Result<Vec<u8>> {
        if !self.is_snappy {
            return Ok(stored.to_vec());
        }
        let damaged = |err| ParquetError::External(Box::new(err));
        let claimed = snap::raw::decompress_len(stored).map_err(damaged)?;
        if claimed / SNAPPY_RATIO > stored.len() {
            let found = format!("{claimed} bytes from {}", stored.len());
            return Err(general(format!("a page of {found}")));
        }
        let decompressed = snap::raw::Decoder::new().decompress_vec(stored);
        decompressed.map_err(damaged)
    }
}

const fn general(message: String) -> ParquetError {
    ParquetError::General(message)
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.compressed.get_next_page()?;
        page.map(|page| self.checked(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.compressed.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.compressed.skip_next_page()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    /// Pages of the first column of a file of the corpus, and the first of them as it is stored.
    fn pages() -> (Pages, Page) {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fuzz/import");
        let file = Bytes::from(std::fs::read(testdata.join("sound-operations.parquet")).unwrap());
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file);
        let metadata = metadata.unwrap();
        let column = metadata.row_group(0).column(0);
        let mut pages = Pages::new(&file, column, 1).unwrap();
        assert!(pages.is_snappy);
        let first = pages.compressed.get_next_page().unwrap().unwrap();
        (pages, first)
    }

    fn refusal(pages: &Pages, page: Page) -> String {
        pages.checked(page).unwrap_err().to_string()
    }

    #[test]
    fn a_dictionary_with_more_values_than_bytes_is_refused() {
        let (pages, first) = pages();
        let Page::DictionaryPage { buf, encoding, .. } = first else {
            panic!("no dictionary");
        };
        let with = |num_values| Page::DictionaryPage {
            buf: buf.clone(),
            num_values,
            encoding,
            is_sorted: false,
        };
        assert!(pages.checked(with(1)).is_ok());
        let message = refusal(&pages, with(1 << 30));
        assert!(message.contains("a dictionary of 1073741824 values"));
    }

    #[test]
    fn a_page_that_claims_more_bytes_than_its_compression_can_hold_is_refused() {
        let (pages, _) = pages();
        // The size after decompression is the first number of a page.
        let page = |size: &[u8]| Page::DataPage {
            buf: [size, &[0; 8]].concat().into(),
            num_values: 1,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let message = refusal(&pages, page(&[0xff, 0xff, 0xff, 0xff, 0x07]));
        assert!(message.contains("a page of 2147483647 bytes from 13"));
    }
}
