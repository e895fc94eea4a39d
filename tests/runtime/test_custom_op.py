# SPDX-License-Identifier: Apache-2.0
"""Custom operators: kernels in Python and in C, whatever runs the model, and everything that can go wrong in them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import litesmith
from litesmith.errors import SessionError, UsageError
from litesmith.model import Builder, Model
from litesmith.runtime import Session, custom_op, custom_ops, forget_custom_op, load_custom_op, partitions
from litesmith.runtime._custom_op_binding import kernels_that_stay

OPTIONS = b"factor\x00\x01\x08\x01\x01\x01\x03\x04\x02\x24\x01"  # {"factor": 3}
SOURCE = r"""
#include <cstdint>
extern "C" int32_t scale(const void* const* inputs, void* const* outputs, const int64_t* const* shapes,
                         const void* options, int64_t options_size) {
  const float* x = static_cast<const float*>(inputs[0]);
  const float* factor = static_cast<const float*>(inputs[1]);
  float* y = static_cast<float*>(outputs[0]);
  const int64_t* shape = shapes[2];  // of the output: rank, dimensions
  int64_t count = 1;
  for (int64_t d = 1; d <= shape[0]; ++d) count *= shape[d];
  if (options_size != 0) return 9;
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor[i % shape[shape[0]]];
  return 0;
}
"""


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = set(custom_ops())
    yield
    for name in set(custom_ops()) - before:
        forget_custom_op(name)


@pytest.fixture
def scale_model() -> Model:
    """conv → Scale, whose second input is a constant → conv → Scale, with another constant."""
    b = Builder()
    x = b.input("x", (1, 8, 8, 3))
    for factors in ([1, 2, 3, 4], [4, 3, 2, 1]):
        x = b.conv2d(x, 4, kernel=3)
        x = b.op("CUSTOM", x, np.array(factors, np.float32), custom_code="Scale", outputs=[((1, 8, 8, 4), "float32")])
    return b.build({"y": x})


@pytest.fixture
def stock_model() -> Model:
    """The same with MUL."""
    b = Builder()
    x = b.input("x", (1, 8, 8, 3))
    for factors in ([1, 2, 3, 4], [4, 3, 2, 1]):
        x = b.op("MUL", b.conv2d(x, 4, kernel=3), np.array(factors, np.float32))
    return b.build({"y": x})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile a kernel with")
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "scale.cc").write_text(SOURCE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", folder / "libscale.so", folder / "scale.cc"], check=True)
    return folder / "libscale.so"


def _one(
    custom_code: str = "Op", shape: tuple[int, ...] = (3,), *, options: bytes | None = None, dtype: str = "float32"
) -> Model:
    b = Builder()
    x = b.input("x", (-1, *shape[1:]) if len(shape) > 1 else shape, dtype)
    y = b.op("CUSTOM", x, custom_code=custom_code, custom_options=options, outputs=[(x.shape, dtype)])
    return b.build({"y": y})


def _image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)


def test_python_kernels_see_views_and_constants(scale_model: Model, stock_model: Model) -> None:
    seen = []

    @custom_op("Scale")
    def scale(x: np.ndarray, factors: np.ndarray, *, out: np.ndarray) -> None:
        seen.append((x.ctypes.data, out.ctypes.data, factors.tolist(), x.flags.writeable, x.base is not None))
        np.multiply(x, factors, out=out)

    with Session(scale_model) as session, Session(stock_model) as stock:
        for _ in range(2):
            assert np.array_equal(session(_image())["y"], stock(_image())["y"])
        assert session.outputs["y"].ctypes.data == seen[1][1], "the last kernel writes where the user reads"
    assert [s[2] for s in seen] == [[1, 2, 3, 4], [4, 3, 2, 1]] * 2, "each operator has its own constants"
    assert seen[:2] == seen[2:]
    assert not any(s[3] for s in seen), "inputs are read-only"


def test_a_ufunc_is_a_kernel(scale_model: Model, stock_model: Model) -> None:
    custom_op("Scale", np.multiply)
    with Session(scale_model) as session, Session(stock_model) as stock:
        assert np.array_equal(session(_image())["y"], stock(_image())["y"])


def test_a_kernel_may_return_its_result(scale_model: Model, stock_model: Model) -> None:
    custom_op("Scale", lambda x, factors: x * factors)
    with Session(scale_model) as session, Session(stock_model) as stock:
        assert np.array_equal(session(_image())["y"], stock(_image())["y"])


def test_a_shared_library_is_a_kernel(scale_model: Model, stock_model: Model, library: Path) -> None:
    custom_op("Scale", library, symbol="scale")
    with Session(scale_model) as session, Session(stock_model) as stock:
        assert np.array_equal(session(_image())["y"], stock(_image())["y"])


@pytest.mark.parametrize("form", ["pointer", "address"])
def test_a_function_pointer_is_a_kernel(scale_model: Model, stock_model: Model, library: Path, form: str) -> None:
    function = ctypes.CDLL(str(library)).scale
    custom_op("Scale", function if form == "pointer" else ctypes.cast(function, ctypes.c_void_p).value)
    with Session(scale_model) as session, Session(stock_model) as stock:
        assert np.array_equal(session(_image())["y"], stock(_image())["y"])


def test_a_numba_cfunc_is_a_kernel(scale_model: Model, stock_model: Model) -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    pointers, shapes = (numba.types.CPointer(t) for t in (numba.types.voidptr, numba.types.CPointer(numba.int64)))

    @custom_op("Scale")
    @numba.cfunc(numba.int32(pointers, pointers, shapes, numba.types.voidptr, numba.int64))
    def scale(inputs, outputs, shapes, options, options_size):  # type: ignore[no-untyped-def]
        channels = shapes[1][1]
        pixels = shapes[0][1] * shapes[0][2] * shapes[0][3]
        x = numba.carray(inputs[0], (pixels, channels), np.float32)
        factors = numba.carray(inputs[1], (channels,), np.float32)
        y = numba.carray(outputs[0], (pixels, channels), np.float32)
        for p in range(pixels):
            for c in range(channels):
                y[p, c] = x[p, c] * factors[c]
        return 0

    with Session(scale_model) as session, Session(stock_model) as stock:
        assert np.array_equal(session(_image())["y"], stock(_image())["y"])


def test_options_and_several_outputs() -> None:
    b = Builder()
    x = b.input("x", (2,))
    outputs = b.op("CUSTOM", x, None, custom_code="Both", custom_options=OPTIONS, outputs=[((2,), "float32")] * 2)
    model = b.build({"times": outputs[0], "plus": outputs[1]})

    @custom_op("Both")
    def both(x: np.ndarray, absent: None, options: dict[str, int], out: tuple[np.ndarray, ...]) -> None:
        assert absent is None
        out[0][...], out[1][...] = x * options["factor"], x + options["factor"]

    with Session(model) as session:
        found = session(np.array([1, 2], np.float32))
    assert found["times"].tolist() == [3, 6]
    assert found["plus"].tolist() == [4, 5]


def test_options_that_are_no_flexbuffer_are_bytes() -> None:
    got = []
    custom_op("Op", lambda x, options: got.append(options) or x)
    with Session(_one(options=b"\xff\x01\x02\x03\xff")) as session:
        session.run()
    assert got == [b"\xff\x01\x02\x03\xff"]


def test_resizing_needs_a_shape_function() -> None:
    model = _one(shape=(1, 3))
    custom_op("Op", lambda x: x + 1)
    with Session(model) as session:
        with pytest.raises(SessionError, match=r"'Op'.*\(5, 3\).*shapes="):
            session.resize({"x": (5, 3)})
        assert session(np.zeros((1, 3), np.float32))["y"].tolist() == [[1, 1, 1]], "it stays as it was"
    custom_op("Op", lambda x: x + 1, shapes=lambda x: x)
    with Session(model) as session:
        session.resize({"x": (5, 3)})
        assert session(np.zeros((5, 3), np.float32))["y"].tolist() == [[1, 1, 1]] * 5


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (lambda x: 5, "which are no shapes"),
        (lambda x: (0, 3), "positive dimensions"),
        (lambda x: [x, x], "1 output"),
        (lambda x: x[7], "IndexError"),
    ],
)
def test_a_bad_shape_function_is_told_at_load(shapes: object, message: str) -> None:
    custom_op("Op", lambda x: x, shapes=shapes)  # type: ignore[arg-type]
    with pytest.raises(SessionError, match=message):
        Session(_one(shape=(1, 3)))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.astype(np.float64), r"returned float64 of shape \(3,\) for output 0, which is float32"),
        (lambda x: x[:2], r"float32 of shape \(2,\)"),
        (lambda x: None, "returned nothing"),
        (lambda x: (x, x), "returned 2 arrays"),
    ],
)
def test_a_wrong_result_is_told(result: object, message: str) -> None:
    custom_op("Op", result)
    with Session(_one()) as session, pytest.raises(SessionError, match=message):
        session.run()


def test_a_kernel_that_raises_ends_the_run_with_its_traceback() -> None:
    fail = [True]

    @custom_op("Op")
    def unlucky(x: np.ndarray, *, out: np.ndarray) -> None:
        if fail[0]:
            raise ValueError("thirteen")
        out[...] = x

    with Session(_one()) as session:
        for _ in range(2):
            with pytest.raises(
                SessionError, match=r"(?s)'Op' \(operator 0\).*in unlucky.*ValueError: thirteen"
            ) as caught:
                session.run()
            assert isinstance(caught.value.__cause__, ValueError)
            assert "_custom_op_binding" not in str(caught.value), "only the user's frames"
        fail[0] = False
        assert session(np.ones(3, np.float32))["y"].tolist() == [1, 1, 1]


def test_control_c_in_a_kernel_goes_through() -> None:
    @custom_op("Op")
    def interrupted(x: np.ndarray, *, out: np.ndarray) -> None:
        raise KeyboardInterrupt

    with Session(_one()) as session, pytest.raises(KeyboardInterrupt):
        session.run()


def test_native_code_that_fails(library: Path) -> None:
    custom_op("Scale", library, symbol="scale")
    b = Builder()
    factors = np.ones(3, np.float32)
    y = b.op(
        "CUSTOM", b.input("x", (3,)), factors, custom_code="Scale", custom_options=b"x", outputs=[((3,), "float32")]
    )
    with Session(b.build({"y": y})) as session, pytest.raises(SessionError, match=r"'Scale'.*returned 9, not 0"):
        session.run()


def test_a_missing_kernel_is_told_at_load_with_the_way_out() -> None:
    custom_op("Other", np.negative)
    with pytest.raises(SessionError, match=r"custom operator 'Op'; register one with litesmith.custom_op\('Op'\)"):
        Session(_one())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: custom_op("", np.negative), "by its name"),
        (lambda: custom_op("X", 3.5), "not 3.5"),
        (lambda: custom_op("X", np.negative, symbol="f"), "shared library"),
        (lambda: custom_op("X", np.negative, shapes=3), "function of the inputs' shapes"),
        (lambda: custom_op("X", "/nowhere/lib.so"), "cannot be loaded"),
        (lambda: forget_custom_op("X"), "no kernel for 'X'"),
        (lambda: load_custom_op("no_such_module:f"), "cannot be imported"),
        (lambda: load_custom_op("/nowhere.py"), "no file"),
        (lambda: load_custom_op("math:nothing"), "has no 'nothing'"),
        (lambda: load_custom_op("math"), "registers no custom operator"),
        (lambda: load_custom_op("lib.so"), "which function"),
        (lambda: load_custom_op(":f"), "is no kernel"),
    ],
)
def test_what_is_no_kernel(call: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()  # type: ignore[operator]
    assert "X" not in custom_ops()


def test_a_symbol_that_is_not_there(library: Path) -> None:
    with pytest.raises(UsageError, match="has no function 'rotate'; in C\\+\\+ it must be extern \"C\""):
        custom_op("X", library, symbol="rotate")


def test_text_that_no_kernel_can_get() -> None:
    custom_op("Op", lambda x: x)
    with pytest.raises(SessionError, match="string"):
        Session(_one(dtype="string"))


def test_specs_of_the_command_line(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernels_for_a_test.py"
    file.write_text(
        "import litesmith\n@litesmith.custom_op('Registered')\ndef f(x): return x + 1\ndef plain(x): return x + 2\n"
    )
    assert load_custom_op(str(file)) == ("Registered",)
    assert load_custom_op(f"{file}:plain") == ("plain",)
    assert load_custom_op(f"Mine={file}:plain") == ("Mine",)
    assert load_custom_op(f"{library}:scale") == ("scale",)
    monkeypatch.chdir(tmp_path)
    assert load_custom_op("Second=kernels_for_a_test:plain") == ("Second",)
    with Session(_one("Second")) as session:
        assert session(np.zeros(3, np.float32))["y"].tolist() == [2, 2, 2]


def test_child_processes_find_the_kernels(tmp_path: Path) -> None:
    file, model = tmp_path / "kernels.py", tmp_path / "model.tflite"
    file.write_text("import litesmith\n@litesmith.custom_op('Op')\ndef f(x): return x + 1\n")
    _one().save(model)
    load_custom_op(str(file))
    code = f"import litesmith; print(litesmith.run({str(model)!r}).outputs[0].shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(3,)", done.stderr
    assert kernels_that_stay(_one()) == ()
    custom_op("Op", np.negative)
    assert kernels_that_stay(_one()) == ("Op",)


def test_threads_run_their_own_sessions_with_one_kernel() -> None:
    custom_op("Op", lambda x, out: np.add(x, 1, out=out))
    wrong = []

    def work(value: float) -> None:
        with Session(_one()) as session:
            for _ in range(50):
                y = session(np.full(3, value, np.float32))["y"]
                if y.tolist() != [value + 1] * 3:
                    wrong.append(y)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_partitions_are_known_around_a_custom_operator(scale_model: Model) -> None:
    with pytest.raises(SessionError, match="'Scale'"):
        partitions(scale_model)
    custom_op("Scale", np.multiply)
    found = partitions(scale_model)
    assert [(p.delegate, p.operators) for p in found] == [("XNNPACK", (0,)), ("XNNPACK", (2,)), (None, (1, 3))]


def test_a_profile_has_the_operator_and_its_time(scale_model: Model) -> None:
    custom_op("Scale", np.multiply)
    result = litesmith.profile(scale_model, runs=5)
    times = {o.index: (o.kind, o.mean_us) for o in result.operators}
    for index in (1, 3):
        assert times[index][0] == "Scale"
        assert times[index][1] > 0


def test_bench_measures_it_with_and_without_a_process_for_memory(scale_model: Model, tmp_path: Path) -> None:
    custom_op("Scale", np.multiply)  # this module is not one that a child can import
    assert len(litesmith.bench(scale_model, runs=10, seconds=0.1).latencies[0].samples_ms) == 10
    file = tmp_path / "kernels.py"
    file.write_text("import litesmith, numpy\nlitesmith.custom_op('Scale', numpy.multiply)\n")
    load_custom_op(str(file))
    assert litesmith.bench(scale_model, runs=10, seconds=0.1).latencies[0].memory is not None


def test_a_model_with_a_custom_operator_is_scored_as_its_twin(scale_model: Model, stock_model: Model) -> None:
    custom_op("Scale", np.multiply)
    random = np.random.default_rng(0)
    data = {"x": random.standard_normal((20, 8, 8, 3)).astype(np.float32)}
    score = litesmith.evaluate(scale_model, data, metric="mse", reference=stock_model)
    assert score.value == 0


def test_quantize_leaves_it_float_between_right_borders(scale_model: Model) -> None:
    custom_op("Scale", np.multiply)
    random = np.random.default_rng(0)
    data = random.standard_normal((20, 8, 8, 3)).astype(np.float32)
    quantized = litesmith.quantize(scale_model, scheme="int8", data=data).model
    kinds = [operator.name for operator in quantized.main.operators]
    assert kinds.count("Scale") == 2
    for operator in quantized.main.operators:
        types = {quantized.main.tensors[t].dtype for t in (*operator.inputs, *operator.outputs)}
        if operator.name == "Scale":
            assert types == {"float32"}
        elif operator.kind == "CONV_2D":
            assert "int8" in types
            assert "float32" not in types
    with Session(scale_model) as before, Session(quantized) as after:
        expected, got = (s(data[:1])["y"].astype(np.float64) for s in (before, after))
    assert np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


def test_diagnose_and_trace_run_it(scale_model: Model, tmp_path: Path) -> None:
    custom_op("Scale", np.multiply)
    data = np.random.default_rng(0).standard_normal((20, 8, 8, 3)).astype(np.float32)
    quantized = litesmith.quantize(scale_model, scheme="int8", data=data).model
    report = litesmith.diagnose(scale_model, quantized, data, samples=8)
    lossy = [layer.kind for layer in report.layers if layer.share > 0]
    assert "CONV_2D" in lossy
    assert "Scale" not in lossy, "it computes in float and loses nothing itself"
    assert report.outputs[0].sqnr_db > 10
    written = litesmith.trace(scale_model, tmp_path / "t.pftrace", runs=3)
    assert written.runs == 3
    assert b"Scale" in (tmp_path / "t.pftrace").read_bytes()


def test_all_verbs_that_run_a_model_take_the_kernel_on_the_command_line(scale_model: Model, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from litesmith.cli._app import command_line

    model, kernels, data = tmp_path / "m.tflite", tmp_path / "kernels.py", tmp_path / "d.npz"
    scale_model.save(model)
    kernels.write_text("import litesmith, numpy\nlitesmith.custom_op('Scale', numpy.multiply)\n")
    np.savez(data, x=np.random.default_rng(0).standard_normal((8, 8, 8, 3)).astype(np.float32))
    for verb in (
        ["quantize", model, "--data", data, "-o", tmp_path / "q.tflite"],
        ["diagnose", model, tmp_path / "q.tflite", "--data", data],
        ["trace", model, "-o", tmp_path / "t.pftrace", "--runs", 2],
        ["copies", model, "--seconds", 0.01],
        ["threads", model, "--seconds", 0.02, "--counts", 1],
        ["compare", model, model, "--seconds", 0.02],
        ["inspect", model],
    ):
        done = CliRunner().invoke(command_line([str(verb[0])]), [*map(str, verb), "--custom-op", str(kernels)])
        assert done.exit_code == 0, (verb, done.output, done.exception)
        forget_custom_op("Scale")
