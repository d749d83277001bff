//! Who was let in and who was not, what was written down of it, and whether the files behind it are in force.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::http::metrics::{Sources, gauges};
use crate::jwks::Fetches;
use crate::reloads::Reload;

type Count = fn(&Reload) -> u64;

type FetchCount = fn(&Fetches) -> u64;

/// Writes the metrics.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is read by eye and by thresholds"
)]
pub(super) fn encode(
    sources: &Sources,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let counter = ConstCounter::new(0_u64);
    let (gate, log) = (&sources.terms.gate, &sources.terms.auditing.log);
    let counted = [
        (
            "auth_rejected",
            "Requests whose token was missing or not valid",
            gate.rejected(),
        ),
        (
            "auth_rate_limited",
            "Requests that were turned down because their token, or failures of their address, came too often",
            gate.limited(),
        ),
        (
            "requests_panicked",
            "Requests that met a defect of Echo; the log says which",
            sources.terms.panics.caught(),
        ),
        (
            "audit_lines",
            "Lines of the audit that were written",
            log.written(),
        ),
        (
            "audit_lines_lost",
            "Lines of the audit that could not be written",
            log.lost(),
        ),
    ];
    for (name, help, value) in counted {
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        ConstCounter::new(value).encode(metric)?;
    }
    of_reloads(sources, encoder)?;
    of_key_sets(sources, encoder)?;
    match sources.encryption.identity() {
        None => Ok(()),
        Some(identity) => gauges(
            encoder,
            &[(
                "tls_certificate_not_after_seconds",
                "When the certificate ceases to be valid, seconds since 1970",
                identity.certificate().not_after_s() as f64,
            )],
        ),
    }
}

/// Writes how often files were read again.
fn of_reloads(sources: &Sources, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let (counter, gauge) = (ConstCounter::new(0_u64), ConstGauge::new(0_f64));
    let reloads = sources.reloads.counts();
    let counts: [(&str, &str, Count); 2] = [
        (
            "config_reloads",
            "Times that a file had changed and was taken over",
            |reload| reload.succeeded,
        ),
        (
            "config_reloads_failed",
            "Times that a file had changed and could not be used",
            |reload| reload.failed,
        ),
    ];
    for (name, help, count) in counts {
        let mut family = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        for (source, reload) in &reloads {
            ConstCounter::new(count(reload))
                .encode(family.encode_family(&[("source", *source)])?)?;
        }
    }
    let name = "config_reload_failing";
    let help = "1 when a file could not be used the last time, so that something older is in force";
    let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    for (source, reload) in &reloads {
        let value = f64::from(u8::from(reload.is_failing));
        ConstGauge::new(value).encode(family.encode_family(&[("source", *source)])?)?;
    }
    Ok(())
}

/// Writes how fetching the keys of issuers goes.
fn of_key_sets(sources: &Sources, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let (counter, gauge) = (ConstCounter::new(0_u64), ConstGauge::new(0_f64));
    let issuers = sources.key_sets.counts();
    if issuers.is_empty() {
        return Ok(());
    }
    let counts: [(&str, &str, FetchCount); 2] = [
        (
            "jwks_fetches",
            "Times that the keys of an issuer were fetched",
            |fetches| fetches.succeeded,
        ),
        (
            "jwks_fetches_failed",
            "Times that the keys of an issuer could not be fetched",
            |fetches| fetches.failed,
        ),
    ];
    for (name, help, count) in counts {
        let mut family = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        for (issuer, fetches) in &issuers {
            let label = [("issuer", issuer.as_str())];
            ConstCounter::new(count(fetches)).encode(family.encode_family(&label)?)?;
        }
    }
    let name = "jwks_age_seconds";
    let help = "Time since the keys of an issuer were fetched; they count for a day";
    let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    for (issuer, fetches) in &issuers {
        if let Some(age) = fetches.age() {
            let label = [("issuer", issuer.as_str())];
            ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&label)?)?;
        }
    }
    Ok(())
}
