# SPDX-License-Identifier: Apache-2.0
"""Perfetto's native trace format: tracks, slices that nest and counters, written packet by packet as they come."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, Any

_PROCESS_TRACK = 1


class TraceWriter:
    """Writes a trace into an open file; times are CLOCK_MONOTONIC in microseconds.

    A track is made when its name is first used. Slices of one track must nest, and come in the order of their begin
    with the outer one first.
    """

    def __init__(self, file: IO[bytes], process: str) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._proto: Any = proto
        self._builder = StreamingTraceProtoBuilder(file)
        self._tracks: dict[str, int] = {}
        self.slices = 0
        packet = self._packet(0.0)
        packet.sequence_flags = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.track_descriptor.uuid = _PROCESS_TRACK
        packet.track_descriptor.process.pid = os.getpid()
        packet.track_descriptor.process.process_name = process
        self._builder.write_packet(packet)

    def slice(
        self,
        track: str,
        name: str,
        start_us: float,
        duration_us: float,
        details: Mapping[str, int | str] | None = None,
    ) -> None:
        """Write a slice, as its begin and its end; ``details`` show when it is clicked."""
        uuid = self._track(track)
        begin = self._packet(start_us)
        event = begin.track_event
        event.type = self._proto.TrackEvent.TYPE_SLICE_BEGIN
        event.track_uuid = uuid
        event.name = name
        for key, value in (details or {}).items():
            annotation = event.debug_annotations.add(name=key)
            if isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.string_value = value
        self._builder.write_packet(begin)
        end = self._packet(start_us + duration_us)
        end.track_event.type = self._proto.TrackEvent.TYPE_SLICE_END
        end.track_event.track_uuid = uuid
        self._builder.write_packet(end)
        self.slices += 1

    def counter(self, track: str, at_us: float, value: float) -> None:
        """Write one value of a counter."""
        uuid = self._track(track, counter=True)
        packet = self._packet(at_us)
        packet.track_event.type = self._proto.TrackEvent.TYPE_COUNTER
        packet.track_event.track_uuid = uuid
        packet.track_event.double_counter_value = value
        self._builder.write_packet(packet)

    def _track(self, name: str, *, counter: bool = False) -> int:
        if name not in self._tracks:
            uuid = self._tracks[name] = _PROCESS_TRACK + 1 + len(self._tracks)
            packet = self._packet(0.0)
            packet.track_descriptor.uuid = uuid
            packet.track_descriptor.parent_uuid = _PROCESS_TRACK
            packet.track_descriptor.name = name
            if counter:
                packet.track_descriptor.counter.SetInParent()
            self._builder.write_packet(packet)
        return self._tracks[name]

    def _packet(self, at_us: float) -> Any:
        packet = self._builder.create_packet()
        packet.timestamp = round(at_us * 1000)
        packet.trusted_packet_sequence_id = 1
        return packet
