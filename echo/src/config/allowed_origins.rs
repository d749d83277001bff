//! The flags that say by which names Echo may be called, and from which web pages.

use clap::Args;

use echo_serve::origin::OriginPolicy;

/// Who may ask.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Who may ask")]
pub struct CallerArgs {
    /// Further name by which this machine may be asked, such as echo.example.com; addresses, localhost and whole names of
    /// Kubernetes services (echo.monitoring.svc) always may. Can be given several times
    #[arg(
        long = "allowed-host",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = host,
        env = "FLEET_ECHO_ALLOWED_HOST"
    )]
    pub hosts: Vec<String>,

    /// Origin whose web pages may ask, such as `https://grafana.example:3000`. Can be given several times
    #[arg(
        long = "allowed-origin",
        value_name = "ORIGIN",
        value_delimiter = ',',
        value_parser = origin,
        env = "FLEET_ECHO_ALLOWED_ORIGIN"
    )]
    pub origins: Vec<String>,
}

impl CallerArgs {
    /// Who may ask.
    pub fn callers(&self) -> OriginPolicy {
        OriginPolicy::new(self.hosts.clone(), self.origins.clone())
    }
}

fn host(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !text.is_empty() && text.chars().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("give a name without a port, such as echo.example.com".to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    let authority = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    if authority.is_some_and(|authority| !authority.is_empty() && !authority.contains('/')) {
        return Ok(text.to_owned());
    }
    Err("give an origin as browsers send it, such as https://grafana.example".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::CallerArgs;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        callers: CallerArgs,
    }

    fn read(flags: &str) -> Result<CallerArgs, String> {
        let words = ["serve"].into_iter().chain(flags.split_whitespace());
        let serve = Serve::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(serve.callers)
    }

    #[test]
    fn several_names_and_origins_can_be_given() {
        let args =
            read("--allowed-host a,b --allowed-host c --allowed-origin https://d:1").unwrap();
        assert_eq!(args.hosts, ["a", "b", "c"]);
        assert_eq!(args.origins, ["https://d:1"]);
    }

    #[test]
    fn what_browsers_and_clients_never_send_is_refused() {
        for flags in [
            "--allowed-host a:80",
            "--allowed-host https://a",
            "--allowed-origin a",
            "--allowed-origin https://a/b",
            "--allowed-origin https://",
        ] {
            assert!(read(flags).is_err(), "{flags}");
        }
    }
}
