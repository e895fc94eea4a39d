# SPDX-License-Identifier: Apache-2.0
"""The rules of the format, checked over a whole Model: what passes can be given to LiteRT's native code.

Tensors first (``_verify_tensors``), then how operators hang together, then each operator by its kind
(``_verify_operators``). The first broken rule is reported, with the operator, the tensor, the value and what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from litesmith.errors import ModelError
from litesmith.model._graph import ABSENT, Model, Operator, Signature, Subgraph
from litesmith.model._verify_calls import called_subgraphs
from litesmith.model._verify_custom import has_kernel
from litesmith.model._verify_operators import verify_operators
from litesmith.model._verify_tensors import verify_tensor
from litesmith.model._verify_variables import verify_variables


def verify(model: Model) -> None:
    """Raise a ModelError that names the operator and the tensor when the model breaks a rule of the format.

    Example:
        >>> from dataclasses import replace
        >>> from litesmith.model import Model, Operator, Subgraph, Tensor
        >>> relu = Operator("RELU", inputs=(0,), outputs=(7,))
        >>> model = Model((Subgraph(tensors=(Tensor("x", (1,)),), operators=(relu,), inputs=(0,), outputs=(0,)),))
        >>> model.verify()
        Traceback (most recent call last):
        ...
        litesmith.errors.ModelError: subgraph 0 'main', operator 0 RELU: output 0 is tensor 7, but there are 1 tensors
    """
    for rule in _MODEL_RULES:
        rule(model)
    for index, subgraph in enumerate(model.subgraphs):
        _verify_tensors(model, index, subgraph)
        for subgraph_rule in _SUBGRAPH_RULES:
            try:
                subgraph_rule(subgraph)
            except ModelError as error:
                raise ModelError(f"subgraph {index} {subgraph.name!r}, {error}") from None
    _calls_end(model)
    verify_operators(model)
    verify_variables(model)
    for signature in model.signatures:
        _verify_signature(model, signature)
    _borders_have_values(model)


def _verify_tensors(model: Model, index: int, subgraph: Subgraph) -> None:
    for position, tensor in enumerate(subgraph.tensors):
        try:
            verify_tensor(model, subgraph, tensor)
        except ModelError as error:
            place = f"subgraph {index} {subgraph.name!r}, tensor {position} {tensor.name!r}"
            raise ModelError(f"{place}: {error}") from None


def _has_a_subgraph(model: Model) -> None:
    if not model.subgraphs:
        raise ModelError("the model has no subgraphs, so there is nothing to run")


def _metadata_has_names(model: Model) -> None:
    for index, entry in enumerate(model.metadata):
        if not entry.name:  # LiteRT does not survive one that is missing in the file
            raise ModelError(f"entry {index} of the metadata has no name; give it one, or drop it")


def _external_buffers_have_groups(model: Model) -> None:
    groups = len(model.external_buffer_groups)
    for record in model.external_buffers:
        if not 0 <= record.group < groups:
            raise ModelError(f"external buffer {record.id} is in group {record.group}, but there are {groups} groups")


_MODEL_RULES: tuple[Callable[[Model], None], ...] = (
    _has_a_subgraph,
    _metadata_has_names,
    _external_buffers_have_groups,
)


def _named(subgraph: Subgraph, operator_index: int) -> str:
    return f"operator {operator_index} {subgraph.operators[operator_index].name}"


def _references(subgraph: Subgraph) -> Iterator[tuple[str, int, bool]]:
    """Yield (what refers, tensor index, whether it may be absent) of every reference to a tensor."""
    for role, indices in (("input", subgraph.inputs), ("output", subgraph.outputs)):
        for position, index in enumerate(indices):
            yield f"{role} {position}", index, False
    for number, operator in enumerate(subgraph.operators):
        name = _named(subgraph, number)
        for position, index in enumerate(operator.inputs):
            yield f"{name}: input {position}", index, True
        for position, index in enumerate(operator.outputs):
            yield f"{name}: output {position}", index, False
        for position, index in enumerate(operator.intermediates):
            yield f"{name}: intermediate {position}", index, False


def _tensors_exist(subgraph: Subgraph) -> None:
    count = len(subgraph.tensors)
    for what, index, optional in _references(subgraph):
        if not 0 <= index < count and not (optional and index == ABSENT):
            raise ModelError(f"{what} is tensor {index}, but there are {count} tensors")


def _inputs_are_free(subgraph: Subgraph) -> None:
    seen: set[int] = set()
    for position, index in enumerate(subgraph.inputs):
        tensor = subgraph.tensors[index]
        if tensor.is_constant or tensor.is_variable:
            what = "a constant" if tensor.is_constant else "a variable"
            raise ModelError(f"input {position} is tensor {index} {tensor.name!r}, which is {what}; it must be neither")
        if index in seen:
            raise ModelError(f"input {position} is tensor {index} {tensor.name!r}, which is an input already")
        seen.add(index)


def _values_flow_forward(subgraph: Subgraph) -> None:
    """Each tensor is written once, before it is read; constants, variables and inputs are not written at all."""
    inputs, writers = set(subgraph.inputs), _writers(subgraph)
    known = inputs | {i for i, t in enumerate(subgraph.tensors) if t.is_constant or t.is_variable}
    for number, operator in enumerate(subgraph.operators):
        for position, index in enumerate(operator.inputs):
            if index == ABSENT or index in known:
                continue
            what = f"{_named(subgraph, number)}: input {position} is tensor {index} {subgraph.tensors[index].name!r}"
            if index in writers:
                raise ModelError(
                    f"{what}, which is written only by {_named(subgraph, writers[index])}; the operators form a cycle or "
                    "are out of order"
                )
            if operator.kind != "CUSTOM" or has_kernel(
                operator.custom_code
            ):  # scratch memory of an accelerator is described so
                raise ModelError(f"{what}, which no operator writes and which is no constant, variable or input")
        known.update(operator.outputs)
    for position, index in enumerate(subgraph.outputs):
        if index not in known:
            name = subgraph.tensors[index].name
            raise ModelError(f"output {position} is tensor {index} {name!r}, which no operator writes")


def _writers(subgraph: Subgraph) -> dict[int, int]:
    """Return the operator that writes each tensor, checked to be the only source of its value."""
    inputs, writers = set(subgraph.inputs), dict[int, int]()
    for number, operator in enumerate(subgraph.operators):
        for position, index in enumerate(operator.outputs):
            tensor = subgraph.tensors[index]
            source = "a constant" if tensor.is_constant else "a variable" if tensor.is_variable else ""
            source = "an input of the graph" if index in inputs else source
            if index in writers:
                source = f"written by {_named(subgraph, writers[index])} already"
            if source:
                what = f"{_named(subgraph, number)}: output {position} is tensor {index} {tensor.name!r}"
                raise ModelError(f"{what}, which is {source}; give the operator a tensor of its own")
            writers[index] = number
    return writers


_SUBGRAPH_RULES: tuple[Callable[[Subgraph], None], ...] = (_tensors_exist, _inputs_are_free, _values_flow_forward)


def _calls_end(model: Model) -> None:
    """No subgraph may call itself, directly or through others: LiteRT would recurse without end."""
    finished: set[int] = set()
    for start in range(len(model.subgraphs)):
        path: list[tuple[int, Iterator[tuple[int, Operator, int]]]] = []
        if start not in finished:
            path.append((start, _calls(model, start)))
        while path:
            current, calls = path[-1]
            for number, operator, target in calls:
                place = f"subgraph {current} {model.subgraphs[current].name!r}, operator {number} {operator.name}"
                if not 0 <= target < len(model.subgraphs):
                    count = len(model.subgraphs)
                    raise ModelError(f"{place}: it calls subgraph {target}, but there are {count} subgraphs")
                if target in (index for index, _ in path):
                    route = " → ".join(str(index) for index, _ in path)
                    raise ModelError(
                        f"{place}: it calls subgraph {target}, which is running already ({route} → {target})"
                    )
                if target not in finished:
                    path.append((target, _calls(model, target)))
                    break
            else:
                finished.add(current)
                path.pop()


def _calls(model: Model, index: int) -> Iterator[tuple[int, Operator, int]]:
    for number, operator in enumerate(model.subgraphs[index].operators):
        for target in called_subgraphs(operator):
            yield number, operator, target


def _borders_have_values(model: Model) -> None:
    """Handles of variables and tables live inside a model: what enters and leaves it are values."""
    for index in sorted({0, *(signature.subgraph_index for signature in model.signatures)}):
        subgraph = model.subgraphs[index]
        for role, indices in (("input", subgraph.inputs), ("output", subgraph.outputs)):
            for position, number in enumerate(indices):
                tensor = subgraph.tensors[number]
                if tensor.dtype in ("resource", "variant"):
                    place = f"subgraph {index} {subgraph.name!r}, {role} {position} (tensor {number} {tensor.name!r})"
                    raise ModelError(f"{place}: a {tensor.dtype} has no value that could pass the border of a model")


def _verify_signature(model: Model, signature: Signature) -> None:
    place = f"signature {signature.key!r}"
    if sum(other.key == signature.key for other in model.signatures) > 1:
        raise ModelError(f"{place}: there are two of that name; rename one")
    if not 0 <= signature.subgraph_index < len(model.subgraphs):
        count = len(model.subgraphs)
        raise ModelError(f"{place}: it runs subgraph {signature.subgraph_index}, but there are {count} subgraphs")
    subgraph = model.subgraphs[signature.subgraph_index]
    for role, entries, own in (
        ("input", signature.inputs, subgraph.inputs),
        ("output", signature.outputs, subgraph.outputs),
    ):
        names = [name for name, _ in entries]
        if "" in names:  # LiteRT does not survive one that is missing in the file
            raise ModelError(f"{place}: {role} {names.index('')} has no name; give it one")
        if len(set(names)) != len(names):
            raise ModelError(f"{place}: two {role}s have the same name among {names}; rename one")
        for name, index in entries:
            if index not in own:
                raise ModelError(
                    f"{place}: {role} {name!r} is tensor {index}, which is not among the {role}s {list(own)} of "
                    f"subgraph {signature.subgraph_index}"
                )
        if unnamed := set(own) - {index for _, index in entries}:
            raise ModelError(f"{place}: it has no name for the {role} that is tensor {min(unnamed)} of the subgraph")
        if len(entries) != len(own):
            raise ModelError(f"{place}: it names {len(entries)} {role}s, but the subgraph has {len(own)}")
