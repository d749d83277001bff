//! Examples of commands. They can be pasted, so no line is longer than a terminal of 80 columns.

/// Examples by command.
pub(super) const EXAMPLES: [(&str, &str); 15] = [
    ("status", STATUS),
    ("top", TOP),
    ("outliers", OUTLIERS),
    ("explain", EXPLAIN),
    ("cost", COST),
    ("history", HISTORY),
    ("sql", SQL),
    ("clusters", CLUSTERS),
    ("bundle", BUNDLE),
    ("report", REPORT),
    ("serve", SERVE),
    ("demo", DEMO),
    ("mcp", MCP),
    ("dev-cert", DEV_CERT),
    ("lake", LAKE),
];

const STATUS: &str = "\
Examples:
  fleet-echo status                    # all clusters
  fleet-echo status -c prod --watch    # one cluster, every 5 s until Ctrl-C";

const TOP: &str = "\
Examples:
  fleet-echo top
  fleet-echo top -c prod --order age --every 10";

const OUTLIERS: &str = "\
Examples:
  fleet-echo outliers -c prod -w 15m
  fleet-echo outliers -c prod -w 24h -o csv > outliers.csv
  fleet-echo outliers --json | jq '.outliers[] | {node_id, rank, lag_ms}'";

const EXPLAIN: &str = "\
Examples:
  fleet-echo explain -c prod --rank 17
  fleet-echo explain -c prod --rank 17 -w 2h --plot rank17.png
A trace for https://ui.perfetto.dev:
  fleet-echo explain -c prod --rank 17 -w 15m --trace rank17.json";

const COST: &str = "\
Examples:
  fleet-echo cost -c prod -w 24h
  fleet-echo cost --from 2026-11-01 --to 2026-12-01 --json | jq .window_total";

const HISTORY: &str = "\
Examples:
  fleet-echo history -c prod --node gpu-7 -w 15m
  fleet-echo history -c prod --rank 17 --metric nccl.collective.wait_ms";

const SQL: &str = "\
Examples:
  fleet-echo sql --views
  fleet-echo sql \"SELECT rank, median(wait_mean_ms) FROM collectives GROUP BY 1\"
  fleet-echo sql --file query.sql -o csv > rows.csv";

const CLUSTERS: &str = "\
Examples:
  fleet-echo clusters
  fleet-echo clusters --no-headers -o wide";

const BUNDLE: &str = "\
Example:
  fleet-echo bundle -c prod 0123456789abcdef --file incident.tar.gz";

const REPORT: &str = "\
Examples:
  fleet-echo report --day yesterday
  fleet-echo report --day 2026-11-21 --format focus-csv --out focus.csv";

const SERVE: &str = "\
Prints the addresses in use when ready (port 0 picks a free port), that of the page, and the command \
line of an agent.

To send from any OpenTelemetry exporter:
  export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317
  export OTEL_EXPORTER_OTLP_PROTOCOL=grpc            # http/protobuf: port 4318

On this host, without TLS:
  fleet-echo serve --db fleet.duckdb --insecure-no-tls --rates rates.yaml

Clusters can be sharded over several instances. Agents and commands select the shard of a cluster by N:
  fleet-echo serve --db 0.duckdb --shard 0 --shards 3 \\
      --shard-url https://echo-{shard}.example:8081 \\
      --tls-cert tls.crt --tls-key tls.key --access access.yaml
  fleet-agent run --endpoint https://echo-{shard}.example:4317 --shards 3 \\
      --cluster prod --token-file token
  fleet-echo outliers --server https://echo-{shard}.example:8081 --shards 3 \\
      --cluster prod";

const DEMO: &str = "\
Examples:
  fleet-echo demo --speed max
  fleet-echo demo --keep        # and leave the page up, until Ctrl-C";

const MCP: &str = "\
Example:
  claude mcp add echo -- fleet-echo mcp --stdio --server http://127.0.0.1:8081";

const DEV_CERT: &str = "\
Example:
  fleet-echo dev-cert --dir tls --name echo.example --agent gpu-7";

const LAKE: &str = "\
Examples:
  fleet-echo lake status --lake ducklake:catalog.ducklake --lake-data lake/ \\
      --duckdb-extensions extensions/
  fleet-echo lake verify --lake ducklake:catalog.ducklake --lake-data lake/ \\
      --duckdb-extensions extensions/";
