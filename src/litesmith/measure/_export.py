# SPDX-License-Identifier: Apache-2.0
"""A profile in the formats of other tools: CSV, LiteRT's own profiling proto, node data for Model Explorer."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from litesmith.measure._profile import OperatorTime, Profile

COLUMNS = (
    "index", "kind", "name", "kernels", "delegate", "partition", "calls", "mean_us", "p50_us", "p95_us", "share",
    "cumulative_share", "macs", "gmacs_per_s", "bytes_moved", "roof", "bound",
)  # fmt: skip
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e5533c"}]


def write_csv(profile: Profile, path: str | Path) -> None:
    """Write a line per operator, in the order of the file."""
    cumulative = 0.0
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for operator in profile.operators:
            cumulative += operator.share
            sums = {"calls": profile.runs, "cumulative_share": cumulative}
            writer.writerow([sums[c] if c in sums else _cell(operator, c) for c in COLUMNS])


def _cell(operator: OperatorTime, column: str) -> object:
    value = getattr(operator, column)
    return " + ".join(value) if isinstance(value, tuple) else value


def profiling_proto(profile: Profile) -> bytes:
    """Return the bytes of LiteRT's ``BenchmarkProfilingData``, as its ``benchmark_model`` writes them."""
    from ai_edge_litert import profiling_info_pb2

    message = profiling_info_pb2.BenchmarkProfilingData(model_name=profile.model)
    subgraph = message.runtime_profile.subgraph_profiles.add(subgraph_name="main", subgraph_index=0)
    for order, operator in enumerate(profile.operators):
        entry = subgraph.per_op_profiles.add(
            node_type=operator.kind, name=operator.name, times_called=profile.runs, run_order=order
        )
        times = entry.inference_microseconds
        times.avg, times.count = round(operator.mean_us), profile.runs
        times.sum = round(operator.mean_us * profile.runs)
        times.min, times.max = round(operator.min_us), round(operator.max_us)
        times.stddev, times.variance = operator.deviation_us, operator.deviation_us**2
    serialized: bytes = message.SerializeToString()
    return serialized


def model_explorer_node_data(profile: Profile) -> str:
    """Return JSON that Model Explorer lays over the graph: microseconds per operator, by the index of the operator."""
    results = {str(o.index): {"value": round(o.mean_us, 3)} for o in profile.operators}
    return json.dumps({"main": {"results": results, "gradient": _GRADIENT}}, indent=2)
