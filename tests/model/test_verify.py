# SPDX-License-Identifier: Apache-2.0
"""Verification takes what LiteRT takes, and names the operator, the tensor, the value and what is expected otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import ASSETS
from tests.model.operator_samples import samples, stateful_models

from litesmith.errors import ModelError
from litesmith.model import (
    Buffer,
    Builder,
    Model,
    Operator,
    Quantization,
    Record,
    Signature,
    Subgraph,
    Tensor,
    constant,
)
from litesmith.model._verify_forms import form
from litesmith.runtime import Session, random_inputs

REFUSED = {  # stock LiteRT refuses the first, and crashes on the other two
    "808cfdfc_person_detect": "tensor 33 .* is quantized along axis 3, but its shape is",
    "77cb8571_blockwise_quantized": "operator 0 ADD: input 1 is tensor 2 'quantized_tensor', which no operator writes",
    "1d5e0e5c_keyword_scrambled_8bit": "operator 1 SVDF: input 4 .* is int8, but LiteRT's SVDF on int8 keeps int16",
}
FILES = sorted(ASSETS.glob("*/*.tflite")) if ASSETS.is_dir() else []
SAMPLES = [(f"{i}-{sample.kind}{sample.custom_code}", sample.model()) for i, sample in enumerate(samples())]
SAMPLES += list(stateful_models())


@pytest.mark.skipif(not FILES, reason=f"no folder of real models at {ASSETS}; set LITESMITH_ASSETS to it")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem[:40])
def test_real_files_are_accepted(path: Path) -> None:
    model = Model.load(path)
    if path.stem in REFUSED:
        with pytest.raises(ModelError, match=REFUSED[path.stem]):
            model.verify()
    else:
        model.verify()


@pytest.mark.parametrize(("name", "model"), SAMPLES, ids=[name for name, _ in SAMPLES])
def test_every_operator_is_accepted_and_runs(name: str, model: Model) -> None:
    model.verify()
    with Session(model, kernels="builtin") as session:
        session.run(random_inputs(session))


def test_the_samples_have_every_operator_of_litert() -> None:
    kinds = {operator.kind for _, model in SAMPLES for _, _, operator in model.operators()}
    known = {kind for kind in _builtin_kinds() if form(kind) is not None}

    assert kinds - {"CUSTOM"} == known


def _builtin_kinds() -> list[str]:
    from litesmith.model._flatbuffer import enum_values

    return list(enum_values("BuiltinOperator"))


def _sample(kind: str, nth: int = 0) -> Model:
    return [sample.model() for sample in samples() if kind in (sample.kind, sample.custom_code)][nth]


def _operator(model: Model, **changes: Any) -> Model:
    operators = (replace(model.main.operators[0], **changes), *model.main.operators[1:])
    return model.with_main(replace(model.main, operators=operators))


def _options(model: Model, **changes: Any) -> Model:
    options = model.main.operators[0].options
    assert options is not None
    return _operator(model, options=options.replace(**changes))


def _tensor(model: Model, index: int, **changes: Any) -> Model:
    tensors = list(model.main.tensors)
    tensors[index] = replace(tensors[index], **changes)
    return model.with_main(replace(model.main, tensors=tuple(tensors)))


def _constant(model: Model, index: int, values: Any, dtype: str | None = None) -> Model:
    made = constant("values", np.asarray(values), dtype)
    return _tensor(model, index, shape=made.shape, dtype=made.dtype, buffer=made.buffer)


def _quantized(model: Model, index: int, *scales: float, zero: int = 0, axis: int = 0) -> Model:
    return _tensor(model, index, quantization=Quantization(scales, (zero,) * len(scales), axis))


def _ints(values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int32)


def _main(model: Model, **changes: Any) -> Model:
    return model.with_main(replace(model.main, **changes))


STRUCTURE: list[tuple[str, Callable[[], Model], str]] = [
    ("index", lambda: _operator(_sample("RELU"), inputs=(7,)), "operator 0 RELU: input 0 is tensor 7, but there are 2"),
    ("index", lambda: _main(_sample("RELU"), outputs=(-1,)), "output 0 is tensor -1, but there are 2 tensors"),
    ("absent", lambda: _operator(_sample("ADD"), inputs=(0, -1)), "ADD: input 1 is absent, but only inputs [] may be"),
    ("arity", lambda: _operator(_sample("ADD"), inputs=(0,)), "ADD: it has 1 inputs, but must have 2"),
    ("arity", lambda: _operator(_sample("CONCATENATION"), inputs=()), "it has 0 inputs, but must have 1 or more"),
    ("bias", lambda: _operator(_sample("DEPTHWISE_CONV_2D"), inputs=(0, 1)), "it has 2 inputs, but must have 3"),
    ("twice", lambda: _main(_sample("RELU"), operators=_sample("RELU").main.operators * 2), "written by operator 0 RELU already"),
    ("constant", lambda: _operator(_sample("PRELU"), outputs=(1,)), "output 0 is tensor 1 'constant1', which is a constant"),
    ("input", lambda: _operator(_sample("RELU"), outputs=(0,)), "which is an input of the graph"),
    ("unwritten", lambda: _main(_sample("RELU"), inputs=()), "which no operator writes and which is no constant"),
    ("unwritten", lambda: _main(_sample("RELU"), operators=()), "output 0 is tensor 1 'x100', which no operator writes"),
    ("input twice", lambda: _main(_sample("RELU"), inputs=(0, 0)), "input 1 is tensor 0 'x0', which is an input already"),
    ("constant input", lambda: _main(_sample("PRELU"), inputs=(0, 1)), "which is a constant; it must be neither"),
    ("options", lambda: _operator(_sample("ADD"), options=Record("MulOptions")), "its options are MulOptions, but must be AddOptions"),
    ("options", lambda: _operator(_sample("Mfcc"), options=Record("MulOptions")), "a custom operator has custom_options"),
    ("code", lambda: _operator(_sample("Mfcc"), custom_code=""), "a custom operator needs a custom_code"),
    ("empty", lambda: Model(()), "the model has no subgraphs"),
]  # fmt: skip

TENSORS: list[tuple[str, Callable[[], Model], str]] = [
    ("shape", lambda: _tensor(_sample("RELU"), 0, shape=(2, -1)), "tensor 0 'x0': its shape [2, -1] has a negative dimension"),
    ("overflow", lambda: _tensor(_sample("RELU"), 0, shape=(2**20, 2**20)), "1,099,511,627,776 elements, more than LiteRT"),
    ("overflow", lambda: _tensor(_sample("RELU"), 0, shape=(2**20, 0, 2**20)), "more than LiteRT can count"),
    ("rank", lambda: _tensor(_sample("RELU"), 0, shape=(1,) * 9), "it has 9 dimensions, more than the 8"),
    ("signature", lambda: _tensor(_sample("RELU"), 0, shape_signature=(-1, 3)), "its shape_signature [-1, 3] does not fit"),
    ("signature", lambda: _tensor(_sample("RELU"), 0, shape_signature=(2, 3, 5)), "does not fit its shape [2, 3, 4]"),
    ("buffer", lambda: _tensor(_sample("PRELU"), 1, buffer=Buffer(b"1234")), "its buffer has 4 bytes, but float32 of shape"),
    ("strings", lambda: _tensor(_sample("SKIP_GRAM"), 0, shape=(3,)), "its buffer holds 1 strings, but its shape [3] has 3"),
    ("strings", lambda: _tensor(_sample("SKIP_GRAM"), 0, buffer=Buffer(b"\x09\0\0\0")), "a string buffer of 4 bytes"),
    ("resource", lambda: _tensor(_sample("RELU"), 0, dtype="resource", buffer=Buffer(b"")), "a resource cannot be constant"),
    ("variable", lambda: _tensor(_sample("PRELU"), 1, is_variable=True), "variable and constant at once"),
    ("external", lambda: _tensor(_sample("RELU"), 0, external_buffer=3), "external buffer 3, but there are only []"),
    ("sparse", lambda: _tensor(_sample("DENSIFY"), 0, buffer=None), "only constants can be stored sparse"),
    ("scale", lambda: _quantized(_sample("RELU"), 0, 0.0), "it has a scale of 0.0; a scale must be positive and finite"),
    ("scale", lambda: _quantized(_sample("RELU"), 0, float("nan")), "it has a scale of nan"),
    ("scale", lambda: _quantized(_sample("RELU"), 0, 1e-40), "too small or too large to be computed with"),
    ("axis", lambda: _quantized(_sample("RELU"), 0, 1.0, axis=3), "quantized along axis 3, but its shape is [2, 3, 4]"),
    ("zero", lambda: _quantized(_sample("QUANTIZE"), 0, 1.0, zero=200), "a zero point of 200, outside int8 (-128 to 127)"),
    ("lengths", lambda: _tensor(_sample("RELU"), 0, quantization=Quantization((1.0,), ())), "1 scales and 0 zero points"),
    ("blocks", lambda: _tensor(_sample("RELU"), 0, quantization=Quantization(
        details=Record("BlockwiseQuantization", scales=9, zero_points=-1, block_size=4))), "takes scales from tensor 9"),
]  # fmt: skip

OPERATORS: list[tuple[str, Callable[[], Model], str]] = [
    ("stride", lambda: _options(_sample("CONV_2D"), stride_w=0), "CONV_2D: kernel 3, stride 0 and dilation 1 must be positive"),
    ("dilation", lambda: _options(_sample("DEPTHWISE_CONV_2D"), dilation_h_factor=-1), "dilation -1 must be positive"),
    ("window", lambda: _options(_sample("MAX_POOL_2D"), filter_width=0), "MAX_POOL_2D: kernel 0"),
    ("multiplier", lambda: _options(_sample("DEPTHWISE_CONV_2D"), depth_multiplier=1), "its depth_multiplier is 1, but 3 channels become 6"),
    ("channels", lambda: _tensor(_sample("CONV_2D"), 0, shape=(1, 5, 5, 4)), "do not fit an input of 4 channels"),
    ("shape", lambda: _tensor(_sample("RELU"), 1, shape=(2, 3, 5)), "output 0 (tensor 1 'x100') has shape [2, 3, 5] in the file, but [2, 3, 4]"),
    ("type", lambda: _tensor(_sample("RELU"), 1, dtype="int8"), "is int8 in the file, but float32 is computed"),
    ("type", lambda: _tensor(_sample("UNSORTED_SEGMENT_SUM"), 3, dtype="int8"), "is int8, but must be float32 as input 0 is"),
    ("string", lambda: _tensor(_sample("RELU"), 0, dtype="string"), "input 0 (tensor 0 'x0') is a string, which RELU cannot take"),
    ("integers", lambda: _constant(_sample("RESHAPE"), 1, [4.0, 6.0]), "is float64, but must be integers"),
    ("axis", lambda: _options(_sample("CONCATENATION"), axis=5), "axis 5 is outside a tensor of rank 3"),
    ("axis", lambda: _constant(_sample("SPLIT"), 0, _ints([1, 2])), "has shape [2], but must be one value"),
    ("splits", lambda: _options(_sample("SPLIT"), num_splits=3), "its num_splits is 3, but it has 2 outputs"),
    ("splits", lambda: _constant(_sample("SPLIT_V"), 1, _ints([-5, 8])), "has sizes [-5, 8], but they must be 0 or more"),
    ("unpack", lambda: _options(_sample("UNPACK"), num=2**31 - 1), "its num is 2147483647, but it has 2 outputs"),
    ("block", lambda: _options(_sample("DEPTH_TO_SPACE"), block_size=0), "do not make blocks of 0"),
    ("order", lambda: _constant(_sample("TRANSPOSE"), 1, _ints([2, 0, 0])), "[2, 0, 0] is not an order of the 3 dimensions"),
    ("padding", lambda: _constant(_sample("PAD"), 1, _ints([[0, 0], [-1, 2], [0, 1]])), "PAD: padding"),
    ("elements", lambda: _constant(_sample("RESHAPE"), 1, _ints([5, 5])), "24 elements and cannot become [5, 5]"),
    ("broadcast", lambda: _tensor(_sample("SUB", 3), 1, shape=(2, 3, 5)), "do not broadcast"),
    ("alike", lambda: _tensor(_sample("ATAN2"), 1, shape=(2, 3, 1)), "must be alike"),
    ("scale", lambda: _quantized(_sample("ADD", 1), 2, 1e-9), "are too large for its output scale 1e-09"),
    ("scale", lambda: _tensor(_sample("ADD", 1), 0, quantization=None), "is int8 with 0 scales, but ADD needs one"),
    ("scale", lambda: _quantized(_sample("EQUAL", 1), 0, 1.0), "has a scale of exactly 1, on which LiteRT aborts"),
    ("state", lambda: _tensor(_sample("SVDF"), 4, is_variable=False, buffer=Buffer(bytes(128))), "must be a variable tensor"),
    ("empty", lambda: _tensor(_tensor(_sample("SOFTMAX"), 0, shape=(2, 0)), 1, shape=(2, 0)), "SOFTMAX needs values to compare"),
    ("radius", lambda: _options(_sample("LOCAL_RESPONSE_NORMALIZATION"), radius=-1), "its radius is -1"),
    ("lengths", lambda: _constant(_sample("REVERSE_SEQUENCE"), 1, _ints([2, 9])), "has lengths [2, 9], but dimension 1 has 4"),
    ("gather", lambda: _options(_sample("STABLEHLO_GATHER"), collapsed_slice_dims=(0, -1)), "collapsed_slice_dims [0, -1] must rise"),
    ("scatter", lambda: _options(_sample("STABLEHLO_SCATTER"), index_vector_dim=2), "its index_vector_dim is 2"),
    ("window", lambda: _options(_sample("STABLEHLO_REDUCE_WINDOW"), padding=(2**48, 0, 0, 0)), "does not fit into"),
    ("sparse lookup", lambda: _constant(_sample("EMBEDDING_LOOKUP_SPARSE"), 1, _ints([[0, 0], [9, 0], [2, 1]])), "outside the sparse shape"),
    ("custom", lambda: _operator(_sample("Mfcc"), custom_options=None), "it has no custom_options, which its kernel reads"),
    ("custom", lambda: _operator(_sample("Mfcc"), custom_options=b"\xff\xff\xff\x27\x02"), "its options cannot be read"),
    ("boxes", lambda: _tensor(_sample("TFLite_Detection_PostProcess"), 0, shape=(1, 8, 4)), "scores [1, 9, 4] do not fit 8 boxes"),
]  # fmt: skip

CALLS: list[tuple[str, Callable[[], Model], str]] = [
    ("range", lambda: _options(_sample("IF"), then_subgraph_index=9), "IF: it calls subgraph 9, but there are 3 subgraphs"),
    ("recursion", lambda: _options(_sample("IF"), then_subgraph_index=0), "which is running already (0 → 0)"),
    ("arity", lambda: _operator(_sample("IF"), inputs=(0, 1)), "calls subgraph 1 with 1 inputs for 1 outputs, but that has 2 and 1"),
    ("selector", lambda: _tensor(_sample("IF"), 0, dtype="int32"), "is int32 of shape [], but must be one bool"),
    ("type", lambda: _tensor(_sample("IF"), 1, dtype="int32"), "is int32, but subgraph 1 takes float32"),
    ("shape", lambda: _tensor(_sample("STABLEHLO_COMPOSITE"), 0, shape=(2, 4)), "has shape [2, 4], but subgraph 1 takes [2, 3]"),
    ("loop", lambda: _options(_sample("WHILE"), cond_subgraph_index=2), "with 2 inputs for 1 outputs, but that has 2 and 2"),
    ("branches", lambda: _options(_sample("STABLEHLO_CASE"), branch_subgraph_indices=(1,)), "must be all subgraphs but the first"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "message"), [*STRUCTURE, *TENSORS, *OPERATORS, *CALLS])
def test_a_broken_rule_is_named(name: str, model: Callable[[], Model], message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        model().verify()


def test_scales_must_be_one_or_one_for_each_index() -> None:
    model = _quantized(_sample("RELU"), 0, 1.0, 1.0, 1.0)
    with pytest.raises(
        ModelError, match=re.escape("it has 3 scales along axis 0 of shape [2, 3, 4]; there must be one")
    ):
        model.verify()


def test_operators_must_stand_in_the_order_they_run() -> None:
    tensors = tuple(Tensor(name, (2,)) for name in "xyz")
    late, early = Operator("RELU", (1,), (2,)), Operator("ABS", (0,), (1,))
    graph = Subgraph("main", tensors, (late, early), (0,), (2,))
    with pytest.raises(
        ModelError, match="RELU: input 0 is tensor 1 'y', which is written only by operator 1 ABS; the oper"
    ):
        Model((graph,)).verify()


def test_a_variable_must_be_one_thing_everywhere() -> None:
    model = dict(stateful_models())["variables"]
    start = replace(
        model.subgraphs[1], tensors=(model.subgraphs[1].tensors[0], constant("start", np.zeros((2, 4), np.float32)))
    )
    with pytest.raises(
        ModelError, match=re.escape("takes the variable v for float32 of shape [2, 4], but operator 2 READ")
    ):
        replace(model, subgraphs=(model.main, start)).verify()


def test_handles_stay_inside() -> None:
    model = dict(stateful_models())["variables"]
    with pytest.raises(ModelError, match="output 0 .tensor 0 'handle'.: a resource has no value that could pass"):
        _main(model, outputs=(0,)).verify()


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        (Signature("a", (("x", 0),), (("y", 1),), 5), "signature 'a': it runs subgraph 5, but there are 1 subgraphs"),
        (Signature("a", (("x", 1),), (("y", 1),)), "input 'x' is tensor 1, which is not among the inputs [0]"),
        (Signature("a", (), (("y", 1),)), "it has no name for the input that is tensor 0"),
        (Signature("b", (("x", 0),), (("y", 1),)), "signature 'b': there are two of that name"),
    ],
)
def test_signatures_must_fit(signature: Signature, message: str) -> None:
    model = replace(_sample("RELU"), signatures=(signature, Signature("b", (("x", 0),), (("y", 1),))))
    with pytest.raises(ModelError, match=re.escape(message)):
        model.verify()


def test_a_shape_known_only_at_run_time_is_not_held_against_the_file() -> None:
    """What the file says about a tensor behind a computed shape is a guess, also for the operators that follow."""
    tensors = (Tensor("x", (2, 6)), Tensor("shape", (2,), "int32"), Tensor("y", (1, 1)), Tensor("z", (5,)))
    operators = (Operator("RESHAPE", (0, 1), (2,)), Operator("RELU", (2,), (3,)))
    model = Model((Subgraph("main", tensors, operators, (0, 1), (3,)),))

    model.verify()
    with Session(model) as session:
        assert session(np.ones((2, 6), np.float32), _ints([3, 4]))["z"].shape == (3, 4)


def _runs_like(made: Model, plain: Model) -> None:
    """Both are accepted, and LiteRT gives the same outputs."""
    with Session(plain) as expected, Session(made) as found:
        feeds = {
            name: np.random.default_rng(0).standard_normal(a.shape, np.float32) for name, a in expected.inputs.items()
        }
        outputs = expected.run(feeds)
        for name, array in found.run(feeds).items():
            np.testing.assert_allclose(array, outputs[name], rtol=1e-3, atol=1e-6)


def test_a_depth_multiplier_may_be_left_out() -> None:
    b = Builder()
    plain = b.build({"y": b.depthwise_conv2d(b.input("x", (1, 6, 6, 4)), kernel=3)})
    _runs_like(_options(plain, depth_multiplier=0), plain)


def test_an_old_scalar_is_accepted() -> None:
    options = Record("ReshapeOptions", new_shape=(0,))
    graph = Subgraph(
        "main", (Tensor("x", (1,)), Tensor("y", ())), (Operator("RESHAPE", (0,), (1,), options),), (0,), (1,)
    )
    model = Model((graph,))
    model.verify()
    with Session(model) as session:
        assert session(np.ones(1, np.float32))["y"] == 1


def test_a_constant_may_have_more_bytes_than_it_needs() -> None:
    b = Builder()
    plain = b.build({"y": b.op("ADD", b.input("x", (4,)), np.arange(4, dtype=np.float32))})
    index = next(i for i, t in enumerate(plain.main.tensors) if t.is_constant)
    stored = plain.main.tensors[index].buffer
    assert stored is not None
    longer = _tensor(plain, index, buffer=Buffer(bytes(stored.data) + bytes(12)))
    _runs_like(longer, plain)
    read = Model.from_bytes(longer.to_bytes())
    np.testing.assert_array_equal(read.main.tensors[index].array(), np.arange(4, dtype=np.float32))
    with pytest.raises(ModelError, match="its buffer has 12 bytes, but float32"):
        _tensor(plain, index, buffer=Buffer(bytes(stored.data)[:12])).verify()
