# SPDX-License-Identifier: Apache-2.0
"""Accelerators for real: XNNPACK, Litesmith's delegate, an external one compiled here, OpenVINO, and the GPU's path."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import litesmith
from litesmith.accuracy import MetricScore
from litesmith.data import Dataset
from litesmith.errors import DataError, LitesmithError, MeasureError, UsageError
from litesmith.measure import Accelerators, accelerators
from litesmith.measure._accelerator_process import WorkerFailed, worker_process
from litesmith.measure._accelerator_worker import Job
from litesmith.measure._accelerators import ILLEGAL, _difference
from litesmith.measure._placement import Evidence, place
from litesmith.model import Builder, Model
from litesmith.runtime import Session, custom_op, forget_custom_op, load_custom_op, random_inputs
from litesmith.runtime._accelerators import OPENVINO_VERSION, choose, known_accelerators, vulkan_driver

QUICK = {"runs": 10, "seconds": 0.1}
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model() -> Model:
    """Convolutions, two ADDs, and one operator that neither XNNPACK nor a GPU nor OpenVINO takes, in the middle."""
    b = Builder("mixed")
    x = b.input("x", (1, 8, 8, 4))
    first = b.conv2d(x, 4, kernel=3)
    y = b.op("ADD", b.conv2d(first, 4, kernel=3), first, outputs=[((1, 8, 8, 4), "float32")])
    lengths = np.array([3], np.int32)
    y = b.op("REVERSE_SEQUENCE", y, lengths, outputs=[((1, 8, 8, 4), "float32")], seq_dim=1, batch_dim=0)
    y = b.op("ADD", b.conv2d(y, 4, kernel=3), y, outputs=[((1, 8, 8, 4), "float32")])
    return b.build({"y": b.op("MEAN", y, np.array([1, 2], np.int32), outputs=[((1, 4), "float32")])})


@pytest.fixture(scope="module")
def add_delegate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile a delegate with")
    library = tmp_path_factory.mktemp("delegate") / "libadd.so"
    source = Path(__file__).with_name("add_delegate.cc")
    command = [compiler, "-O1", "-shared", "-fPIC", f"-I{REPOSITORY / 'native' / 'src'}", "-o", library, source]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def result(model: Model, add_delegate: Path) -> Accelerators:
    """Everything this machine has, at once."""
    return accelerators(model, delegate=add_delegate, **QUICK)


def test_all_are_tried_or_told(result: Accelerators) -> None:
    tried = {run.name for run in (*result.runs, *result.absent)}
    assert tried == {*(a.name for a in known_accelerators()), "libadd.so"}
    for run in result.absent:
        assert run.problem
        assert not run.samples_ms
    for run in result.runs:
        assert len(run.samples_ms) == 10
        assert run.placement is not None
        assert run.verdict
        assert run.compile_ms > 0
        assert run.first_ms > 0
        assert run.memory is not None
        assert run.difference is not None
    assert Accelerators.from_json(result.to_json()) == result
    assert len(result.plot().data) == len(result.runs)
    assert result.complete


def test_xnnpack_runs_all_but_one(result: Accelerators) -> None:
    run = result.run("xnnpack")
    assert run.placement is not None
    assert (run.placement.ran, run.placement.taken, run.placement.total, run.placement.partitions) == (True, 6, 7, 2)
    assert [(f.kind, f.count) for f in run.placement.fallback] == [("REVERSE_SEQUENCE", 1)]
    assert "XNNPACK" in run.placement.fallback[0].reason
    assert run.difference is not None
    assert run.difference.largest < 1e-5


def test_half_precision_is_seen_in_kernels_and_numbers(result: Accelerators) -> None:
    half, full = result.run("xnnpack-fp16"), result.run("xnnpack")
    assert half.placement is not None
    assert half.difference is not None
    assert full.difference is not None
    assert half.placement.ran
    assert "F16" in half.placement.proof
    assert half.difference.largest > 10 * full.difference.largest


def test_the_weight_cache_is_written(result: Accelerators) -> None:
    run = result.run("xnnpack-cache")
    assert run.placement is not None
    assert "its cache holds" in run.placement.proof
    assert run.ran


def test_kernels_without_xnnpack(result: Accelerators) -> None:
    for name in ("builtin", "reference"):
        run = result.run(name)
        assert run.placement is not None
        assert run.placement.ran
        assert "0 of XNNPACK's" in run.placement.proof
    assert result.run("reference").difference is not None
    assert result.run("reference").difference.largest == 0  # type: ignore[union-attr]


def test_an_external_delegate_shares_with_xnnpack(result: Accelerators) -> None:
    run = result.run("libadd.so")
    assert run.placement is not None
    assert (run.placement.taken, run.placement.partitions) == (2, 2)
    assert run.placement.proof == "the profile has 2 calls of AddDelegate"
    assert run.difference is not None
    assert run.difference.largest < 1e-5


def test_a_delegates_options_reach_it(model: Model, add_delegate: Path) -> None:
    run = accelerators(model, only=[], delegate=add_delegate, option={"offset": "0.5"}, **QUICK).run("libadd.so")
    assert run.difference is not None
    assert run.difference.largest > 0.1
    assert run.is_wrong
    assert run.verdict.startswith("wrong numbers, off by"), "a wrong delegate is found out"
    _wait_until_no_worker_is_left()


@pytest.mark.parametrize(
    ("option", "problem", "remedy"),
    [
        ("crash", r"its process crashed \(SIGABRT\)", ""),
        ("illegal", r"its process crashed \(SIGILL\)", ILLEGAL),
        ("refuse", "refuses to start: it was asked", ""),
    ],
)
def test_a_delegate_that_fails_takes_nothing_along(
    model: Model, add_delegate: Path, option: str, problem: str, remedy: str
) -> None:
    result = accelerators(model, only=[], delegate=add_delegate, option={option: "yes"}, **QUICK)
    assert [run.name for run in result.runs] == ["xnnpack", "reference"]
    assert not result.run("libadd.so").samples_ms
    assert re.search(problem, result.run("libadd.so").problem), result.run("libadd.so").problem
    assert result.run("libadd.so").remedy == remedy


def test_a_delegate_that_crashes_when_it_is_looked_at_takes_nothing_along(model: Model, add_delegate: Path) -> None:
    """After it was timed: it is made once more to see where it ran."""
    data = Dataset.from_arrays(np.zeros((3, 8, 8, 4), np.float32))
    result = accelerators(model, only=[], delegate=add_delegate, option={"once": "yes"}, data=data, **QUICK)
    assert [run.name for run in result.runs] == ["xnnpack", "reference"]
    assert all(run.agreement is not None and run.agreement.samples == 3 for run in result.runs)
    assert result.run("libadd.so").samples_ms
    assert "its process crashed (SIGABRT)" in result.run("libadd.so").problem


def test_an_answer_that_ctrl_c_left_behind_is_not_taken_for_the_next(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.tflite")
    with Session(model) as session:
        np.savez(tmp_path / "feeds.npz", allow_pickle=False, **random_inputs(session, 0))
    job = Job(str(tmp_path / "m.tflite"), choose(["xnnpack"])[0], 1, str(tmp_path), str(tmp_path / "feeds.npz"))
    with worker_process(job, tmp_path) as worker:
        worker.ask("open", to=str(tmp_path / "outputs.npz"), warm_s=0.1, reset=False)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            worker.ask("time", runs=None, seconds=3.0)
        assert "log" in worker.ask("prove")
        assert len(worker.ask("time", runs=7, seconds=0)["samples_ms"]) == 7
        os.kill(worker._process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(WorkerFailed, match="killed"):
                worker.ask("greet")


def test_a_delegate_that_takes_nothing_did_not_run(add_delegate: Path) -> None:
    b = Builder()
    model = b.build({"y": b.op("NEG", b.input("x", (4,)))})
    run = accelerators(model, only=[], delegate=add_delegate, **QUICK).run("libadd.so")
    assert not run.ran
    assert run.verdict == "did not run there: it takes none of this model's operators"


def test_litesmiths_delegate_takes_int16_and_no_float(model: Model, result: Accelerators) -> None:
    if result.run("litesmith").problem:
        pytest.skip(result.run("litesmith").problem)
    assert not result.run("litesmith").ran
    assert "int16x8" in result.run("litesmith").verdict
    data = np.random.default_rng(0).standard_normal((8, 1, 8, 8, 4)).astype(np.float32)
    b = Builder()
    x = b.conv2d(b.conv2d(b.input("x", (1, 8, 8, 4)), 8, kernel=3), 8)
    quantized = litesmith.quantize(b.build({"y": x}), scheme="int16x8", data=list(data)).model
    run = accelerators(quantized, only=["litesmith"], **QUICK).run("litesmith")
    assert run.placement is not None
    assert run.placement.taken is not None
    assert run.placement.taken >= 2
    assert run.difference is not None
    assert run.difference.largest < 1e-3


def test_openvino_on_the_cpu(result: Accelerators) -> None:
    if importlib.util.find_spec("openvino") is None:
        pytest.skip(f"openvino=={OPENVINO_VERSION} is not installed")
    run = result.run("openvino-cpu")
    if "SIGILL" in run.problem:  # seen in virtual machines that announce AMX
        assert run.remedy == ILLEGAL
        pytest.skip("OpenVINO executes instructions that this machine does not allow")
    assert not run.problem, run.problem
    assert run.placement is not None
    assert run.placement.ran
    assert run.placement.device == "CPU"
    assert run.placement.taken is not None
    assert run.placement.taken < run.placement.total
    assert [(f.kind, f.count) for f in run.placement.fallback] == [("REVERSE_SEQUENCE", 1)]
    assert run.placement.fallback[0].reason == "OpenVINO's compiler for LiteRT has no such operator"
    assert run.difference is not None
    if "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):  # what OpenVINO then computes in: 8 bits
        assert run.difference.relative < 2**-7
    else:
        assert run.difference.largest < 1e-4


def test_webgpu_on_a_software_gpu(result: Accelerators) -> None:
    if vulkan_driver() is None:
        pytest.skip("there is no Vulkan driver; Debian's package chromium has SwiftShader")
    run = result.run("webgpu")
    assert not run.problem, run.problem
    assert run.placement is not None
    assert run.placement.ran
    assert run.placement.device
    assert (run.placement.taken, run.placement.partitions) == (3, 1)
    assert "LITERT_WEBGPU" in run.placement.proof
    outside = "outside the one piece that the GPU takes"
    assert {(f.kind, f.count, f.reason) for f in run.placement.fallback} == {
        ("REVERSE_SEQUENCE", 1, "Operation is not supported"),
        *((kind, 1, outside) for kind in ("CONV_2D", "ADD", "MEAN")),
    }
    assert run.difference is not None
    assert run.difference.largest < 0.05


def test_a_whole_model_on_the_gpu() -> None:
    if vulkan_driver() is None:
        pytest.skip("there is no Vulkan driver; Debian's package chromium has SwiftShader")
    run = accelerators(litesmith.samples.model(), only=["webgpu"], **QUICK).run("webgpu")
    assert run.placement is not None
    assert run.placement.taken == run.placement.total
    assert run.placement.partitions == 1


def test_what_is_not_there_has_a_reason_and_a_remedy(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr("litesmith.runtime._accelerators._SWIFTSHADER_FOLDERS", ())
    monkeypatch.setattr("litesmith.runtime._accelerators._VULKAN_FOLDERS", ())
    monkeypatch.setenv("VK_ICD_FILENAMES", "")
    monkeypatch.setattr("litesmith.runtime._accelerators._openvino_folder", lambda: None)
    result = accelerators(model, only=["webgpu", "openvino-cpu"], **QUICK)
    assert result.run("webgpu").problem == "there is no Vulkan driver"
    assert "chromium" in result.run("webgpu").remedy
    assert result.run("openvino-cpu").remedy == f"pip install openvino=={OPENVINO_VERSION}"


def test_a_silent_fallback_is_found_out() -> None:
    """OpenVINO without its device: LiteRT runs on the CPU and says that all is accelerated."""
    model = litesmith.samples.model()
    seen = Evidence(
        log=("INFO: Partitioned subgraph<0>, selected 9 ops, from a total of 9 ops. resulted in 1 partitions.",),
        printed="ERROR: [x.cc:1] Exception in compilation: Exception from a.cpp:1:\nNo device NPU\n\n",
        events=(("delegate_profiled_operator", "Convolution (NHWC, F32) IGEMM", 0),),
    )
    placement = place("openvino-npu", model, seen)
    assert not placement.ran
    assert placement.fallback[0].reason == "No device NPU"


def test_the_gpu_without_a_node_did_not_run() -> None:
    model = litesmith.samples.model()
    report = "Following operations are not supported by GPU delegate:\nCONV_2D: Tensor type(INT16) is not supported.\n"
    placement = place("webgpu", model, Evidence(errors=report, printed="Selected adapter: Some GPU, arch=x"))
    assert not placement.ran
    assert placement.fallback[0].reason == "Tensor type(INT16) is not supported"
    cut_off = place("webgpu", model, Evidence(errors=report, note="9"))
    assert (cut_off.ran, cut_off.taken) == (True, None)


def test_the_piece_of_the_gpu_is_where_the_profile_stops(model: Model) -> None:
    """The CPU was seen to run operators 0 to 3, so the GPU's three are those after REVERSE_SEQUENCE."""
    report = (
        "Following operations are not supported by GPU delegate:\nREVERSE_SEQUENCE: Operation is not supported.\n"
        "3 operations will run on the GPU, and the remaining 4 operations will run on the CPU.\n"
    )
    before = tuple(("operator", model.main.operators[i].name, i) for i in range(4))
    later = place(
        "webgpu", model, Evidence(errors=report, note="7", events=(*before, ("operator", "LITERT_WEBGPU", 7)))
    )
    assert {(f.kind, f.count) for f in later.fallback} == {("CONV_2D", 2), ("ADD", 1), ("REVERSE_SEQUENCE", 1)}
    other = place("webgpu", model, Evidence(errors=report.replace("3 operations", "2 operations"), note="7"))
    assert other.partitions is None, "a count that does not fit is no piece that we know"
    assert other.fallback[-1].kind == "other operators"


def test_answers_on_data(tmp_path: Path) -> None:
    model, data = litesmith.samples.model(), litesmith.samples.dataset()
    result = accelerators(model, only=["xnnpack-fp16"], data=data, samples=40, **QUICK)
    expected = litesmith.evaluate(model, data.take(40, seed=0)).value
    for run in result.runs:
        assert run.agreement is not None
        assert run.agreement.samples == 40
        assert run.agreement.same_answer is not None
        assert run.agreement.same_answer >= 0.95
    assert _score(result, "xnnpack").metric == "top1"
    assert _score(result, "xnnpack").value == pytest.approx(expected)


def _score(result: Accelerators, name: str) -> MetricScore:
    agreement = result.run(name).agreement
    assert agreement is not None
    assert agreement.score is not None
    return agreement.score


def test_quantized_inputs_get_quantized_samples() -> None:
    data = litesmith.samples.dataset()
    model = litesmith.quantize(litesmith.samples.model(), scheme="int8", io="int8", data=data.take(50, seed=1)).model
    result = accelerators(model, only=[], data=data, samples=40, **QUICK)
    expected = litesmith.evaluate(model, data.take(40, seed=0)).value
    assert _score(result, "xnnpack").value == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("metric", ["top2", "f1", "agreement"])
def test_any_metric_of_evaluate(metric: str) -> None:
    model, data = litesmith.samples.model(), litesmith.samples.dataset()
    result = accelerators(model, only=[], data=data, samples=40, metric=metric, **QUICK)
    expected = litesmith.evaluate(model, data.take(40, seed=0), metric=metric, reference=model).value
    found = _score(result, "reference")
    assert found.metric == metric
    assert found.value == pytest.approx(expected)
    assert found.low <= found.value <= found.high


def test_numbers_as_labels(model: Model) -> None:
    x = np.random.default_rng(0).normal(size=(8, *model.main.tensors[model.main.inputs[0]].shape[1:]))
    with Session(model) as session:
        y = np.stack([next(iter(session.run({"x": one[None].astype(np.float32)}).values())).copy() for one in x])
    data = Dataset.open({"x": x.astype(np.float32)}, labels=y.reshape(8, -1) + 1)
    result = accelerators(model, only=[], data=data, metric="mse", **QUICK)
    assert _score(result, "xnnpack").value == pytest.approx(1, rel=1e-4)
    assert accelerators(model, only=[], data=data, **QUICK).run("xnnpack").agreement.score is None  # type: ignore[union-attr]


def test_a_metric_that_does_not_fit_is_told_before_anything_runs(model: Model) -> None:
    data = Dataset.open({"x": np.zeros((2, *model.main.tensors[model.main.inputs[0]].shape[1:]), np.float32)})
    with pytest.raises(UsageError, match="give data too"):
        accelerators(model, metric="top1")
    with pytest.raises(DataError, match="needs labels"):
        accelerators(model, data=data, metric="top1")
    with pytest.raises(UsageError, match="no metric"):
        accelerators(model, data=data, metric="beauty")


def test_numbers_that_are_none_are_wrong() -> None:
    expected = {"y": np.array([1.0, np.nan, np.inf, 2.0])}
    assert _difference(expected, expected).largest == 0
    assert _difference({"y": np.array([np.nan, np.nan, np.inf, 2.0])}, expected).relative == np.inf
    assert _difference({"y": np.array([1.0, np.nan, np.inf, 2.5])}, expected).relative == 0.25


def test_a_model_that_only_the_interpreter_runs(assets: Path) -> None:
    """An LSTM with variable tensors: the kernels of the CPU are compared all the same, the others say why not."""
    data = Dataset.open(assets / "mnist" / "test.npz", preprocess="scale=1/255").take(20, seed=0)
    result = accelerators(assets / "mnist" / "lstm_float.tflite", data=data, only=["builtin", "xnnpack-fp16"], **QUICK)
    assert [run.name for run in result.runs] == ["xnnpack", "builtin", "reference"]
    assert "needs LiteRT's compiled-model API" in result.run("xnnpack-fp16").problem
    for run in result.runs:
        assert run.ran
        assert run.placement is not None
        assert "Interpreter" in run.placement.proof
    placement = result.run("xnnpack").placement
    assert placement is not None
    assert placement.taken is not None
    assert placement.taken + sum(f.count for f in placement.fallback) == placement.total
    expected = litesmith.evaluate(assets / "mnist" / "lstm_float.tflite", data).value
    assert _score(result, "xnnpack").value == pytest.approx(expected), "the state is reset before each sample"


def test_custom_operators_come_along(tmp_path: Path) -> None:
    b = Builder()
    y = b.op("CUSTOM", b.input("x", (3,)), custom_code="AccelOp", outputs=[((3,), "float32")])
    model, file = b.build({"y": y}), tmp_path / "kernels.py"
    file.write_text("import litesmith\n@litesmith.custom_op('AccelOp')\ndef f(x): return x + 1\n")
    load_custom_op(str(file))
    try:
        result = accelerators(model, only=["builtin"], **QUICK)
    finally:
        forget_custom_op("AccelOp")
    assert result.run("builtin").difference is not None
    assert result.run("builtin").difference.largest == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options",
    [{"only": ["cuda"]}, {"runs": 0}, {"seconds": 0}, {"samples": 0}, {"option": {"a": "b"}}, {"delegate": "/none.so"}],
)
def test_arguments_that_make_no_sense(model: Model, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        accelerators(model, **options)  # type: ignore[arg-type]


def test_a_library_that_is_no_delegate(model: Model, tmp_path: Path) -> None:
    text = tmp_path / "lib.so"
    text.write_text("hello")
    assert "cannot be loaded" in accelerators(model, only=[], delegate=text, **QUICK).run("lib.so").problem


def test_a_broken_model_is_told(tmp_path: Path, model: Model) -> None:
    broken = replace(model, subgraphs=(replace(model.main, outputs=(99,)),))
    with pytest.raises(LitesmithError):
        accelerators(broken, **QUICK)


def _wait_until_no_worker_is_left() -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        mine = [p for p in Path("/proc").glob("[0-9]*/stat") if _parent(p) == os.getpid() and _is_worker(p.parent)]
        if not mine:
            return
        time.sleep(0.1)
    pytest.fail(f"workers are left: {mine}")


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def _is_worker(folder: Path) -> bool:
    try:
        return b"_accelerator_worker" in (folder / "cmdline").read_bytes()
    except OSError:
        return False


def test_outputs_whose_shape_only_a_run_knows() -> None:
    b = Builder()
    x = b.input("x", (4,))
    found = b.op("WHERE", b.op("GREATER", x, np.zeros(4, np.float32)), outputs=[((4, 1), "int64")])
    model = b.build({"y": found})
    run = accelerators(model, only=[], **QUICK).run("xnnpack")
    assert run.difference is not None
    assert run.difference.largest == 0
    data = Dataset.from_arrays(np.array([[1, 1, 0, 0], [1, 0, 0, 0]], np.float32))
    with pytest.raises(MeasureError, match="depends on the sample"):
        accelerators(model, only=[], data=data, **QUICK)


def test_a_model_that_no_accelerator_takes_is_told(tmp_path: Path) -> None:
    b = Builder()
    model, file = (
        b.build({"y": b.op("CUSTOM", b.input("x", (3,)), custom_code="Ill", outputs=[((3,), "float32")])}),
        tmp_path / "ill.py",
    )
    file.write_text("import litesmith\n@litesmith.custom_op('Ill')\ndef f(x): return x.ill\n")
    load_custom_op(str(file))
    try:
        with pytest.raises(MeasureError, match="no accelerator runs (.|\n)*no attribute 'ill'"):
            accelerators(model, only=[], **QUICK)
    finally:
        forget_custom_op("Ill")


def test_a_kernel_that_no_other_process_has_is_told() -> None:
    b = Builder()
    model = b.build({"y": b.op("CUSTOM", b.input("x", (3,)), custom_code="Here", outputs=[((3,), "float32")])})
    custom_op("Here", np.negative)
    try:
        with pytest.raises(MeasureError, match="'Here' .* in this program only"):
            accelerators(model, **QUICK)
    finally:
        forget_custom_op("Here")


def test_data_is_a_dataset_of_the_models_inputs(model: Model) -> None:
    wrong = Dataset.from_arrays(np.zeros((4, 3, 3, 4), np.float32))
    with pytest.raises(LitesmithError):
        accelerators(model, only=[], data=wrong, **QUICK)
