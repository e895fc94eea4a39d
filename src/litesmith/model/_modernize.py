# SPDX-License-Identifier: Apache-2.0
"""Give an old file what tools of today expect: a signature, names of its own for each tensor, known ranks.

Files from before 2020 have none of it, and many tools skip or misread them without a word. What the model computes stays
the same, bit for bit; operator codes are modern in whatever is written anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from litesmith.model._graph import ABSENT, Model, Operator, Quantization, Signature, Subgraph, Tensor

DEFAULT_SIGNATURE = "serving_default"


def modernize(model: Model, *, drop_orphans: bool = False) -> Model:
    """Return the model with a signature, unique tensor names and known ranks; what is modern already stays as it is.

    Args:
        model: Any model that can be verified.
        drop_orphans: Whether to drop the tensors that nothing refers to.

    Example:
        >>> from litesmith.model import Model, Operator, Subgraph, Tensor
        >>> relu = Operator("RELU", inputs=(0,), outputs=(1,))
        >>> pair = (Tensor("", (1,)), Tensor("", (1,)))
        >>> old = Model((Subgraph(tensors=pair, operators=(relu,), inputs=(0,), outputs=(1,)),))
        >>> modernize(old).signatures
        (Signature(key='serving_default', inputs=(('tensor_0', 0),), outputs=(('tensor_1', 1),), subgraph_index=0),)
    """
    if drop_orphans:
        model = _without_orphans(model)
    ranked = any(t.has_rank for s in model.subgraphs for t in s.tensors)  # else the file is older than the field
    subgraphs = tuple(replace(s, tensors=_named(s.tensors, ranked=ranked)) for s in model.subgraphs)
    model = replace(model, subgraphs=subgraphs, legacy=())
    return model if model.signatures else replace(model, signatures=(_signature(model.main),))


def _named(tensors: tuple[Tensor, ...], *, ranked: bool) -> tuple[Tensor, ...]:
    names = _unique(tensor.name or f"tensor_{index}" for index, tensor in enumerate(tensors))
    return tuple(
        replace(tensor, name=name, has_rank=tensor.has_rank or bool(tensor.shape) or not ranked)
        for tensor, name in zip(tensors, names, strict=True)
    )


def _unique(names: Iterable[str]) -> list[str]:
    """Return the names, with a number behind each that was there before."""
    wanted = list(names)
    taken, result = set(wanted), list[str]()
    seen: set[str] = set()
    for name in wanted:
        number, fresh = 1, name
        while fresh in seen or (fresh != name and fresh in taken):
            fresh, number = f"{name}_{number}", number + 1
        seen.add(fresh)
        result.append(fresh)
    return result


def _signature(main: Subgraph) -> Signature:
    def entries(indices: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        names = _unique(_plain(main.tensors[index].name) for index in indices)
        return tuple(zip(names, indices, strict=True))

    return Signature(DEFAULT_SIGNATURE, entries(main.inputs), entries(main.outputs))


def _plain(name: str) -> str:
    """Return a tensor name without what TensorFlow's converter adds: `serving_default_image:0` is `image`."""
    return name.removeprefix(f"{DEFAULT_SIGNATURE}_").removesuffix(":0") or name


def _without_orphans(model: Model) -> Model:
    subgraphs, places = [], []
    for index, subgraph in enumerate(model.subgraphs):
        kept = sorted(_referred(subgraph) | _signed(model, index))
        place = {old: new for new, old in enumerate(kept)} | {ABSENT: ABSENT}
        places.append(place)
        subgraphs.append(_renumbered(subgraph, kept, place))
    signatures = tuple(_renumbered_signature(s, places[s.subgraph_index]) for s in model.signatures)
    return replace(model, subgraphs=tuple(subgraphs), signatures=signatures)


def _referred(subgraph: Subgraph) -> set[int]:
    used = {*subgraph.inputs, *subgraph.outputs}
    for operator in subgraph.operators:
        used.update(operator.inputs, operator.outputs, operator.intermediates)
    used.discard(ABSENT)
    for index in tuple(used):
        used.update(_scale_tensors(subgraph.tensors[index].quantization))
    return used


def _scale_tensors(quantization: Quantization | None) -> set[int]:
    """Return the tensors that hold the scales and zero points of another."""
    if quantization is None or quantization.details is None or quantization.details.table == "CustomQuantization":
        return set()
    return {quantization.details.scales, quantization.details.zero_points} - {ABSENT}


def _signed(model: Model, subgraph_index: int) -> set[int]:
    own = (s for s in model.signatures if s.subgraph_index == subgraph_index)
    return {index for signature in own for _, index in (*signature.inputs, *signature.outputs)}


def _renumbered(subgraph: Subgraph, kept: list[int], place: dict[int, int]) -> Subgraph:
    def moved(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(place[index] for index in indices)

    def operator(old: Operator) -> Operator:
        inputs, outputs, intermediates = moved(old.inputs), moved(old.outputs), moved(old.intermediates)
        return replace(old, inputs=inputs, outputs=outputs, intermediates=intermediates)

    def tensor(old: Tensor) -> Tensor:
        quantization = old.quantization
        if quantization is None or quantization.details is None or not _scale_tensors(quantization):
            return old
        details = quantization.details
        details = details.replace(scales=place[details.scales], zero_points=place[details.zero_points])
        return replace(old, quantization=replace(quantization, details=details))

    return replace(
        subgraph,
        tensors=tuple(tensor(subgraph.tensors[index]) for index in kept),
        operators=tuple(map(operator, subgraph.operators)),
        inputs=moved(subgraph.inputs),
        outputs=moved(subgraph.outputs),
    )


def _renumbered_signature(signature: Signature, place: dict[int, int]) -> Signature:
    inputs = tuple((name, place[index]) for name, index in signature.inputs)
    outputs = tuple((name, place[index]) for name, index in signature.outputs)
    return replace(signature, inputs=inputs, outputs=outputs)
