# SPDX-License-Identifier: Apache-2.0
"""Profile what LiteRT's profiler cannot reach as it is: models whose outputs have shapes that only a run knows.

Such outputs are what the compiled-model API, which has the profiler, does not take. A copy of the model that returns
their rank instead runs the same operators and has a known border; the added operators are none of the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from litesmith.errors import MeasureError, SessionError
from litesmith.measure._recording import RecordedRun, Slice
from litesmith.model import Model, Operator, Record, Tensor
from litesmith.runtime import Partition, Session, random_inputs


def open_profiled(
    stack: contextlib.ExitStack, model: Model, inputs: Mapping[str, Any] | None, seed: int, options: Mapping[str, Any]
) -> tuple[Model, Session, Session]:
    """Return the model that can be profiled, and two sessions of it that have run: with the profiler and without.

    Raises:
        MeasureError: Only LiteRT's Interpreter runs the model, and it has no profiler.
    """
    try:
        return model, *_opened(stack, model, inputs, seed, options)
    except SessionError as error:
        if "compiled-model API" not in str(error):
            raise
        refusal = error
    closed = with_ranks(model)
    try:
        return closed, *_opened(stack, closed, inputs, seed, options)
    except SessionError:
        reason = str(refusal).rpartition(": ")[2].rstrip(".")
        raise MeasureError(
            f"the operators of {model.source or 'the model'} cannot be timed one by one: only LiteRT's Interpreter runs "
            f"it, which has no profiler ({reason}); `litesmith bench` measures it as a whole"
        ) from refusal


def with_ranks(model: Model) -> Model:
    """Return a copy that returns minus the rank of each output instead of the output."""
    graph, count = model.main, len(model.main.tensors)
    outputs = list(dict.fromkeys(graph.outputs))
    tensors, operators, ends = [], [], {}
    for position, old in enumerate(outputs):
        rank, end = count + 2 * position, count + 2 * position + 1
        name = graph.tensors[old].name
        tensors += [Tensor(f"{name}/rank", (), "int32"), Tensor(f"{name}/minus_rank", (), "int32")]
        operators.append(Operator("RANK", (old,), (rank,), options=Record("RankOptions")))
        # LiteRT knows a rank before the run and writes it nowhere; a NEG it computes.
        operators.append(Operator("NEG", (rank,), (end,), options=Record("NegOptions")))
        ends[old] = end
    closed = replace(
        graph,
        tensors=(*graph.tensors, *tensors),
        operators=(*graph.operators, *operators),
        outputs=tuple(ends[old] for old in outputs),
    )
    signatures = tuple(
        replace(s, outputs=tuple((name, ends.get(i, i)) for name, i in s.outputs)) if s.subgraph_index == 0 else s
        for s in model.signatures
    )
    return replace(model.with_main(closed), signatures=signatures)


def of_the_file(
    operators: int, pieces: Sequence[Partition], recorded: Sequence[RecordedRun]
) -> tuple[tuple[Partition, ...], list[RecordedRun]]:
    """Return partitions and runs without the operators that were added behind those of the file."""
    own = [replace(p, operators=tuple(i for i in p.operators if i < operators)) for p in pieces]
    runs = [replace(run, slices=tuple(_slice(operators, s) for s in run.slices)) for run in recorded]
    return tuple(p for p in own if p.operators), runs


def _slice(operators: int, seen: Slice) -> Slice:
    return replace(seen, operator=None) if seen.operator is not None and seen.operator >= operators else seen


def _opened(
    stack: contextlib.ExitStack, model: Model, inputs: Mapping[str, Any] | None, seed: int, options: Mapping[str, Any]
) -> tuple[Session, Session]:
    sessions = []
    for profiling in (True, False):
        session = stack.enter_context(Session(model, profiling=profiling, **options))
        session.run(random_inputs(session, seed) if inputs is None else inputs)
        sessions.append(session)
    return sessions[0], sessions[1]
