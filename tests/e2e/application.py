"""An application that measures itself with OpenTelemetry's SDK. usage: application.py ENDPOINT CONTAINER_ID

Says "ready" once something was exported, and exports every second until its standard input ends.
"""

import sys

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

endpoint, container = sys.argv[1:]
resource = Resource.create(
    {
        "service.name": "truth-e2e",
        "service.version": "4.2",
        "service.instance.id": "the-application-itself",
        "container.id": container,
    }
)
exporter = OTLPMetricExporter(endpoint=endpoint, insecure=True)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1000)
provider = MeterProvider(resource=resource, metric_readers=[reader])
meter = provider.get_meter("shop")
meter.create_up_down_counter("shop.cache.entries", unit="{entry}").add(1000)
meter.create_counter("shop.orders", unit="{order}").add(7)
provider.force_flush()
print("ready", flush=True)
sys.stdin.read()
provider.shutdown()
