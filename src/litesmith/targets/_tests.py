# SPDX-License-Identifier: Apache-2.0
"""How a rule is tested: one short function for each word that a rule table may use as its ``test``.

A test gets an operator in its graph and the rule's parameters. It returns "" where the rule holds, or else the value that
breaks it, as it is shown to people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litesmith.model import ABSENT, Operator, Record, Subgraph, Tensor, options_table

Test = Callable[["Place", Mapping[str, Any]], str]
TESTS: dict[str, Test] = {}
_FLOATS = ("float32", "float16")
_REDUCED_AXES = {"SPLIT": 0}


@dataclass(frozen=True)
class Place:
    """One operator and the graph it stands in."""

    graph: Subgraph
    operator: Operator
    producers: Mapping[int, int]

    def input(self, index: int) -> Tensor | None:
        """Return an input, None where it is absent."""
        inputs = self.operator.inputs
        return self.graph.tensors[inputs[index]] if index < len(inputs) and inputs[index] != ABSENT else None

    @property
    def activations(self) -> list[Tensor]:
        """What is computed when the model runs: the inputs that are no constants or states, and the outputs."""
        inputs = [t for i in range(len(self.operator.inputs)) if (t := self.input(i)) is not None]
        outputs = [self.graph.tensors[i] for i in self.operator.outputs]
        return [t for t in inputs if not t.is_constant and not t.is_variable] + outputs

    def option(self, name: str) -> Any:
        """Return one of the operator's options, its default where the file has none."""
        table = options_table(self.operator.kind)
        options = self.operator.options or (None if table is None else Record(table))
        return getattr(options, name, None)

    def integers(self, index: int) -> list[int] | None:
        """Return the values of a constant input, None where it is not one."""
        tensor = self.input(index)
        if tensor is None or tensor.buffer is None or tensor.sparsity is not None:
            return None
        return [int(value) for value in tensor.array().reshape(-1)]

    def is_stored(self, index: int, *, dequantized: bool = False) -> bool:
        """Return whether an input is a constant, or with ``dequantized`` one that the model only unpacks."""
        tensor = self.input(index)
        if tensor is None or tensor.is_constant:
            return True
        source = self.producers.get(self.operator.inputs[index])
        if not dequantized or source is None or self.graph.operators[source].kind not in ("DEQUANTIZE", "DENSIFY"):
            return False
        return Place(self.graph, self.graph.operators[source], self.producers).is_stored(0, dequantized=True)


def test(name: str) -> Callable[[Test], Test]:
    """Register a test under the word that rule tables use."""

    def register(function: Test) -> Test:
        TESTS[name] = function
        return function

    return register


def _between(value: float, rule: Mapping[str, Any]) -> bool:
    return bool(rule.get("least", value) <= value <= rule.get("most", value))


@test("activations")
def _activations(place: Place, rule: Mapping[str, Any]) -> str:
    allowed = {*rule["types"], *rule.get("but", {}).get(place.operator.kind, ())}
    return ", ".join(sorted({t.dtype for t in place.activations} - allowed))


@test("static")
def _static(place: Place, _: Mapping[str, Any]) -> str:
    shapes = [t.shape_signature or t.shape for t in place.activations]
    return next((str(shape) for shape in shapes if any(d < 0 for d in shape)), "")


@test("rank")
def _rank(place: Place, rule: Mapping[str, Any]) -> str:
    return next((f"{len(t.shape)} dimensions" for t in place.activations if len(t.shape) > rule["most"]), "")


@test("outer-ones")
def _outer_ones(place: Place, rule: Mapping[str, Any]) -> str:
    outputs = [place.graph.tensors[i] for i in place.operator.outputs]
    tensors = outputs if rule.get("of") == "outputs" else place.activations
    return next((str(t.shape) for t in tensors if _large(t.shape[: -rule["inner"]])), "")


def _large(dimensions: Sequence[int]) -> bool:
    return any(d not in (1, -1) for d in dimensions)


@test("shape-ones")
def _shape_ones(place: Place, rule: Mapping[str, Any]) -> str:
    tensor = place.input(rule["input"])
    return str(tensor.shape) if tensor is not None and _large(tensor.shape[: -rule["inner"]]) else ""


@test("option")
def _option(place: Place, rule: Mapping[str, Any]) -> str:
    value = place.option(rule["option"])
    if value is None:
        return ""
    fits = _between(value, rule) if "least" in rule or "most" in rule else True
    fits &= value in rule.get("among", [value])
    fits &= "same_as" not in rule or value == place.option(rule["same_as"])
    return "" if fits else f"{rule['option']} = {value}"


@test("version")
def _version(place: Place, rule: Mapping[str, Any]) -> str:
    version = place.operator.version
    fits = rule.get("oldest", version) <= version <= rule.get("newest", version)
    return "" if fits else f"version {version}"


@test("constant")
def _constant(place: Place, rule: Mapping[str, Any]) -> str:
    loose = rule.get("dequantized", False)
    return next((f"input {i}" for i in rule["inputs"] if not place.is_stored(i, dequantized=loose)), "")


@test("computed")
def _computed(place: Place, rule: Mapping[str, Any]) -> str:
    return next((f"input {i}" for i in rule["inputs"] if (t := place.input(i)) is not None and t.is_constant), "")


@test("input-count")
def _input_count(place: Place, rule: Mapping[str, Any]) -> str:
    count = sum(i != ABSENT for i in place.operator.inputs)
    return "" if _between(count, rule) else f"{count} inputs"


@test("input-rank")
def _input_rank(place: Place, rule: Mapping[str, Any]) -> str:
    tensor = place.input(rule["input"])
    return "" if tensor is None or len(tensor.shape) in rule["among"] else str(tensor.shape)


@test("input-types")
def _input_types(place: Place, rule: Mapping[str, Any]) -> str:
    tensor = place.input(rule["input"])
    return "" if tensor is None or tensor.dtype in rule["types"] else tensor.dtype


@test("input-dimension")
def _input_dimension(place: Place, rule: Mapping[str, Any]) -> str:
    tensor = place.input(rule["input"])
    if tensor is None or rule["dimension"] >= len(tensor.shape):
        return ""
    return "" if _between(tensor.shape[rule["dimension"]], rule) else str(tensor.shape)


@test("input-values")
def _input_values(place: Place, rule: Mapping[str, Any]) -> str:
    values = place.integers(rule["input"])
    if values is None:
        return "not a constant"
    return "" if set(values) <= set(rule["among"]) else str(values)


@test("elements")
def _elements(place: Place, rule: Mapping[str, Any]) -> str:
    return next((f"{t.elements} elements" for t in place.activations if t.elements > rule["most"]), "")


@test("not-batch")
def _not_batch(place: Place, _: Mapping[str, Any]) -> str:
    kind = place.operator.kind
    axes = [place.option("axis")] if kind == "PACK" else place.integers(_REDUCED_AXES.get(kind, 1))
    if axes is None:
        return "an axis that is not constant"
    data = place.input(1 if kind == "SPLIT" else 0)
    rank = (len(data.shape) if data is not None else 0) + (kind == "PACK")
    return "axis 0" if rank > 1 and any(axis in (0, -rank) for axis in axes) else ""


@test("no-batch-padding")
def _no_batch_padding(place: Place, _: Mapping[str, Any]) -> str:
    padding = place.integers(1)
    return "not a constant" if padding is None else f"padded by {padding[:2]}" if any(padding[:2]) else ""


@test("reduced-channels")
def _reduced_channels(place: Place, rule: Mapping[str, Any]) -> str:
    data, axes = place.input(0), place.integers(1)
    if data is None or axes is None or not {-1, len(data.shape) - 1} & set(axes):
        return ""
    return "" if data.shape[-1] % rule["multiple"] == 0 else f"{data.shape[-1]} channels"


@test("concatenated-constants")
def _concatenated_constants(place: Place, _: Mapping[str, Any]) -> str:
    stored = [t for i in range(len(place.operator.inputs)) if (t := place.input(i)) is not None and t.is_constant]
    if not stored:
        return ""
    zero = stored[0].quantization.zero_point[0] if stored[0].quantization and stored[0].quantization.zero_point else 0
    plain = stored[0].buffer is not None and stored[0].sparsity is None
    zeros = plain and not (stored[0].array() != zero).any()
    return "" if len(place.operator.inputs) == 2 and zeros else f"the constant {stored[0].name!r}"


@test("squeezes-leading")
def _squeezes_leading(place: Place, _: Mapping[str, Any]) -> str:
    data = place.input(0)
    made = place.graph.tensors[place.operator.outputs[0]].shape
    if data is None or data.shape[len(data.shape) - len(made) :] == made:
        return ""
    return f"{data.shape} to {made}"


@test("dilated-or-strided")
def _dilated_or_strided(place: Place, _: Mapping[str, Any]) -> str:
    dilated = place.option("dilation_h_factor") != 1 or place.option("dilation_w_factor") != 1
    strided = place.option("stride_h") != 1 or place.option("stride_w") != 1
    return "dilated and strided" if dilated and strided else ""


@test("depth-multiplier")
def _depth_multiplier(place: Place, _: Mapping[str, Any]) -> str:
    multiplier, data = place.option("depth_multiplier"), place.input(0)
    dilated = place.option("dilation_h_factor") != 1 or place.option("dilation_w_factor") != 1
    alone = data is not None and len(data.shape) == 4 and data.shape[3] == 1 and not dilated
    return "" if multiplier in (0, 1, None) or alone else f"multiplier {multiplier}"


@test("per-tensor")
def _per_tensor(place: Place, rule: Mapping[str, Any]) -> str:
    for index in rule["inputs"]:
        tensor = place.input(index)
        if tensor is not None and tensor.quantization is not None and tensor.quantization.per_channel:
            return f"{len(tensor.quantization.scale)} scales"
    return ""


@test("int16-per-tensor")
def _int16_per_tensor(place: Place, _: Mapping[str, Any]) -> str:
    wide = [t for t in place.activations if t.dtype == "int16" and t.quantization is not None]
    return next(
        (f"{len(t.quantization.scale)} scales" for t in wide if t.quantization and t.quantization.per_channel), ""
    )


@test("not-hybrid")
def _not_hybrid(place: Place, _: Mapping[str, Any]) -> str:
    weights, data = place.input(1), place.input(2 if place.operator.kind == "TRANSPOSE_CONV" else 0)
    if weights is None or data is None or data.dtype not in _FLOATS:
        return ""
    return "" if weights.dtype in _FLOATS else f"{data.dtype} activations, {weights.dtype} weights"


@test("not-blockwise")
def _not_blockwise(place: Place, _: Mapping[str, Any]) -> str:
    tensors = [t for i in range(len(place.operator.inputs)) if (t := place.input(i)) is not None]
    return next(
        (f"the tensor {t.name!r}" for t in tensors if t.quantization and t.quantization.details is not None), ""
    )


@test("not-sparse")
def _not_sparse(place: Place, _: Mapping[str, Any]) -> str:
    tensors = [t for i in range(len(place.operator.inputs)) if (t := place.input(i)) is not None]
    return next((f"the tensor {t.name!r}" for t in tensors if t.sparsity is not None), "")
