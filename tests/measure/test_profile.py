# SPDX-License-Identifier: Apache-2.0
"""Time per operator of the file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import MeasureError, UsageError
from litesmith.measure import (
    Profile,
    Roofline,
    _recording,
    model_explorer_node_data,
    profile,
    profiling_proto,
    roofline,
    write_csv,
)
from litesmith.measure._attribution import attribute
from litesmith.measure._gains import Work, find_gains
from litesmith.measure._recording import Layout, record
from litesmith.model import Builder, Model
from litesmith.optimize import quantize
from litesmith.runtime import Session, partitions, random_inputs
from litesmith.zoo import build

pytestmark = pytest.mark.usefixtures("quick_profile")


def test_every_operator_has_its_time_and_the_parts_add_up(tiny: Path, tiny_model: Model) -> None:
    result = profile(tiny, runs=20)

    assert [o.kind for o in result.operators] == [o.kind for o in tiny_model.main.operators]
    assert [o.index for o in result.operators] == list(range(5))
    assert "stem" in result.operators[0].name
    assert result.operators[0].kernels == ("Convolution (NHWC, F32) IGEMM",)
    assert {o.delegate for o in result.operators} == {"XNNPACK"}
    assert result.runs == 20
    assert result.partitions == 1
    assert result.parts_us == pytest.approx(result.latency_us, rel=0.03)
    assert result.operators_us <= result.latency_us
    assert sum(k.mean_us for k in result.by_kind()) == pytest.approx(result.operators_us)
    assert result.operators[0].macs == 16 * 16 * 16 * 27
    assert Profile.from_json(result.to_json()) == result
    assert result.plot().data


ZOO = {
    "ds_cnn": {},
    "resnet_8": {},
    "mobilenet_v1": {"width": 0.25, "resolution": 128},
    "mobilenet_v2": {"width": 0.35, "resolution": 96},
    "mobilenet_v3_small": {"resolution": 96},
    "efficientnet_lite0": {"resolution": 96},
}


@pytest.mark.parametrize("scheme", ["float", "int8", "dynamic", "float16"])
@pytest.mark.parametrize("name", list(ZOO))
def test_the_kernels_of_a_net_are_those_of_its_operators(name: str, scheme: str) -> None:
    """Structure, not time: each kernel has an operator, and each operator that computes has a kernel."""
    model = build(name, **ZOO[name])
    if scheme != "float":
        model = quantize(model, scheme=scheme, check=False).model
    pieces = partitions(model)
    with Session(model, profiling=True) as session:
        session.run(random_inputs(session))
        (run, *_) = record(model, session, pieces, runs=2)

    owners = {s.operator for s in run.slices}
    assert None not in owners, [s.kernel for s in run.slices if s.operator is None]
    macs = {cost.index for cost in model.cost().operators if cost.macs}
    assert macs <= owners
    kernels = [s.duration_us for s in run.slices]
    assert sum(kernels) <= run.invoke_us + len(kernels), "whole microseconds, each rounded"
    assert run.invoke_us <= run.wall_us + 1


def test_kernels_are_aligned_with_operators_in_order() -> None:
    b = Builder()
    x = b.input("x", (1, 8, 8, 4))
    y = b.conv2d(x, 4, activation="RELU6")
    z = b.op("ADD", y, x)
    model = b.build({"y": b.op("LEAKY_RELU", z, alpha=0.1)})

    tags = ["Fully Connected (NC, F32) GEMM", "Add (ND)", "LeakyReLU (NC)", "Clamp (NC)", "RoPE (NTHC)"]
    assert attribute(model, [0, 1, 2], tags) == [0, 1, 2, 2, None]
    assert attribute(model, [0, 1, 2], ["Fully Connected (NC, F32) GEMM", "LeakyReLU (NC)"]) == [0, 2]
    assert attribute(model, [], tags) == [None] * 5
    assert attribute(model, [0, 1, 2], []) == []


def test_what_falls_out_of_the_fast_path_is_told_with_the_remedy() -> None:
    model = quantize(build("ds_cnn"), scheme="int16x8", check=False).model

    result = profile(model, runs=3, kernels="xnnpack")

    assert {o.delegate for o in result.operators} == {"built-in"}
    (oddity,) = [o for o in result.oddities if "int16" in o.what]
    assert oddity.operators
    assert oddity.remedy


def test_operators_of_our_delegate_are_timed_one_by_one() -> None:
    model = quantize(build("ds_cnn"), scheme="int16x8", check=False).model

    result = profile(model, runs=3)

    assert {o.delegate for o in result.operators} == {"Litesmith"}
    assert [o.index for o in result.operators] == list(range(len(model.main.operators)))
    assert all(len(o.kernels) == 1 and o.mean_us > 0 for o in result.operators)
    assert result.partitions == 1
    assert not any("int16" in oddity.what for oddity in result.oddities)
    assert result.parts_us == pytest.approx(result.latency_us)


def test_pruned_weights_on_dense_kernels_are_told() -> None:
    b = Builder()
    x = b.input("x", (1, 96, 96, 32))
    weight = np.random.default_rng(0).standard_normal((64, 1, 1, 32)).astype(np.float32)
    weight[np.random.default_rng(1).random(weight.shape) < 0.9] = 0
    y = b.op("CONV_2D", x, weight, np.zeros(64, np.float32), stride_w=1, stride_h=1)

    result = profile(b.build({"y": y}), runs=3)

    assert any("pruned" in oddity.what for oddity in result.oddities)


def test_the_hottest_operators_say_what_could_be_gained(tiny_model: Model) -> None:
    roof = Roofline(1, 10.0, 10.0, 40.0)
    macs = tiny_model.cost().operators[0].macs
    best_us = macs / 10.0 / 1000

    slow = find_gains(tiny_model, [Work(0, "CONV_2D", 10 * best_us, macs, 1)], 20 * best_us, roof)
    good = find_gains(tiny_model, [Work(0, "CONV_2D", best_us, macs, 1)], 20 * best_us, roof)

    assert slow[0].saves_us == pytest.approx(9 * best_us)
    assert "10 %" in slow[0].how
    assert good[0].saves_us == pytest.approx(0.75 * best_us)
    assert "int8" in good[0].how
    assert find_gains(tiny_model, [Work(0, "CONV_2D", 0.001, 0, 0)], 1000.0, roof) == ()


def test_the_roof_is_the_lower_of_arithmetic_and_memory() -> None:
    roof = Roofline(1, 50.0, 10.0, 100.0)

    assert roof.attainable_gmacs(1000, 10) == 50
    assert roof.attainable_gmacs(1000, 10, "int8") == 100
    assert roof.attainable_gmacs(10, 10) == 10
    assert (roof.bound(1000, 10), roof.bound(10, 10)) == ("arithmetic", "memory")
    measured = roofline(1)
    assert min(measured.gmacs_per_s, measured.int8_gmacs_per_s, measured.gbytes_per_s) > 0


def test_the_formats_of_other_tools(tiny: Path, tmp_path: Path) -> None:
    from ai_edge_litert import profiling_info_pb2

    result = profile(tiny, runs=5)
    write_csv(result, tmp_path / "p.csv")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    nodes = json.loads(model_explorer_node_data(result))
    message = profiling_info_pb2.BenchmarkProfilingData()
    message.ParseFromString(profiling_proto(result))

    assert [int(row["index"]) for row in rows] == [o.index for o in result.operators]
    assert [float(row["mean_us"]) for row in rows] == [o.mean_us for o in result.operators]
    assert float(rows[-1]["cumulative_share"]) <= 1.0
    (graph,) = nodes.values()
    assert {int(key): value["value"] for key, value in graph["results"].items()} == {
        o.index: round(o.mean_us, 3) for o in result.operators
    }
    (subgraph,) = message.runtime_profile.subgraph_profiles
    assert [entry.node_type for entry in subgraph.per_op_profiles] == [o.kind for o in result.operators]
    for entry, operator in zip(subgraph.per_op_profiles, result.operators, strict=True):
        assert entry.times_called == 5
        assert entry.inference_microseconds.avg == round(operator.mean_us)
        assert entry.inference_microseconds.max >= entry.inference_microseconds.min


def test_one_run_is_too_few(tiny: Path) -> None:
    with pytest.raises(UsageError):
        profile(tiny, runs=1)


def test_ctrl_c_keeps_the_runs_until_then(tiny: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_recording, "_record_some", 3)

    result = profile(tiny, runs=100_000)

    assert not result.complete
    assert 2 <= result.runs < 100_000


def test_a_run_without_events_is_left_out(tiny_model: Model) -> None:
    layout = Layout(tiny_model, partitions(tiny_model))

    assert layout.match([], [(0.0, 1.0)]) == []


def test_an_output_of_unknown_shape_does_not_hinder() -> None:
    b = Builder()
    x = b.input("x", (4,))
    y = b.conv2d(b.input("image", (1, 8, 8, 3)), 4, kernel=3)
    found = b.op("WHERE", b.op("GREATER", x, np.zeros(4, np.float32)), outputs=[((4, 1), "int64")])
    result = profile(b.build({"indices": found, "y": y}), runs=5)
    assert sorted(o.kind for o in result.operators) == ["CONV_2D", "GREATER", "WHERE"]
    assert max(o.index for o in result.operators) == 2, "no operator that is not in the file"


def test_a_model_that_only_the_interpreter_runs_is_told() -> None:
    b = Builder()
    x = b.input("x", (2,), "string")
    model = b.build({"y": b.op("EXPAND_DIMS", x, np.array(0, np.int32), outputs=[((1, 2), "string")])})
    with pytest.raises(MeasureError, match=r"one by one.*Interpreter.*no profiler.*litesmith bench"):
        profile(model, runs=5)
