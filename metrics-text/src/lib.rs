//! Text formats of `/metrics`. A scraper that accepts `OpenMetrics` gets it. All others get the older
//! text format of Prometheus, because parsers of that format refuse the type `info` and expect that
//! the type of a counter has the name of its samples.

use std::fmt::{self, Write as _};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

/// Text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Text format 0.0.4 of Prometheus.
    Prometheus,
}

impl TextFormat {
    /// Selects the format for the values of the `Accept` headers of a request: `OpenMetrics` only if
    /// it is named, with a quality not below that of plain text.
    pub fn accepted<'a, I>(accept: I) -> Self
    where
        I: IntoIterator<Item = &'a str>,
    {
        let (mut open_metrics, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.into_iter().flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let wanted = match parts.next() {
                Some("application/openmetrics-text") => &mut open_metrics,
                Some("text/plain") => &mut plain,
                _ => continue,
            };
            let quality = parts.find_map(|parameter| parameter.strip_prefix("q="));
            let quality = quality.and_then(|quality| quality.parse().ok());
            *wanted = wanted.max(quality.unwrap_or(1.0));
        }
        if open_metrics > 0.0 && open_metrics >= plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the content type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes the metrics of the registries. Fails only if a collector fails.
    pub fn encode<'r, I>(self, registries: I) -> Result<String, fmt::Error>
    where
        I: IntoIterator<Item = &'r Registry>,
    {
        let mut text = String::new();
        for registry in registries {
            encode_registry(&mut text, registry)?;
        }
        match self {
            Self::OpenMetrics => encode_eof(&mut text)?,
            Self::Prometheus => text = prometheus_text(&text)?,
        }
        Ok(text)
    }
}

/// Rewrites the descriptions of metrics. Samples are the same in both formats.
fn prometheus_text(open_metrics: &str) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            writeln!(text, "# HELP {name}{suffix} {help}")?;
            writeln!(text, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(text, "{line}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    use super::TextFormat::{OpenMetrics, Prometheus};
    use super::*;

    #[test]
    fn only_a_client_that_names_open_metrics_and_does_not_prefer_plain_text_gets_it() {
        // As Prometheus 3 asks.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,\
                          text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (vec![prometheus], OpenMetrics),
            (vec!["application/openmetrics-text"], OpenMetrics),
            (
                vec!["text/plain", "application/openmetrics-text"],
                OpenMetrics,
            ),
            (
                vec!["text/plain, application/openmetrics-text;q=0.5"],
                Prometheus,
            ),
            (vec!["application/openmetrics-text; q=0"], Prometheus),
            (vec!["text/plain;version=0.0.4"], Prometheus),
            (vec!["*/*"], Prometheus),
            (
                vec!["text/html,application/xhtml+xml,*/*;q=0.8"],
                Prometheus,
            ),
            (vec![], Prometheus),
        ] {
            assert_eq!(TextFormat::accepted(accept.clone()), format, "{accept:?}");
        }
    }

    #[test]
    fn types_in_the_format_of_prometheus_have_the_names_of_their_samples() {
        let mut registry = Registry::with_prefix("echo");
        registry.register("build", "Version", Info::new([("version", "1.2")]));
        let scrapes = ConstCounter::new(3_u64);
        registry.register("scrapes", "Scrapes so far", scrapes);
        let age = ConstGauge::new(0.5);
        registry.register_with_unit("age", "Age", Unit::Seconds, age);
        assert_eq!(
            Prometheus.encode([&registry]).unwrap(),
            "# HELP echo_build_info Version.\n\
             # TYPE echo_build_info gauge\n\
             echo_build_info{version=\"1.2\"} 1\n\
             # HELP echo_scrapes_total Scrapes so far.\n\
             # TYPE echo_scrapes_total counter\n\
             echo_scrapes_total 3\n\
             # HELP echo_age_seconds Age.\n\
             # TYPE echo_age_seconds gauge\n\
             echo_age_seconds 0.5\n"
        );
        let open_metrics = OpenMetrics.encode([&registry]).unwrap();
        assert!(
            open_metrics.contains("# TYPE echo_build info\n"),
            "{open_metrics}"
        );
        assert!(open_metrics.ends_with("# EOF\n"), "{open_metrics}");
    }
}
