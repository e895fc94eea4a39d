# SPDX-License-Identifier: Apache-2.0
"""What a session promises, on both back ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import DataError, ModelError, SessionError, UsageError
from litesmith.model import Builder, Model, Operator, Record, Subgraph, Tensor, constant
from litesmith.runtime import Session, run

Open = Callable[..., Session]

X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONES = np.ones((2, 3), np.float32)


def test_views_are_read_and_written_in_place(open_session: Open, add_model: Model, backend: str) -> None:
    with open_session(add_model) as session:
        assert session.compiled.backend == backend
        x, total = session.inputs["x"], session.outputs["sum"]
        assert all(a.ctypes.data % 64 == 0 for a in (*session.inputs.values(), *session.outputs.values()))
        session.inputs["a"][...] = 1
        for value in (2, 5):
            x[...] = value
            outputs = session.run()
            assert outputs["sum"] is total
            assert (total == value + 1).all()
            assert (session.outputs["difference"] == value - 1).all()


def test_a_call_returns_copies(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        first = session(X, ONES)["sum"]
        session(X, a=X)
        np.testing.assert_array_equal(first, X + 1)


def test_order_is_that_of_the_model(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        assert list(session.inputs) == ["x", "a"]
        assert list(session.outputs) == ["sum", "difference"]
        np.testing.assert_array_equal(session(X, ONES)["difference"], X - 1)


def test_feeds_by_name_keep_what_is_not_given(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        session.run({"x": X, "a": ONES})
        np.testing.assert_array_equal(session.run(a=2 * ONES)["sum"], X + 2)
        np.testing.assert_array_equal(session.run({"x": [[1, 1, 1]] * 2})["sum"], 3 * ONES)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"z": ONES}, r"no input 'z'; it has: 'x', 'a'"),
        ({"x": ONES.astype(np.float64)}, r"input 'x' is float32, but the array is float64; convert it with"),
        ({"x": [["a", "b", "c"]] * 2}, "input 'x' is float32, but the array is str"),
        ({"x": [[1], [2, 3]]}, "input 'x' takes an array of float32"),
        ({"x": ONES[:1]}, r"input 'x' has the shape \(2, 3\), but the array has \(1, 3\)"),
    ],
)
def test_feeds_that_do_not_fit(open_session: Open, add_model: Model, feeds: dict[str, object], message: str) -> None:
    with open_session(add_model) as session:
        session.inputs["a"][...] = 7
        with pytest.raises(SessionError, match=message):
            session.run({"a": ONES, **feeds})
        assert (session.inputs["a"] == 7).all(), "nothing is copied unless everything fits"


def test_calls_that_do_not_fit(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        with pytest.raises(SessionError, match="no array for the input 'a'"):
            session(X)
        with pytest.raises(SessionError, match="has 2 inputs, but 3 arrays"):
            session(X, X, X)
        with pytest.raises(TypeError):
            session.inputs["x"] = X  # type: ignore[index]


def test_views_outlive_the_session(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        session(X, ONES)
        total = session.outputs["sum"]
    session.close()
    np.testing.assert_array_equal(total, X + 1)
    for use in (session.run, lambda: session(X, X), lambda: session.resize({"x": (1, 3)})):
        with pytest.raises(SessionError, match="closed"):
            use()
    assert "closed" in repr(session)


def test_resize(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        outputs = session.outputs
        session.resize({"x": (5, 3), "a": (5, 3)})
        assert session.inputs["x"].shape == outputs["sum"].shape == (5, 3)
        big = np.arange(15, dtype=np.float32).reshape(5, 3)
        np.testing.assert_array_equal(session(big, big)["sum"], big * 2)
        session.resize({"x": (2, 3), "a": (2, 3)})
        np.testing.assert_array_equal(session(X, ONES)["sum"], X + 1)


def test_a_refused_resize_changes_nothing(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        x = session.inputs["x"]
        with pytest.raises(SessionError, match="cannot resize"):
            session.resize({"x": (5, 3)})  # but not the other
        assert session.inputs["x"] is x
        session.inputs["a"][...] = 1
        x[...] = X
        np.testing.assert_array_equal(session.run()["sum"], X + 1)


def test_resize_checks_its_arguments(open_session: Open, add_model: Model) -> None:
    with open_session(add_model) as session:
        with pytest.raises(SessionError, match="no input 'y'"):
            session.resize({"y": (1, 3)})
        with pytest.raises(SessionError, match="all positive"):
            session.resize({"x": (-1, 3)})


DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_types(open_session: Open, dtype: str) -> None:
    b = Builder()
    x = b.input("x", (2, 6), dtype)
    model = b.build({"y": b.op("RESHAPE", x, np.array([3, 4], np.int32), outputs=[((3, 4), dtype)])})
    with open_session(model) as session:
        kept_as = {"int4": "int8", "uint4": "uint8"}.get(dtype, dtype)
        assert session.inputs["x"].dtype == session.outputs["y"].dtype == np.dtype(kept_as)
        values = (np.arange(12) % 7).reshape(2, 6).astype(kept_as)
        for shift in (0, 1):
            given = np.roll(values, shift)
            np.testing.assert_array_equal(session(given)["y"], given.reshape(3, 4))


def test_bfloat16_is_given_as_bits(add_model: Model) -> None:
    b = Builder()
    x = b.input("x", (2, 6), "bfloat16")
    model = b.build({"y": b.op("RESHAPE", x, np.array([3, 4], np.int32), outputs=[((3, 4), "bfloat16")])})
    bits = np.arange(12, dtype=np.uint16).reshape(2, 6)
    with Session(model) as session:
        np.testing.assert_array_equal(session(bits)["y"], bits.reshape(3, 4))


def test_strings(open_session: Open) -> None:
    b = Builder()
    words, index = b.input("words", (4,), "string"), b.input("index", (2,), "int64")
    model = b.build({"chosen": b.op("GATHER", words, index, outputs=[((2,), "string")], version=3)})
    with open_session(model) as session:
        given = np.array([b"a", "zwölf".encode(), b"", b"x\0y"], object)
        result = session(given, np.array([3, 1]))["chosen"]
        assert result.tolist() == [b"x\0y", "zwölf".encode()]
        assert session(np.array(["k", "l", "m", "n"]), np.array([0, 0]))["chosen"].tolist() == [b"k", b"k"]
        assert session.compiled.backend == "interpreter"


def test_output_shapes_that_depend_on_data(open_session: Open, where_model: Model) -> None:
    with open_session(where_model) as session:
        outputs = session.outputs
        for values in ([1, -1, 2, -2], [-1, -1, -1, 3], [-1, -1, -1, -1], [1, 1, 1, 1]):
            given = np.array(values, np.float32)
            session.run(x=given)
            np.testing.assert_array_equal(outputs["indices"], np.argwhere(given > 0))
            np.testing.assert_array_equal(outputs["minus"], -given)
        assert session.compiled.backend == "interpreter"


def test_an_output_that_only_a_run_shows_to_be_dynamic() -> None:
    """LiteRT returns Ok for the first run of such a model without having written the output."""
    b = Builder()
    x, shape = b.input("x", (6,)), b.input("shape", (2,), "int32")
    y = b.op("RESHAPE", x, b.op("ADD", shape, np.zeros(2, np.int32)), outputs=[((1, 6), "float32")])
    model = b.build({"y": b.op("NEG", y)})
    with Session(model) as session:
        views = dict(session.inputs)
        given = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(session(given, np.array([2, 3], np.int32))["y"], -given.reshape(2, 3))
        np.testing.assert_array_equal(session(given, np.array([3, 2], np.int32))["y"], -given.reshape(3, 2))
        assert session.compiled.backend == "interpreter"
        assert "only known during a run" in session.compiled.reason
        assert all(session.inputs[name] is view for name, view in views.items())


def test_signatures(open_session: Open) -> None:
    b = Builder()
    negate = b.build({"y": b.op("NEG", b.input("x", (2,)))}, signature="negate")
    b = Builder()
    two = (b.input("z", (3,)), b.input("b", (3,)))
    other = b.build({"y": b.op("SUB", *two)}, signature="subtract")
    model = Model(
        (negate.main, other.main), signatures=(*negate.signatures, replace(other.signatures[0], subgraph_index=1))
    )
    with open_session(model) as session:
        assert session.signatures == ("negate", "subtract")
        assert session.signature == "negate"
        assert session(np.array([1, 2], np.float32))["y"].tolist() == [-1, -2]
    with open_session(model, signature="subtract") as session:
        assert list(session.inputs) == ["z", "b"]
        assert session(np.array([1, 2, 3], np.float32), np.ones(3, np.float32))["y"].tolist() == [0, 1, 2]
    with pytest.raises(SessionError, match="no signature 'add'; it has: 'negate', 'subtract'"):
        open_session(model, signature="add")


def test_a_model_without_signature_has_tensor_names(open_session: Open, add_model: Model) -> None:
    with open_session(replace(add_model, signatures=())) as session:
        assert session.signature is None
        assert session.signatures == ()
        assert list(session.inputs) == ["x", "a"]
        assert list(session.outputs) == ["add", "sub"]
        np.testing.assert_array_equal(session(X, ONES)["sub"], X - 1)
        session.resize({"x": (4, 3), "a": (4, 3)})
        assert session.run()["add"].shape == (4, 3)
    with pytest.raises(SessionError, match="no signature 'f'; it has: none"):
        open_session(replace(add_model, signatures=()), signature="f")


@pytest.mark.parametrize("name", ["", "t"])
def test_names_that_tell_nothing_apart(open_session: Open, add_model: Model, name: str) -> None:
    tensors = tuple(replace(tensor, name=name) for tensor in add_model.main.tensors)
    model = replace(add_model.with_main(replace(add_model.main, tensors=tensors)), signatures=())
    with open_session(model) as session:
        assert list(session.inputs) == [name or "input_0", "input_1"]
        assert list(session.outputs) == [name or "output_0", "output_1"]
        np.testing.assert_array_equal(session(X, ONES)["output_1"], X - 1)


def test_no_input(open_session: Open) -> None:
    b = Builder()
    constants = b.constant(np.arange(4, dtype=np.float32)), b.constant(np.ones(4, np.float32))
    with open_session(b.build({"y": b.op("ADD", *constants)})) as session:
        assert dict(session.inputs) == {}
        assert session()["y"].tolist() == [1, 2, 3, 4]


def test_outputs_that_are_inputs_constants_or_the_same(open_session: Open) -> None:
    b = Builder()
    x, y = b.input("x", (2,)), b.input("y", (2,))
    constant = b.constant(np.array([7, 8], np.float32))
    minus = b.op("NEG", x)
    model = b.build({"y_again": y, "constant": constant, "minus": minus, "x_again": x})
    with open_session(model) as session:
        for k in (1, 2):
            results = session(np.array([1, k], np.float32), np.array([3, k], np.float32))
            assert {name: array.tolist() for name, array in results.items()} == {
                "y_again": [3, k],
                "constant": [7, 8],
                "minus": [-1, -k],
                "x_again": [1, k],
            }
    twice = b.build({"minus": minus, "minus_again": minus})
    with open_session(twice) as session:
        results = session(np.array([1, 2], np.float32), np.zeros(2, np.float32))
        assert results["minus"].tolist() == results["minus_again"].tolist() == [-1, -2]


def test_scalars_and_empty_tensors(open_session: Open) -> None:
    b = Builder()
    model = b.build({"y": b.op("ADD", b.input("x", ()), np.array(2, np.float32))})
    with open_session(model) as session:
        assert session(np.float32(3))["y"] == 5
    b = Builder()
    empty = b.build({"y": b.op("ADD", b.input("x", (0, 3)), np.ones(3, np.float32), outputs=[((0, 3), "float32")])})
    with open_session(empty, verify=False) as session:
        assert session(np.zeros((0, 3), np.float32))["y"].shape == (0, 3)


def test_a_tensor_of_rank_nine(open_session: Open) -> None:
    b = Builder()
    shape = (1, 1, 1, 1, 1, 1, 1, 2, 3)
    x = b.input("x", (2, 3))
    model = b.build({"y": b.op("RESHAPE", x, np.array(shape, np.int32), outputs=[(shape, "float32")])})
    with open_session(model, verify=False) as session:
        np.testing.assert_array_equal(session(X)["y"], X.reshape(shape))


@pytest.mark.parametrize("kernels", ["delegate", "builtin", "reference"])
def test_kernels_and_threads_agree(open_session: Open, conv_model: Model, kernels: str) -> None:
    image = np.random.default_rng(0).uniform(-1, 1, (1, 32, 32, 3)).astype(np.float32)
    with Session(conv_model) as session:
        expected = session(image)["logits"]
    with open_session(conv_model, kernels=kernels, threads=2) as session:
        np.testing.assert_allclose(session(image)["logits"], expected, atol=1e-4)


def test_where_a_model_can_come_from(open_session: Open, add_model: Model, tmp_path: Path) -> None:
    content = add_model.to_bytes()
    path = tmp_path / "mödel.tflite"
    path.write_bytes(content)
    misaligned = memoryview(b"123" + content)[3:]
    for source in (add_model, content, bytearray(content), misaligned, path, str(path)):
        for verify in (True, False):
            with open_session(source, verify=verify) as session:
                np.testing.assert_array_equal(session(X, ONES)["sum"], X + 1)


def test_what_is_no_model(open_session: Open, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not int"):
        open_session(7)
    for verify in (True, False):
        for source in (tmp_path / "missing.tflite", tmp_path):
            with pytest.raises(ModelError):
                open_session(source, verify=verify)
    for content in (b"", b"not a model", b"\0" * 100):
        with pytest.raises(ModelError):
            open_session(content)
        with pytest.raises(SessionError):
            Session(content, verify=False, backend="compiled")


def test_arguments_that_make_no_sense(add_model: Model) -> None:
    for options in ({"threads": 0}, {"threads": 1.5}, {"threads": True}, {"kernels": "fast"}, {"backend": "gpu"}):
        with pytest.raises(UsageError):
            Session(add_model, **options)


def test_a_custom_operator_without_kernel_is_named_at_load(open_session: Open) -> None:
    b = Builder()
    x = b.op("NEG", b.input("x", (2,)))
    model = b.build({"y": b.op("CUSTOM", x, custom_code="MyOp", outputs=[((2,), "float32")])})
    with pytest.raises(SessionError, match=r"Node number 1 \(MyOp\).*no kernel for the custom operator 'MyOp'"):
        open_session(model)


def test_a_failing_run_says_which_operator(open_session: Open) -> None:
    b = Builder()
    table, index = b.input("table", (4,)), b.input("index", (2,), "int32")
    model = b.build({"y": b.op("GATHER", table, index, outputs=[((2,), "float32")])})
    with open_session(model) as session:
        table_values = np.arange(4, dtype=np.float32)
        for _ in range(2):
            with pytest.raises(SessionError, match=r"Node number 0 \(GATHER\) failed to invoke"):
                session(table_values, np.array([0, 9], np.int32))
            assert session(table_values, np.array([3, 1], np.int32))["y"].tolist() == [3, 1]


@pytest.fixture
def counter_model() -> Model:
    """A counter in a resource variable."""
    variable = Record("VarHandleOptions", container="", shared_name="counter")
    handle = Tensor("handle", (), "resource")
    initialize = Subgraph(
        "initialize",
        (handle, constant("zero", np.zeros(1, np.float32))),
        (Operator("VAR_HANDLE", (), (0,), options=variable), Operator("ASSIGN_VARIABLE", (0, 1), ())),
    )
    count = Subgraph(
        "count",
        (Tensor("step", (1,)), handle, Tensor("before", (1,)), Tensor("after", (1,))),
        (
            Operator("CALL_ONCE", (), (), options=Record("CallOnceOptions", init_subgraph_index=1)),
            Operator("VAR_HANDLE", (), (1,), options=variable),
            Operator("READ_VARIABLE", (1,), (2,)),
            Operator("ADD", (2, 0), (3,), options=Record("AddOptions")),
            Operator("ASSIGN_VARIABLE", (1, 3), ()),
        ),
        inputs=(0,),
        outputs=(3,),
    )
    return Model((count, initialize))


def test_state_belongs_to_the_session(open_session: Open, counter_model: Model) -> None:
    """It goes on from run to run, and starts anew in another session."""
    for _ in range(2):
        with open_session(counter_model) as session:
            assert [float(session(np.ones(1, np.float32))["after"][0]) for _ in range(3)] == [1, 2, 3]


def test_resource_variables_go_on_from_sample_to_sample(open_session: Open, counter_model: Model) -> None:
    with open_session(counter_model) as session:
        assert session.run_each({"step": np.ones((3, 1), np.float32)})["after"].ravel().tolist() == [1, 2, 3]


# ---------------------------------------------------------------- outputs that look as if nobody wrote them


@pytest.mark.parametrize(("shape", "pattern"), [((1, 1), 0xA5), ((3, 5), 0xA5), ((1, 1), 0x5A)])
def test_an_output_may_have_any_value(shape: tuple[int, ...], pattern: int) -> None:
    b = Builder()
    x = b.input("x", shape, "int8")
    model = b.build({"y": b.op("RESHAPE", x, np.array(shape, np.int32), outputs=[(shape, "int8")])})
    values = np.full(shape, pattern, np.uint8).view(np.int8)
    with Session(model) as session:
        np.testing.assert_array_equal(session(values)["y"], values)
        assert session.compiled.backend == "compiled"


def test_a_state_is_not_changed_to_see_whether_an_output_was_written(counter_model: Model) -> None:
    step = np.full(4, 0xA5, np.uint8).view(np.float32)
    with Session(counter_model) as session:
        assert session(step)["after"] == step
        assert session(step)["after"] == 2 * step
        assert session.compiled.backend == "compiled"


# ---------------------------------------------------------------- one run, reported and saved


def test_a_run_shows_the_first_run_of_a_model_with_state(counter_model: Model, tmp_path: Path) -> None:
    found = run(counter_model, {"step": np.ones(1, np.float32)}, save=tmp_path / "outputs.npz")
    assert found.outputs[0].maximum == 1
    assert np.load(tmp_path / "outputs.npz")["after"].tolist() == [1]


def test_a_run_takes_lists(add_model: Model) -> None:
    assert run(add_model, {"a": [[1, 2, 3]], "x": [[1.0, 1, 1]]}).outputs[0].maximum == 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"wrong": X}, "the model has no input 'wrong'; its inputs are: 'x', 'a'"),
        ({"x": X}, "no array for the input 'a'; give one for each of: 'x', 'a'"),
        ({"x": X, "a": [[1, 2], [3]]}, "input 'a' takes an array of float32"),
    ],
)
def test_inputs_of_a_run_that_do_not_fit(add_model: Model, inputs: dict[str, object], message: str) -> None:
    with pytest.raises(SessionError, match=message):
        run(add_model, inputs)


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args"])
def test_an_output_of_any_name_is_saved(name: str, tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", (2,))
    run(b.build({name: b.op("NEG", x)}), {"x": np.ones(2, np.float32)}, save=tmp_path / "outputs")
    assert np.load(tmp_path / "outputs.npz")[name].tolist() == [-1, -1]


def test_damaged_inputs_are_told(add_model: Model, tmp_path: Path) -> None:
    whole, cut, spoiled = (tmp_path / f"{name}.npz" for name in ("whole", "cut", "spoiled"))
    np.savez_compressed(whole, x=X, a=ONES)
    content = whole.read_bytes()
    cut.write_bytes(content[:100])
    spoiled.write_bytes(content[:60] + b"\xff" * 20 + content[80:])
    for path in (cut, spoiled):
        with pytest.raises(DataError, match=f"{path.name} is not a .npy or .npz of plain numbers"):
            run(add_model, path)


@pytest.fixture
def cell_model() -> Model:
    """A recurrent cell that adds its input to its state."""
    one = constant("one", np.ones((1, 1), np.float32))
    cell = Subgraph(
        "cell",
        (
            Tensor("x", (1, 1)),
            one,
            replace(one, name="recurrent"),
            constant("bias", np.zeros(1, np.float32)),
            Tensor("state", (1, 1), is_variable=True),
            Tensor("y", (1, 1)),
        ),
        (Operator("RNN", (0, 1, 2, 3, 4), (5,), options=Record("RNNOptions")),),
        inputs=(0,),
        outputs=(5,),
    )
    return Model((cell,))


def test_reset_starts_variable_tensors_from_zero(open_session: Open, cell_model: Model) -> None:
    """1, 2, 3 ..., and 1 again after a reset."""
    with open_session(cell_model) as session:
        for _ in range(2):
            assert [float(session(np.ones((1, 1), np.float32))["y"][0, 0]) for _ in range(3)] == [1, 2, 3]
            session.reset()


# ---------------------------------------------------------------- many samples at once


def test_each_sample_is_run_alone(open_session: Open, add_model: Model) -> None:
    random = np.random.default_rng(0)
    x, a = (random.standard_normal((300, 2, 3)).astype(np.float32) for _ in range(2))
    with open_session(add_model) as session:
        got = session.run_each({"a": a[::-1], "x": x})  # the order does not matter, nor that one is a view
        np.testing.assert_array_equal(got["sum"], x + a[::-1])
        np.testing.assert_array_equal(got["difference"], x - a[::-1])
        assert session.run_each({"x": x[:1], "a": a[:1]})["sum"].shape == (1, 2, 3)
        session.resize({"x": (5, 3), "a": (5, 3)})
        assert session.run_each({n: np.zeros((7, 5, 3), np.float32) for n in ("x", "a")})["sum"].shape == (7, 5, 3)


def test_samples_that_do_not_fit(open_session: Open, add_model: Model) -> None:
    good = np.zeros((4, 2, 3), np.float32)
    with open_session(add_model) as session:
        for samples, message in (
            ({"x": good}, "no samples for the input 'a'"),
            ({"x": good, "a": good, "b": good}, "no input 'b'"),
            ({"x": good, "a": good[:3]}, r"as many samples, and at least one; there are \[3, 4\]"),
            ({"x": good[:0], "a": good[:0]}, r"at least one; there are \[0\]"),
            ({"x": good, "a": good.astype(np.float64)}, r"float32 \(2, 3\), but the array is float64 \(4, 2, 3\)"),
            ({"x": good, "a": good[:, :1]}, r"but the array is float32 \(4, 1, 3\)"),
        ):
            with pytest.raises(SessionError, match=message):
                session.run_each(samples)
        assert session.run_each({"x": good, "a": good})["sum"].shape == good.shape
    with pytest.raises(SessionError, match="closed"):
        session.run_each({"x": good, "a": good})


def test_a_failing_sample_says_which_operator(open_session: Open) -> None:
    b = Builder()
    table, index = b.input("table", (4,)), b.input("index", (2,), "int32")
    model = b.build({"y": b.op("GATHER", table, index, outputs=[((2,), "float32")])})
    tables = np.tile(np.arange(4, dtype=np.float32), (6, 1))
    indices = np.array([[0, 1]] * 5 + [[0, 9]], np.int32)
    with open_session(model) as session:
        with pytest.raises(SessionError, match=r"Node number 0 \(GATHER\) failed to invoke"):
            session.run_each({"table": tables, "index": indices})
        assert session.run_each({"table": tables[:5], "index": indices[:5]})["y"].tolist() == [[0, 1]] * 5


def test_samples_whose_outputs_have_several_shapes(open_session: Open, where_model: Model) -> None:
    given = np.array([[1, -1, 2, -2], [1, 1, -1, -1], [-1, -1, -1, 3], [-1, -1, -1, -1]], np.float32)
    with open_session(where_model) as session:
        found = session.run_each({"x": given})
        for row, indices in zip(given, found["indices"], strict=True):
            np.testing.assert_array_equal(indices, np.argwhere(row > 0))
        np.testing.assert_array_equal(found["minus"], -given)
        assert session.run_each({"x": given[:2]})["indices"].shape == (2, 2, 1)
        assert session.compiled.backend == "interpreter"


def test_a_later_sample_may_show_that_shapes_depend_on_data() -> None:
    b = Builder()
    x, shape = b.input("x", (6,)), b.input("shape", (2,), "int32")
    y = b.op("RESHAPE", x, b.op("ADD", shape, np.zeros(2, np.int32)), outputs=[((2, 3), "float32")])
    model = b.build({"y": y})
    given = np.tile(np.arange(6, dtype=np.float32), (3, 1))
    with Session(model) as session:
        found = session.run_each({"x": given, "shape": np.array([[2, 3], [2, 3], [3, 2]], np.int32)})["y"]
        assert [one.shape for one in found] == [(2, 3), (2, 3), (3, 2)]


def test_variables_are_reset_before_each_sample(open_session: Open, cell_model: Model) -> None:
    with open_session(cell_model) as session:
        assert session.run_each({"x": np.ones((3, 1, 1), np.float32)})["y"].ravel().tolist() == [1, 1, 1]


def test_a_recorded_session_keeps_the_events_of_each_sample(add_model: Model) -> None:
    samples = np.zeros((5, 2, 3), np.float32)
    with Session(add_model, profiling=True) as session:
        session.start_profile()
        session.run_each({"x": samples, "a": samples})
        many = len(session.stop_profile())
        session.start_profile()
        session.run_each({"x": samples[:1], "a": samples[:1]})
        assert many == 5 * len(session.stop_profile())
