"""Spans and counters of OpenTelemetry, of all rooms that do I/O: `signals`. It imports no other."""
