//! Metrics of authentication, the audit log, reloads and certificates.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::http::metrics::{Sources, gauges};
use crate::jwks::FetchStatus;
use crate::reloads::Reload;

type Count = fn(&Reload) -> u64;

type FetchCount = fn(&FetchStatus) -> u64;

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
    let (auth, log) = (&sources.middleware.auth, &sources.middleware.audit.log);
    let counted = [
        (
            "auth_rejected",
            "Requests whose token was missing or not valid",
            auth.rejected(),
        ),
        (
            "auth_rate_limited",
            "Requests over the rate limit of their token, or over the limit of failures of their address",
            auth.limited(),
        ),
        (
            "requests_panicked",
            "Requests whose handler panicked; the log contains the message",
            sources.middleware.panics.caught(),
        ),
        (
            "audit_lines",
            "Written lines of the audit log",
            log.written(),
        ),
        (
            "audit_lines_lost",
            "Lines of the audit log that could not be written",
            log.lost(),
        ),
    ];
    for (name, help, value) in counted {
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        ConstCounter::new(value).encode(metric)?;
    }
    encode_reloads(sources, encoder)?;
    encode_jwks(sources, encoder)?;
    match sources.encryption.identity() {
        None => Ok(()),
        Some(identity) => gauges(
            encoder,
            &[(
                "tls_certificate_not_after_seconds",
                "End of the certificate's validity, seconds since 1970",
                identity.certificate().not_after_s() as f64,
            )],
        ),
    }
}

/// Writes the counts of file reloads.
fn encode_reloads(
    sources: &Sources,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let (counter, gauge) = (ConstCounter::new(0_u64), ConstGauge::new(0_f64));
    let reloads = sources.reloads.counts();
    let counts: [(&str, &str, Count); 2] = [
        (
            "config_reloads",
            "Successful reloads of a changed file",
            |reload| reload.succeeded,
        ),
        (
            "config_reloads_failed",
            "Failed reloads of a changed file",
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
    let help = "1 if the last reload of a file failed, so that an older version is in use";
    let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    for (source, reload) in &reloads {
        let value = f64::from(u8::from(reload.is_failing));
        ConstGauge::new(value).encode(family.encode_family(&[("source", *source)])?)?;
    }
    Ok(())
}

/// Writes the counts and ages of fetched key sets.
fn encode_jwks(sources: &Sources, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let (counter, gauge) = (ConstCounter::new(0_u64), ConstGauge::new(0_f64));
    let issuers = sources.jwks.counts();
    if issuers.is_empty() {
        return Ok(());
    }
    let counts: [(&str, &str, FetchCount); 2] = [
        (
            "jwks_fetches",
            "Successful fetches of an issuer's keys",
            |fetches| fetches.succeeded,
        ),
        (
            "jwks_fetches_failed",
            "Failed fetches of an issuer's keys",
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
    let help = "Time since an issuer's keys were fetched; they are used for a day";
    let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    for (issuer, fetches) in &issuers {
        if let Some(age) = fetches.age() {
            let label = [("issuer", issuer.as_str())];
            ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&label)?)?;
        }
    }
    Ok(())
}
