# SPDX-License-Identifier: Apache-2.0
"""What is in a `.tflite`: inputs, outputs, operators and what they cost, quantization, and what delegates take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from litesmith.errors import LitesmithError
from litesmith.model import Model, OperatorCost, Quantization, Subgraph, Tensor
from litesmith.result import Result

_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "CONV_3D", "BATCH_MATMUL"})


@dataclass(frozen=True)
class TensorFacts:
    """One input or output: its name, in the signature where there is one, shape, type and quantization."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: str


@dataclass(frozen=True)
class SignatureFacts:
    """One signature: its key, its inputs and its outputs."""

    key: str
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]


@dataclass(frozen=True)
class OperatorGroup:
    """All operators of one kind together."""

    kind: str
    count: int
    parameters: int
    macs: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Delegation:
    """What a delegate takes of the model, and what no delegate takes; ``problem`` says why LiteRT would not load it."""

    delegated: int
    partitions: int
    left: dict[str, int]
    problem: str = ""


@dataclass(frozen=True)
class Inspection(Result, kind="inspection", schema=1):
    """What ``inspect`` found."""

    name: str
    size_bytes: int
    description: str
    scheme: str
    signatures: tuple[SignatureFacts, ...]
    subgraphs: int
    operators: tuple[OperatorGroup, ...]
    parameters: int
    macs: int
    bytes_read: int
    bytes_written: int
    constant_bytes: dict[str, int]
    metadata: tuple[str, ...]
    associated_files: tuple[str, ...]
    legacy: tuple[str, ...]
    xnnpack: Delegation | None  # LiteRT's fast CPU path
    litesmith: Delegation | None  # Litesmith's own kernels; None if the model has no operators for them

    @property
    def operator_count(self) -> int:
        """How many operators the model has, in all subgraphs."""
        return sum(group.count for group in self.operators)


def inspect(model: Model | str | Path, *, delegates: bool = True) -> Inspection:
    """Say what is in a model.

    Args:
        model: a Model, or the path of a `.tflite`.
        delegates: also let LiteRT compile it, to see which operators XNNPACK and Litesmith's delegate take.

    Example:
        >>> import litesmith
        >>> litesmith.inspect(litesmith.samples.model(), delegates=False).subgraphs
        1
    """
    loaded = model if isinstance(model, Model) else Model.load(model)
    loaded.verify()
    cost = loaded.cost()
    xnnpack, native = _delegation(loaded) if delegates else (None, None)
    return Inspection(
        name=str(loaded.source or loaded.description or "model"),
        size_bytes=len(loaded.to_bytes()) if isinstance(model, Model) else Path(model).stat().st_size,
        description=loaded.description,
        scheme=scheme(loaded),
        signatures=_signatures(loaded),
        subgraphs=len(loaded.subgraphs),
        operators=_groups(cost.operators),
        parameters=cost.parameters,
        macs=cost.macs,
        bytes_read=sum(o.bytes_read for o in cost.operators),
        bytes_written=sum(o.bytes_written for o in cost.operators),
        constant_bytes=_constant_bytes(loaded),
        metadata=tuple(entry.name for entry in loaded.metadata),
        associated_files=tuple(name for name, _ in loaded.associated_files),
        legacy=loaded.legacy,
        xnnpack=xnnpack,
        litesmith=native,
    )


def scheme(model: Model) -> str:
    """Return in a word how the model computes: float32, float16 weights, dynamic int8, int8, int16x8, mixed."""
    found: Counter[str] = Counter()
    for subgraph in model.subgraphs:
        producers = subgraph.producers()
        for operator in subgraph.operators:
            if operator.kind in _WEIGHTED and len(operator.inputs) > 1:
                found[_operator_scheme(subgraph, producers, operator.inputs, operator.kind)] += 1
    if not found:
        types = {t.dtype for s in model.subgraphs for t in s.tensors if not t.is_constant}
        return " and ".join(sorted(types)) or "empty"
    if len(found) == 1:
        return next(iter(found))
    return "mixed: " + ", ".join(f"{name} {count}" for name, count in found.most_common())


def _operator_scheme(subgraph: Subgraph, producers: dict[int, int], inputs: tuple[int, ...], kind: str) -> str:
    data, weight = (2, 1) if kind == "TRANSPOSE_CONV" else (0, 1)
    activation, stored = subgraph.tensors[inputs[data]].dtype, subgraph.tensors[inputs[weight]]
    if not stored.is_constant and inputs[weight] in producers:
        source = subgraph.operators[producers[inputs[weight]]]
        origin = subgraph.tensors[source.inputs[0]] if source.inputs else stored
        if source.kind in ("DEQUANTIZE", "DENSIFY") and origin.is_constant:
            return f"{origin.dtype} weights" + (", sparse" if source.kind == "DENSIFY" else "")
    if activation == stored.dtype:
        return activation
    if activation == "int16":
        return f"int16x{8 if stored.dtype == 'int8' else stored.dtype}"
    return f"dynamic {stored.dtype}" if activation == "float32" else f"{activation} × {stored.dtype}"


def _signatures(model: Model) -> tuple[SignatureFacts, ...]:
    if not model.signatures:
        main = model.main
        return (
            SignatureFacts("", _tensors(main, _named(main, main.inputs)), _tensors(main, _named(main, main.outputs))),
        )
    return tuple(
        SignatureFacts(
            signature.key,
            _tensors(model.subgraphs[signature.subgraph_index], signature.inputs),
            _tensors(model.subgraphs[signature.subgraph_index], signature.outputs),
        )
        for signature in model.signatures
    )


def _named(subgraph: Subgraph, indices: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(subgraph.tensors[i].name, i) for i in indices]


def _tensors(subgraph: Subgraph, entries: Iterable[tuple[str, int]]) -> tuple[TensorFacts, ...]:
    def facts(name: str, tensor: Tensor) -> TensorFacts:
        return TensorFacts(
            name, tensor.shape_signature or tensor.shape, tensor.dtype, _quantization(tensor.quantization)
        )

    return tuple(facts(name, subgraph.tensors[index]) for name, index in entries)


def _quantization(quantization: Quantization | None) -> str:
    if quantization is None or not quantization.scale:
        return ""
    if quantization.per_channel:
        return f"{len(quantization.scale)} scales along axis {quantization.axis}"
    return f"scale {quantization.scale[0]:.6g}, zero {quantization.zero_point[0] if quantization.zero_point else 0}"


def _groups(operators: tuple[OperatorCost, ...]) -> tuple[OperatorGroup, ...]:
    by_kind: dict[str, list[OperatorCost]] = {}
    for operator in operators:
        by_kind.setdefault(operator.kind, []).append(operator)
    groups = [
        OperatorGroup(
            kind,
            len(members),
            sum(m.parameters for m in members),
            sum(m.macs for m in members),
            sum(m.bytes_read for m in members),
            sum(m.bytes_written for m in members),
        )
        for kind, members in by_kind.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-g.macs, -g.bytes_read, g.kind)))


def _constant_bytes(model: Model) -> dict[str, int]:
    buffers = {
        id(t.buffer): (t.dtype, len(t.buffer)) for s in model.subgraphs for t in s.tensors if t.buffer is not None
    }
    totals: Counter[str] = Counter()
    for dtype, size in buffers.values():
        totals[dtype] += size
    return dict(totals.most_common())


def _delegation(model: Model) -> tuple[Delegation, Delegation | None]:
    """Return what XNNPACK takes, and what Litesmith's delegate takes before it."""
    from litesmith.runtime._native import LITESMITH, wants_native
    from litesmith.runtime._partitions import XNNPACK, partitions

    native = wants_native(model)
    try:
        found = partitions(model)
    except LitesmithError as error:
        problem = Delegation(0, 0, {}, str(error))
        return problem, problem if native else None
    left = Counter(model.main.operators[i].name for p in found if p.delegate is None for i in p.operators)

    def of(delegate: str) -> Delegation:
        pieces = [p for p in found if p.delegate == delegate]
        return Delegation(sum(len(p.operators) for p in pieces), len(pieces), dict(left.most_common()))

    return of(XNNPACK), of(LITESMITH) if native else None
