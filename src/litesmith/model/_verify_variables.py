# SPDX-License-Identifier: Apache-2.0
"""Resource variables: all that read and assign one must agree what it is, wherever in the model they stand."""

from __future__ import annotations

from litesmith.errors import ModelError
from litesmith.model._graph import Model, Subgraph, Tensor


def verify_variables(model: Model) -> None:
    """Raise a ModelError when a variable is read or assigned as a type or shape other than its own.

    LiteRT reserves the memory of a variable when it is assigned, and its delegates read it as the reader says.
    """
    seen: dict[tuple[str, str], tuple[Tensor, str]] = {}
    for index, subgraph in enumerate(model.subgraphs):
        handles = _handles(subgraph)
        for number, operator in enumerate(subgraph.operators):
            if operator.kind not in ("READ_VARIABLE", "ASSIGN_VARIABLE") or operator.inputs[0] not in handles:
                continue
            position = operator.outputs[0] if operator.kind == "READ_VARIABLE" else operator.inputs[1]
            tensor, place = subgraph.tensors[position], f"operator {number} {operator.kind} of subgraph {index}"
            container, name = variable = handles[operator.inputs[0]]
            other, elsewhere = seen.setdefault(variable, (tensor, place))
            if other.dtype != tensor.dtype or not _agree(other, tensor):
                raise ModelError(
                    f"{place}: it takes the variable {container + '/' if container else ''}{name} for {tensor.dtype} of "
                    f"shape {list(tensor.shape)}, but {elsewhere} for {other.dtype} of shape {list(other.shape)}"
                )


def _handles(subgraph: Subgraph) -> dict[int, tuple[str, str]]:
    """Return the variable behind each handle that the subgraph makes."""
    found = {}
    for operator in subgraph.operators:
        if operator.kind == "VAR_HANDLE":
            options = operator.options
            names = (options.container or "", options.shared_name or "") if options is not None else ("", "")
            found.update(dict.fromkeys(operator.outputs, names))
    return found


def _agree(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors may be the same value: as many dimensions, equal but where one may change."""
    if len(one.shape) != len(other.shape):
        return False
    signatures = one.shape_signature or one.shape, other.shape_signature or other.shape
    return all(a == b or -1 in (a, b) for a, b in zip(*signatures, strict=True))
