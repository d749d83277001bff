//! Decoder of log records. Only verdicts of ranks about themselves are kept
//! ([`fleet_proto::metric::STRAGGLER`]). A verdict is stored as an event whose metric is its event
//! name and whose reading is the lag. Other attributes are kept; the body, which is text for
//! people, is dropped.

use echo_core::model::event::{Event, Reading};
use fleet_proto::metric;

use super::attributes::{Column, ColumnReader, Columns, EVENT_NAME, empty_list, number, text};
use super::extra_attributes::ExtraAttributes;
use super::point::Temporality;
use super::point::instant;
use super::reject::RejectReason;
use super::wire::attributes::Attribute;
use super::wire::logs::Record;
use super::wire::metrics::{Scope, contents};
use super::wire::{Fields, WireError};
use super::{Decoder, Scratch, Sender, block};

/// Unit of the lag.
const UNIT: &str = "ms";

impl<'a> Decoder<'a> {
    /// Turns the log records of a scope into events.
    pub(super) fn records(
        &mut self,
        scope_logs: Fields<'a>,
        sender: &mut Sender<'_, 'a>,
        scratch: &mut Scratch<'a>,
    ) -> Result<(), WireError> {
        let scope = Scope::read(scope_logs, empty_list())?;
        let mut extra = ExtraAttributes::new(sender.columns, &scope);
        for record in contents(scope_logs) {
            let record = Record::read(record, &mut scratch.attributes)?;
            self.rejections.count_point();
            match self.record(&record, scratch, sender, &mut extra) {
                Ok(event) => self.events.push(event),
                Err(reason) => self.rejections.reject(reason),
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &Record<'a>,
        scratch: &mut Scratch<'a>,
        sender: &mut Sender<'_, 'a>,
        extra: &mut ExtraAttributes<'_, 'a>,
    ) -> Result<Event, RejectReason> {
        let attributes = scratch.attributes.present();
        if !is_verdict(record, attributes) {
            return Err(RejectReason::UnsupportedRecord);
        }
        let columns = Columns::new(attributes, &mut scratch.cache);
        let (origin, used) =
            sender.identity(&columns, self.default_cluster.as_ref(), &mut self.interner)?;
        let timestamp = instant(time(record), self.received)?;
        let mut reader = ColumnReader::new(sender.columns, &columns, used);
        let block = block::block(&mut reader, &mut self.interner)?;
        let lag = reader.take(Column::Lag).and_then(number);
        let lag_ms = lag.ok_or(RejectReason::MissingLag)??;
        let attrs = extra.text(
            &columns,
            reader.used(),
            Temporality::Delta,
            &mut self.interner,
        )?;
        Ok(Event {
            timestamp,
            start: None,
            origin,
            metric: self.interner.metric(metric::STRAGGLER)?,
            unit: self.interner.unit(UNIT)?,
            reading: Reading::Double(lag_ms),
            block,
            attrs,
            samples: Vec::new(),
        })
    }
}

/// Returns true if the record is the verdict of a rank about itself.
fn is_verdict(record: &Record<'_>, attributes: &[Attribute<'_>]) -> bool {
    if !record.event_name.is_empty() {
        return record.event_name == metric::STRAGGLER;
    }
    let name = attributes.iter().find(|named| named.key == EVENT_NAME);
    name.and_then(|name| text(name.value?)) == Some(metric::STRAGGLER)
}

/// Returns the time of the event, or the time at which it was observed if that is missing.
const fn time(record: &Record<'_>) -> u64 {
    match record.time {
        0 => record.observed,
        time => time,
    }
}

#[cfg(test)]
mod tests {
    use echo_core::model::event::Reading;
    use fleet_proto::{attribute, metric};
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use prost::Message;

    use crate::decode::reject::RejectReason;
    use crate::decode::{Decoded, Payload, decode_body};
    use crate::fixture::{END, RECEIVED, double, rank_2, records, straggler, text};

    fn decoded_all(all: Vec<LogRecord>) -> Decoded {
        let body = records(rank_2(), all).encode_to_vec();
        decode_body(Payload::Logs, &body, RECEIVED, None).unwrap()
    }

    fn decoded(record: LogRecord) -> Decoded {
        decoded_all(vec![record])
    }

    fn rejected(record: LogRecord) -> Option<RejectReason> {
        let first = decoded(record).rejections.iter().next();
        first.map(|(reason, _)| reason)
    }

    #[test]
    fn a_verdict_becomes_an_event_with_lag_block_and_other_attributes() {
        let decoded = decoded(straggler());
        let [event] = &decoded.events[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!(event.metric.as_str(), metric::STRAGGLER);
        assert_eq!(event.reading, Reading::Double(7.5));
        assert_eq!(&*event.unit, "ms");
        assert_eq!(event.origin.rank.unwrap().rank().value(), 2);
        assert_eq!(event.timestamp.value(), i64::try_from(END).unwrap());
        let block = event.block.as_ref().unwrap();
        let seqs = block.seqs.unwrap();
        assert_eq!((seqs.first(), seqs.last()), (32, 63));
        assert_eq!(block.role.unwrap().value(), 0x1f);
        assert_eq!(
            &*event.attrs,
            r#"{"fleet.straggler.mode":"policy","fleet.straggler.state":"raised","fleet.z":9.0,"service.name":"trainer"}"#
        );
    }

    #[test]
    fn other_records_and_incomplete_verdicts_are_rejected_with_a_reason() {
        let mut other = straggler();
        other.event_name = "device.app.lifecycle".to_owned();
        assert_eq!(rejected(other), Some(RejectReason::UnsupportedRecord));
        assert_eq!(
            rejected(LogRecord::default()),
            Some(RejectReason::UnsupportedRecord)
        );
        let mut without_lag = straggler();
        without_lag
            .attributes
            .retain(|attribute| attribute.key != attribute::LAG_MS);
        assert_eq!(rejected(without_lag), Some(RejectReason::MissingLag));
        let mut absurd = straggler();
        absurd.attributes = vec![double(attribute::LAG_MS, f64::NAN)];
        assert_eq!(rejected(absurd), Some(RejectReason::NotFinite));
        let mut timeless = straggler();
        timeless.time_unix_nano = 0;
        assert_eq!(rejected(timeless), Some(RejectReason::ImplausibleTime));
    }

    #[test]
    fn the_event_name_may_be_an_attribute_and_the_time_the_observed_time() {
        let mut record = straggler();
        record.event_name.clear();
        record
            .attributes
            .push(text("event.name", metric::STRAGGLER));
        record.time_unix_nano = 0;
        record.observed_time_unix_nano = END;
        assert_eq!(rejected(record), None);
    }

    #[test]
    fn a_rejected_record_does_not_affect_its_neighbours() {
        let both = vec![LogRecord::default(), straggler()];
        let decoded = decoded_all(both);
        assert_eq!((decoded.events.len(), decoded.rejections.total()), (1, 1));
    }
}
