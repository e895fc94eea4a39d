# SPDX-License-Identifier: Apache-2.0
"""Which operators of a file a delegate takes, and which are left to the built-in kernels.

LiteRT does not tell, but the wheel's Interpreter lists its nodes: first those of the file, then one per delegate
partition with the tensors that cross its border. The operators between these borders are the partition's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from litesmith.runtime._custom_op_binding import kernels_of
from litesmith.runtime._environment import creation_lock
from litesmith.runtime._interpreter import explained, make_interpreter
from litesmith.runtime._native import LITESMITH, decisions, with_native
from litesmith.runtime._options import CompileOptions
from litesmith.runtime._source import ModelLike, ModelSource

XNNPACK = "XNNPACK"


@dataclass(frozen=True)
class Partition:
    """Operators that run together.

    Attributes:
        delegate: Name of the delegate, or None for LiteRT's built-in kernels.
        operators: Indices of the operators in the first subgraph of the file, ascending.
    """

    delegate: str | None
    operators: tuple[int, ...]


def partitions(
    model: ModelLike | ModelSource, *, threads: int = 1, kernels: str = "delegate", verify: bool = True
) -> tuple[Partition, ...]:
    """Return which operators of the model's first subgraph the delegates take, in which pieces, and which they leave.

    Args:
        model: A path, the bytes of a `.tflite`, or a Model.
        threads: Threads of the session that is asked about.
        kernels: str of the session that is asked about.
        verify: Whether the model is verified first.

    Returns:
        One Partition per piece in order of execution, then one with the delegate None for the operators that stay
        with the built-in kernels, if there are any. An operator that only computes a constant counts to the piece
        that uses it: XNNPACK folds it.

    Example:
        >>> from litesmith.runtime._selfcheck import TINY_MODEL
        >>> partitions(TINY_MODEL)
        (Partition(delegate='XNNPACK', operators=(0,)),)
    """
    source = ModelSource.of(model, verify=verify)
    with creation_lock, explained(source, "compile"):
        options = with_native(CompileOptions(threads=threads, kernels=kernels), source)
        interpreter = make_interpreter(source, options)
        native = _taken_by_native(interpreter) if options.native else frozenset()
        try:
            interpreter.allocate_tensors()
        except RuntimeError as error:
            # The Interpreter cannot be given kernels, but it asks for them only after the delegates have chosen.
            if "unresolved custom op" not in str(error) or not kernels_of(source.read()):
                raise
        nodes = interpreter._get_ops_details()  # noqa: SLF001  (nothing public lists the delegates' nodes)
    return _group(nodes, native)


def _taken_by_native(interpreter: Any) -> frozenset[int]:
    """Return what Litesmith's delegate took of the first subgraph, which it was offered first."""
    delegate = interpreter._delegates[0]._get_native_delegate_pointer()  # noqa: SLF001
    return frozenset(int(d["node"]) for d in decisions(delegate) if d["taken"] and d["graph"] == 0)


def _group(nodes: list[dict[str, Any]], native: frozenset[int]) -> tuple[Partition, ...]:
    operators = [node for node in nodes if node["op_name"] != "DELEGATE"]
    producer = {int(tensor): node for node in operators for tensor in node["outputs"]}
    found = []
    for piece in (node for node in nodes if node["op_name"] == "DELEGATE"):
        operators_inside = _between(piece["inputs"], piece["outputs"], producer)
        found.append(Partition(LITESMITH if native & set(operators_inside) else XNNPACK, operators_inside))
    taken = {index for partition in found for index in partition.operators}
    left = tuple(node["index"] for node in operators if node["index"] not in taken)
    return (*found, Partition(None, left)) if left else tuple(found)


def _between(inputs: Iterable[int], outputs: Iterable[int], producer: dict[int, dict[str, Any]]) -> tuple[int, ...]:
    """Return the operators that are found on the way back from `outputs` to `inputs`."""
    border, open_tensors, seen = {int(t) for t in inputs}, [int(t) for t in outputs], set()
    while open_tensors:
        tensor = open_tensors.pop()
        node = producer.get(tensor)
        if node is None or tensor in border or node["index"] in seen:
            continue
        seen.add(int(node["index"]))
        open_tensors.extend(int(t) for t in node["inputs"] if t >= 0)
    return tuple(sorted(seen))
