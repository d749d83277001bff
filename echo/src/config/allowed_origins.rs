//! Flags for the host names and web origins that the API accepts.

use clap::Args;

use echo_serve::origin::OriginPolicy;

/// Allowed host names and web origins.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Allowed hosts and origins")]
pub struct AllowedOriginArgs {
    /// Additional host name to accept in requests, such as echo.example.com. IP addresses,
    /// localhost and full names of Kubernetes services (echo.monitoring.svc) are always accepted.
    /// Can be repeated
    #[arg(
        long = "allowed-host",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = host,
        env = "FLEET_ECHO_ALLOWED_HOST"
    )]
    pub hosts: Vec<String>,

    /// Web origin whose pages may call the API, such as `https://grafana.example:3000`. Can be
    /// repeated
    #[arg(
        long = "allowed-origin",
        value_name = "ORIGIN",
        value_delimiter = ',',
        value_parser = origin,
        env = "FLEET_ECHO_ALLOWED_ORIGIN"
    )]
    pub origins: Vec<String>,
}

impl AllowedOriginArgs {
    /// Returns the request check.
    pub fn callers(&self) -> OriginPolicy {
        OriginPolicy::new(self.hosts.clone(), self.origins.clone())
    }
}

fn host(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !text.is_empty() && text.chars().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("expected a host name without a port, such as echo.example.com".to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    let authority = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    if authority.is_some_and(|authority| !authority.is_empty() && !authority.contains('/')) {
        return Ok(text.to_owned());
    }
    Err("expected an origin as browsers send it, such as https://grafana.example".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::AllowedOriginArgs;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        origins: AllowedOriginArgs,
    }

    fn parse(flags: &str) -> Result<AllowedOriginArgs, String> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let serve = Serve::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(serve.origins)
    }

    #[test]
    fn several_names_and_origins_can_be_given() {
        let args =
            parse("--allowed-host a,b --allowed-host c --allowed-origin https://d:1").unwrap();
        assert_eq!(args.hosts, ["a", "b", "c"]);
        assert_eq!(args.origins, ["https://d:1"]);
    }

    #[test]
    fn values_that_no_client_sends_are_rejected() {
        for flags in [
            "--allowed-host a:80",
            "--allowed-host https://a",
            "--allowed-origin a",
            "--allowed-origin https://a/b",
            "--allowed-origin https://",
        ] {
            assert!(parse(flags).is_err(), "{flags}");
        }
    }
}
