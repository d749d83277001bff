"""Sends one gauge per rank with a plain OpenTelemetry SDK; the endpoint comes from the environment."""

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

resource = Resource.create({"ingero.cluster.id": "sdk-cluster", "ingero.node.id": "sdk-node"})
reader = PeriodicExportingMetricReader(OTLPMetricExporter(insecure=True), export_interval_millis=60_000)
provider = MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
gauge = provider.get_meter("a-plain-client").create_gauge("ingero.node.health_score")
for rank in range(3):
    gauge.set(0.25 * (rank + 1), {"nccl.rank": rank, "nccl.nranks": 3})
# Flushing is enough; shutting down as well would report the gauges a second time.
if not provider.force_flush():
    raise SystemExit("the metrics were not delivered")
