# SPDX-License-Identifier: Apache-2.0
"""The files of a search layer by layer: the time of each kind of operator before and after, the winner, the float model."""

from __future__ import annotations

from collections.abc import Sequence

from litesmith.report._layers import decibels
from litesmith.report._page import Section, table
from litesmith.report._plots import before_and_after, timeline
from litesmith.tune import Tuned, TunedLayer


def layer_sections(result: Tuned) -> list[Section]:
    """Return what is known of the layers of the winner and of the float model."""
    winner = result.winner
    sections = []
    if winner is not None and winner.number and result.layers:
        if result.float_layers:
            sections.append(_by_kind(result.float_layers, result.layers))
        sections.append(_every("The winner, layer by layer", "One inference of the winner", result.layers))
    if result.float_layers:
        sections.append(
            _every("The float model, layer by layer", "One inference of the float model", result.float_layers)
        )
    return sections


def _by_kind(before: Sequence[TunedLayer], after: Sequence[TunedLayer]) -> Section:
    kinds = {layer.kind for layer in (*before, *after)}
    times_us = {kind: (_time_us(before, kind), _time_us(after, kind)) for kind in kinds}
    order = sorted(kinds, key=lambda kind: (-max(times_us[kind]), kind))
    rows = [
        (
            kind,
            *(cell for layers in (before, after) for cell in _count_and_time(layers, kind)),
            f"{times_us[kind][1] - times_us[kind][0]:+.1f}",
        )
        for kind in order
    ]
    whole = [sum(layer.time_us for layer in layers) for layers in (before, after)]
    drawn = [(kind, *times_us[kind]) for kind in order if max(times_us[kind]) > 0]
    return Section(
        "Where the time goes, before and after",
        text=(
            f"The operators of the float model take {whole[0]:,.0f} µs together, those of the winner {whole[1]:,.0f} µs. "
            "Each file was profiled by itself, which costs some time; the latencies of the trials are without a profiler."
        ),
        figures=(before_and_after("Time by kind of operator", drawn, names=("the float model", "the winner")),)
        if drawn
        else (),
        table=table(["kind", "in the float model", "float µs", "in the winner", "winner µs", "change in µs"], rows),
    )


def _every(title: str, figure: str, layers: Sequence[TunedLayer]) -> Section:
    is_compared = any(layer.error_share is not None for layer in layers)
    rows = [
        (
            layer.index,
            layer.kind,
            layer.name,
            layer.dtype,
            layer.delegate,
            f"{layer.size_bytes / 1000:.1f} kB",
            f"{layer.time_us:.1f}",
            *((_share(layer), decibels(layer.sqnr_db)) if is_compared else ()),
        )
        for layer in layers
    ]
    text = "Size of its constants, time of its kernels"
    text += ", its share of the error at the outputs, signal over error there." if is_compared else "."
    columns = ["#", "kind", "name", "type", "runs in", "size", "µs", *(["of the error", "dB"] if is_compared else [])]
    spans = [(f"#{x.index} {x.kind} {x.name}", x.time_us, x.kind) for x in layers if x.time_us > 0]
    return Section(
        title,
        text=text,
        figures=(timeline(f"{figure}, operator by operator", spans),) if spans else (),
        table=table(columns, rows, left=5),
    )


def _share(layer: TunedLayer) -> str:
    return "" if layer.error_share is None else f"{100 * layer.error_share:.1f} %"


def _time_us(layers: Sequence[TunedLayer], kind: str) -> float:
    return sum(layer.time_us for layer in layers if layer.kind == kind)


def _count_and_time(layers: Sequence[TunedLayer], kind: str) -> tuple[str, str]:
    count = sum(layer.kind == kind for layer in layers)
    return (str(count), f"{_time_us(layers, kind):.1f}") if count else ("", "")
