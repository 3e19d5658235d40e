"""Reads an OTLP metrics request from standard input and prints it as the OTLP specification's JSON."""

import base64
import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


def with_hex_ids(node):
    """protobuf's JSON writes bytes as base64, OTLP's writes ids as hexadecimal digits."""
    if isinstance(node, list):
        return [with_hex_ids(item) for item in node]
    if not isinstance(node, dict):
        return node
    ids = ("traceId", "spanId")
    return {k: base64.b64decode(v).hex() if k in ids else with_hex_ids(v) for k, v in node.items()}


request = ExportMetricsServiceRequest()
request.ParseFromString(sys.stdin.buffer.read())
json.dump(with_hex_ids(MessageToDict(request, use_integers_for_enums=True)), sys.stdout)
