# SPDX-License-Identifier: Apache-2.0
"""Is a kernel of one's own worth it: one operator taken out of its model with its real inputs, stock against own.

The operator alone says what the kernel can do; the whole model with the kernel in place says whether it pays, for there
it may split XNNPACK's graph. Both are timed in interleaved rounds, and wrong numbers decide before any speed does.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import SessionError, UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._statistics import Ratio, Summary, compare_medians, summarize
from litesmith.measure._timing import Timed, measure
from litesmith.model import Model, Signature, Subgraph, Tensor, expose
from litesmith.result import Result
from litesmith.runtime import (
    Session,
    custom_op,
    custom_ops,
    forget_custom_op,
    load_custom_op,
    partitions,
    random_inputs,
)
from litesmith.runtime._custom_op import Kernel, put_back
from litesmith.runtime._custom_op_replace import operator_at, replace_op
from litesmith.runtime._custom_op_runner import IndexedSession

Array = np.ndarray[Any, Any]
OWN = "yours"
FLOAT_TOLERANCE = 1e-4  # of the largest value: what another order of summation may cost
_STOCK = (("XNNPACK", "xnnpack"), ("built-in", "builtin"), ("reference", "reference"))
_numbers = itertools.count()


@dataclass(frozen=True)
class Contestant:
    """One kernel on the operator alone: its times, and how far its results are from the reference kernel's."""

    name: str
    samples_ms: tuple[float, ...]
    largest_difference: float
    relative_difference: float

    @property
    def summary(self) -> Summary:
        """The quantiles of the time of one run."""
        return summarize(self.samples_ms)


@dataclass(frozen=True)
class OperatorContest(Result, kind="operator-contest", schema=1):
    """What ``optimize_op`` found.

    Attributes:
        model: The name of the model.
        operator: The index of the operator.
        operator_kind: Its kind.
        inputs: Shapes and types of what it computes from; constants are in brackets.
        contestants: The stock kernels and the user's on the operator alone.
        allowed: How far from the reference results may be, as a share of their largest value.
        right: Whether the user's are within that.
        alone: Time of the user's kernel over that of the fastest stock kernel, on the operator alone.
        before_ms: Latencies of the whole model as it is.
        after_ms: Those with the user's kernel in place.
        whole: The ratio of the two.
        pieces: XNNPACK's partitions before and after.
        pays: Whether the whole model gets faster with right results, beyond doubt.
        verdict: All of that in a sentence.
    """

    model: str
    operator: int
    operator_kind: str
    inputs: tuple[str, ...]
    threads: int
    contestants: tuple[Contestant, ...]
    allowed: float
    right: bool
    alone: Ratio
    before_ms: tuple[float, ...]
    after_ms: tuple[float, ...]
    whole: Ratio
    pieces: tuple[int, int]
    pays: bool
    verdict: str
    machine: MachineFacts
    command: tuple[str, ...]
    complete: bool = True

    def contestant(self, name: str) -> Contestant:
        """Return one kernel's figures; the user's is "yours"."""
        return next(c for c in self.contestants if c.name == name)

    def plot(self) -> Any:
        """Return a Plotly figure: the time of each kernel on the operator alone."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "time (µs)", "showlegend": False, "template": "plotly_white"})
        for entry in reversed(self.contestants):
            figure.add_box(x=[1000 * s for s in entry.samples_ms], name=entry.name, boxpoints="outliers")
        return figure


def optimize_op(
    model: Model | str | Path,
    operator: int,
    kernel: Any,
    *,
    threads: int = 1,
    runs: int | None = None,
    seconds: float = 2.0,
    inputs: Mapping[str, Array] | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> OperatorContest:
    """Measure a kernel of one's own for one operator against the stock kernels, alone and in the model.

    Args:
        model: A Model or the path of a `.tflite`.
        operator: The index of the operator in the first subgraph, as `profile` shows it.
        kernel: A kernel as `custom_op` takes it, or as text: module:function, file.py:function, library.so:symbol.
        threads: Threads of the stock kernels.
        runs: Runs of each; by default as many as fit into ``seconds``.
        seconds: Time for each, warm-up aside.
        inputs: Arrays by input name of the model, from which the operator's inputs are computed; random by default.
        tolerance: How far results may be from the reference kernel's, as a share of their largest value. By default
            1e-4 and ten times what XNNPACK takes; for integers, one step.
        seed: Of the random inputs.

    Example:
        >>> import numpy as np
        >>> from litesmith.model import Builder
        >>> b = Builder()
        >>> model = b.build({"y": b.op("NEG", b.input("x", (1, 1000)))})
        >>> optimize_op(model, 0, np.negative, runs=20, seconds=0.1).right
        True
    """
    if not seconds > 0 or (runs is not None and runs < 1):
        raise UsageError(f"seconds and runs must be positive, not {seconds} and {runs}")
    loaded = model if isinstance(model, Model) else Model.load(model)
    loaded.verify()
    chosen = operator_at(loaded, operator)
    with _registered(kernel, stock=chosen.custom_code) as name, contextlib.ExitStack() as stack:
        feeds, single = take_out(loaded, operator, inputs, seed=seed)
        own = replace_op(single, 0, name)
        sessions = _stock_sessions(single, threads, stack)
        sessions[OWN] = stack.enter_context(Session(own, threads=threads, verify=False))
        outputs = {entry: {n: a.copy() for n, a in s.run(feeds).items()} for entry, s in sessions.items()}
        subjects = [Timed(entry, session.run) for entry, session in sessions.items()]
        complete = measure(subjects, runs=runs, seconds=seconds, description="Measuring the operator")
        changed = replace_op(loaded, operator, name)
        before, after, whole_complete = _in_the_model(loaded, changed, inputs, threads, runs, seconds, seed)
        pieces = tuple(sum(p.delegate is not None for p in partitions(m, verify=False)) for m in (loaded, changed))
    reference = outputs["reference" if "reference" in outputs else "registered"]
    contestants = tuple(_contestant(s, outputs[s.name], reference) for s in subjects)
    allowed = _allowed(contestants, reference) if tolerance is None else tolerance
    right = contestants[-1].relative_difference <= allowed
    fastest = min(contestants[:-1], key=lambda c: c.summary.median)
    alone = compare_medians(np.array(fastest.samples_ms), np.array(contestants[-1].samples_ms), paired=True)
    whole = compare_medians(np.array(before), np.array(after), paired=True)
    return OperatorContest(
        model=str(loaded.source or loaded.description or "model"),
        operator=operator,
        operator_kind=chosen.name,
        inputs=_described(loaded, operator),
        threads=threads,
        contestants=contestants,
        allowed=allowed,
        right=right,
        alone=alone,
        before_ms=before,
        after_ms=after,
        whole=whole,
        pieces=(pieces[0], pieces[1]),
        pays=right and whole.high < 1,
        verdict=_verdict(contestants[-1], fastest, allowed, right, whole, (before, after), (pieces[0], pieces[1])),
        machine=machine_facts(),
        command=tuple(sys.argv),
        complete=complete and whole_complete,
    )


def take_out(
    model: Model, operator: int, inputs: Mapping[str, Array] | None = None, *, seed: int = 0
) -> tuple[dict[str, Array], Model]:
    """Return an operator as a model of its own, and the inputs that it gets in the whole model.

    What depends on constants only, such as weights behind a DEQUANTIZE, is a constant of the new model.
    """
    chosen, graph = operator_at(model, operator), model.main
    computed = [i for i in dict.fromkeys(chosen.inputs) if i >= 0 and not graph.tensors[i].is_constant]
    values = _values(model, computed, inputs, seed)
    fixed = _constant_tensors(model)
    index = {old: new for new, old in enumerate(dict.fromkeys(i for i in (*chosen.inputs, *chosen.outputs) if i >= 0))}
    tensors = []
    for old in index:
        tensor = graph.tensors[old]
        if old in computed and old in fixed:
            tensor = replace(tensor.with_array(values[old], tensor.dtype), name=tensor.name)
        elif old in computed:
            tensor = replace(tensor, shape=values[old].shape, shape_signature=None)
        tensors.append(tensor)
    fed = [i for i in computed if i not in fixed]
    alone = replace(
        chosen,
        inputs=tuple(index.get(i, -1) for i in chosen.inputs),
        outputs=tuple(index[i] for i in chosen.outputs),
        debug_metadata_index=-1,
    )
    borders = tuple(index[i] for i in fed), alone.outputs
    entry = Signature(
        key="serving_default",
        inputs=tuple((f"in{n}", i) for n, i in enumerate(borders[0])),
        outputs=tuple((f"out{n}", i) for n, i in enumerate(borders[1])),
    )
    subgraph = Subgraph("main", tuple(_unique(tensors)), (alone,), *borders)
    return {f"in{n}": values[i] for n, i in enumerate(fed)}, Model((subgraph,), signatures=(entry,))


def _values(model: Model, tensors: list[int], inputs: Mapping[str, Array] | None, seed: int) -> dict[int, Array]:
    """Return the values of some tensors in a run of the whole model."""
    graph = model.main
    names = dict(model.signatures[0].inputs) if model.signatures else {graph.tensors[i].name: i for i in graph.inputs}
    with Session(model, verify=False) as session:
        feeds = random_inputs(session, seed) if inputs is None else dict(inputs)
        unknown = [name for name in feeds if name not in session.inputs]
        if unknown or len(feeds) < len(session.inputs):
            raise UsageError(f"give an array for each of the model's inputs: {', '.join(session.inputs)}")
    by_index = {names[name]: np.asarray(array) for name, array in feeds.items()}
    wanted = [i for i in tensors if i not in by_index]
    found = {i: by_index[i] for i in tensors if i in by_index}
    fixed = _constant_tensors(model)
    # XNNPACK writes no output that it folded into its own weights, such as those behind a DEQUANTIZE.
    for kernels, some in (("delegate", [i for i in wanted if i not in fixed]), ("builtin", fixed.intersection(wanted))):
        if some:
            opened = IndexedSession(expose(replace(model, signatures=()), sorted(some)), kernels=kernels)
            opened.run(by_index)
            found |= {i: opened.view(i).copy() for i in some}
    return found


def _constant_tensors(model: Model) -> set[int]:
    """Return the tensors that are computed from constants only."""
    fixed = {i for i, tensor in enumerate(model.main.tensors) if tensor.is_constant}
    for operator in model.main.operators:
        if operator.inputs and all(i < 0 or i in fixed for i in operator.inputs):
            fixed.update(operator.outputs)
    return fixed


def _unique(tensors: list[Tensor]) -> Iterator[Tensor]:
    for position, tensor in enumerate(tensors):
        yield replace(tensor, name=f"{tensor.name}_{position}")


@contextlib.contextmanager
def _registered(kernel: Any, *, stock: str) -> Iterator[str]:
    """Yield a name under which the kernel is registered, for the time being."""
    if stock and stock not in custom_ops():
        raise UsageError(
            f"the operator is the custom operator {stock!r}, for which there is no kernel to compare with; register "
            "the one to beat with --custom-op or litesmith.custom_op"
        )
    name = f"litesmith_contest_{next(_numbers)}"
    before = custom_ops()
    if isinstance(kernel, str) and not Path(kernel).is_file():
        load_custom_op(f"{name}={kernel}")
    elif isinstance(kernel, (str, Path)):
        raise UsageError(f"{kernel} has more than one function, maybe; give {kernel}:function")
    else:
        custom_op(name, kernel)
    try:
        yield name
    finally:
        forget_custom_op(name)
        _restore(before)


def _restore(before: Mapping[str, Kernel]) -> None:
    """Undo what importing the kernel's file registered beside it: it may be the name of the operator to beat."""
    for name, kernel in custom_ops().items():
        if name not in before:
            forget_custom_op(name)
        elif before[name] is not kernel:
            put_back(before[name])


def _stock_sessions(single: Model, threads: int, stack: contextlib.ExitStack) -> dict[str, Session]:
    if single.main.operators[0].kind == "CUSTOM":
        return {"registered": stack.enter_context(Session(single, threads=threads, verify=False))}
    found: dict[str, Session] = {}
    for name, kernels in _STOCK:
        if name == "XNNPACK" and not any(p.delegate for p in partitions(single, kernels=kernels, verify=False)):
            continue  # it would only be the built-in kernel once more
        found[name] = stack.enter_context(Session(single, threads=threads, kernels=kernels, verify=False))
    return found


def _in_the_model(
    model: Model,
    changed: Model,
    inputs: Mapping[str, Array] | None,
    threads: int,
    runs: int | None,
    seconds: float,
    seed: int,
) -> tuple[tuple[float, ...], tuple[float, ...], bool]:
    with Session(model, threads=threads, verify=False) as before:
        feeds = random_inputs(before, seed) if inputs is None else inputs
        _fed(before, feeds)
        try:
            after = Session(changed, threads=threads, verify=False)
        except SessionError as error:
            raise SessionError(f"the model does not run with the kernel in place: {error}") from error
        with after:
            _fed(after, feeds)
            subjects = [Timed("before", before.run), Timed("after", after.run)]
            complete = measure(subjects, runs=runs, seconds=seconds, description="Measuring the model")
    return tuple(subjects[0].samples_ms), tuple(subjects[1].samples_ms), complete


def _fed(session: Session, feeds: Mapping[str, Array]) -> None:
    session.resize({n: a.shape for n, a in feeds.items() if a.shape != session.inputs[n].shape})
    session.run(feeds)


def _contestant(subject: Timed, outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> Contestant:
    largest = relative = 0.0
    for name, expected in reference.items():
        exact = expected.astype(np.float64)
        distance = float(np.abs(outputs[name].astype(np.float64) - exact).max(initial=0.0))
        scale = float(np.abs(exact).max(initial=0.0))
        largest, relative = max(largest, distance), max(relative, distance / scale if scale else distance)
    if not np.isfinite(largest):
        largest = relative = float("inf")
    return Contestant(subject.name, tuple(subject.samples_ms), largest, relative)


def _allowed(contestants: tuple[Contestant, ...], reference: Mapping[str, Array]) -> float:
    stock = max(c.relative_difference for c in contestants[:-1])
    steps = [
        1 / max(float(np.abs(a.astype(np.float64)).max(initial=0.0)), 1.0)
        for a in reference.values()
        if a.dtype.kind in "iu"
    ]
    return max(*steps, 10 * stock) if steps else max(FLOAT_TOLERANCE, 10 * stock)


def _described(model: Model, operator: int) -> tuple[str, ...]:
    graph, described = model.main, []
    for index in graph.operators[operator].inputs:
        if index >= 0:
            tensor = graph.tensors[index]
            text = f"{tensor.dtype} {'×'.join(map(str, tensor.shape)) or 'scalar'}"
            described.append(f"[{text}]" if tensor.is_constant else text)
    return tuple(described)


def _verdict(
    own: Contestant,
    fastest: Contestant,
    allowed: float,
    right: bool,
    whole: Ratio,
    times: tuple[tuple[float, ...], tuple[float, ...]],
    pieces: tuple[int, int],
) -> str:
    microseconds: Callable[[Contestant], str] = lambda c: f"{1000 * c.summary.median:.1f} µs"  # noqa: E731
    alone = f"alone, it takes {microseconds(own)} against {microseconds(fastest)} of {fastest.name}"
    before, after = (float(np.median(samples)) for samples in times)
    inside = f"in the model, {after:.3f} ms against {before:.3f} ms"
    split = (
        f"; it splits XNNPACK's graph into {pieces[1]} pieces instead of {pieces[0]}" if pieces[1] > pieces[0] else ""
    )
    if not right:
        return (
            f"wrong: its results are off by {own.relative_difference:.2g} of the largest value, and "
            f"{allowed:.2g} is allowed ({alone})"
        )
    if whole.high < 1:
        return f"pays: {alone}; {inside}, {100 * (1 - whole.value):.0f} % less{split}"
    if whole.low > 1:
        return f"does not pay: {alone}; {inside}, {100 * (whole.value - 1):.0f} % more{split}"
    return f"does not pay: {alone}; {inside}, which is no difference beyond the noise{split}"
