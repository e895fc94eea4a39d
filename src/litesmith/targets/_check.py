# SPDX-License-Identifier: Apache-2.0
"""Will this file run whole on that hardware: each operator against the target's rules, without the hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litesmith.model import Model, Operator, Subgraph
from litesmith.result import Result
from litesmith.targets._asked import left_by_gpu_checker, left_by_xnnpack
from litesmith.targets._rules import RuleTable, rule_table
from litesmith.targets._tests import TESTS, Place

_FLOAT_BYTES = {"float64": 8, "float32": 4, "float16": 2}
_ASKED = {"xnnpack": left_by_xnnpack, "gpu": left_by_gpu_checker}


@dataclass(frozen=True)
class Reason:
    """Why an operator does not map: the rule in words, the value that breaks it, what to do, where the rule is from."""

    says: str
    found: str
    remedy: str
    source: str

    def __str__(self) -> str:
        return f"{self.says} ({self.found})" if self.found else self.says


@dataclass(frozen=True)
class OperatorVerdict:
    """One operator: whether the target has it in this form, and whether it would really run there."""

    index: int  # in its subgraph
    kind: str
    name: str  # of its first output
    fits: bool
    mapped: bool
    reasons: tuple[Reason, ...]
    subgraph: int = 0


@dataclass(frozen=True)
class Problem:
    """One reason, and all operators it holds back, by their places in the list of all."""

    reason: Reason
    kinds: dict[str, int]
    operators: tuple[int, ...]


@dataclass(frozen=True)
class Compatibility(Result, kind="compat", schema=1):
    """What ``compat`` found."""

    model: str
    target: str
    title: str
    maps: bool
    operators: tuple[OperatorVerdict, ...]
    partitions: int
    first_break: int | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    source: str
    applied: tuple[str, ...] = ()  # the rewrites of ``fix``
    refused: tuple[str, ...] = ()  # and those that would have changed the outputs

    @property
    def mapped(self) -> int:
        """How many operators would run on the target."""
        return sum(operator.mapped for operator in self.operators)

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Return how many operators of each kind map, and how many there are."""
        total = Counter(operator.kind for operator in self.operators)
        mapped = Counter(operator.kind for operator in self.operators if operator.mapped)
        return {kind: (mapped[kind], count) for kind, count in sorted(total.items(), key=lambda item: -item[1])}


def compat(model: Model | str | Path, *, target: str) -> Compatibility:
    """Check whether a model runs whole on a target: which operators map, what breaks the chain, and what to do.

    Every subgraph that a signature enters is checked; of a model without signatures, the main one.

    Nothing is compiled for the target: the rules are tables in `litesmith/targets/rules`, each with its source. For
    XNNPACK, LiteRT itself is asked.

    Args:
        model: A Model, or the path of a `.tflite`.
        target: "edgetpu", "gpu", "hexagon", "nnapi", "qnn", "mediatek", "xnnpack" or "tflite-micro".

    Example:
        >>> import litesmith
        >>> found = litesmith.compat(litesmith.samples.model(), target="edgetpu")
        >>> found.maps, str(found.problems[0].reason)
        (False, 'the Edge TPU computes in 8 bits (float32)')
    """
    table = rule_table(target)
    loaded = model if isinstance(model, Model) else Model.load(model)
    loaded.verify()
    entered = _entered(loaded)
    reasons = {number: _all_reasons(loaded.subgraphs[number], table) for number in entered}
    notes = [*table.notes, *_ask(loaded, table, reasons), *_cache_note(loaded, table, entered)]
    operators, partitions, first_break = list[OperatorVerdict](), 0, None
    for number in entered:
        fits = [not found for found in reasons[number]]
        mapped, broken = _chain(fits, table.chain)
        if first_break is None and broken is not None:
            first_break = len(operators) + broken
        partitions += sum(now and not before for before, now in zip([False, *mapped], mapped, strict=False))
        graph = loaded.subgraphs[number]
        operators += [
            OperatorVerdict(i, op.name, _name(graph, op), fits[i], mapped[i], tuple(reasons[number][i]), number)
            for i, op in enumerate(graph.operators)
        ]
    if len(loaded.subgraphs) > len(entered):
        notes.append(
            "the operators of subgraphs that no signature enters, as the bodies of IF and WHILE, are not looked at"
        )
    return Compatibility(
        model=str(loaded.source or loaded.description or "model"),
        target=target,
        title=table.title,
        maps=bool(operators) and all(operator.mapped for operator in operators),
        operators=tuple(operators),
        partitions=partitions,
        first_break=first_break,
        problems=_problems(operators),
        notes=tuple(notes),
        source=table.source,
    )


def _entered(model: Model) -> list[int]:
    """Return the subgraphs that can be run by themselves."""
    return sorted({signature.subgraph_index for signature in model.signatures}) or [0]


def _all_reasons(graph: Subgraph, table: RuleTable) -> list[list[Reason]]:
    producers = graph.producers()
    return [_reasons(Place(graph, operator, producers), table) for operator in graph.operators]


def _reasons(place: Place, table: RuleTable) -> list[Reason]:
    operator = place.operator
    if not _has(operator, table):
        remedy = table.remedies.get(operator.kind, "train without it, or let the CPU run it")
        return [Reason(f"there is no {operator.name} on this target", "", remedy, table.source)]
    if operator.kind in ("CUSTOM", "STABLEHLO_COMPOSITE"):
        return []  # named in the table; what is inside is the target's own business
    found = []
    for rule in table.rules_for(operator.kind):
        broken = TESTS[rule.test](place, rule.parameters)
        if broken:
            found.append(Reason(rule.says, broken, rule.remedy.replace("KIND", operator.kind), rule.source))
    return found


def _has(operator: Operator, table: RuleTable) -> bool:
    if operator.kind == "CUSTOM":
        return operator.custom_code in table.custom
    if operator.kind == "STABLEHLO_COMPOSITE" and table.composites:
        return getattr(operator.options, "name", None) in table.composites
    return operator.kind in table.supported


def _ask(model: Model, table: RuleTable, reasons: Mapping[int, list[list[Reason]]]) -> list[str]:
    """Let LiteRT's own word stand above the rules, where it has one; return what is to be noted."""
    if table.name not in _ASKED:
        return []
    if 0 not in reasons:
        return ["LiteRT can be asked about the main subgraph only, which no signature enters: the rules decide"]
    answer = _ASKED[table.name](model)
    if isinstance(answer, str):
        return [answer]
    left, note = answer
    for index, found in enumerate(reasons[0]):
        if index in left and not found:
            said = Reason(
                "LiteRT leaves it to other kernels", "", "see litesmith profile for what it costs", table.source
            )
            found.append(said)
        elif index not in left and table.name == "xnnpack":
            found.clear()
    return [
        note,
        *(["LiteRT was asked about the main subgraph; of the others the rules decide"] if len(reasons) > 1 else []),
    ]


def _cache_note(model: Model, table: RuleTable, entered: Sequence[int]) -> list[str]:
    if table.parameter_cache_bytes is None:
        return []
    stored = [t for number in entered for t in model.subgraphs[number].tensors if t.buffer is not None]
    buffers = {id(t.buffer): len(t.buffer or b"") // _FLOAT_BYTES.get(t.dtype, 1) for t in stored}
    size, room = sum(buffers.values()), table.parameter_cache_bytes
    chip = f"the {_megabytes(room)} on the chip"
    in_8_bits = " in 8 bits" if any(t.dtype in _FLOAT_BYTES for t in stored) else ""
    if size <= room:
        return [f"about {_megabytes(size)} of parameters{in_8_bits}: they fit into {chip}"]
    rest = f"{_megabytes(size - room)} are fetched at every run, which is slow"
    return [f"about {_megabytes(size)} of parameters{in_8_bits} do not fit into {chip}: {rest}"]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"


def _chain(fits: Sequence[bool], chain: str) -> tuple[list[bool], int | None]:
    """Return which operators run on the target, and the first that breaks the chain."""
    broken = [index for index, fit in enumerate(fits) if not fit]
    first_break = broken[0] if broken else None
    if chain == "one" and any(fits):
        start = fits.index(True)  # what comes before runs on the CPU: inputs are quantized there, say
        end = next((index for index in broken if index > start), len(fits))
        return [start <= index < end for index in range(len(fits))], first_break
    return list(fits), first_break


def _name(graph: Subgraph, operator: Operator) -> str:
    return graph.tensors[operator.outputs[0]].name if operator.outputs else ""


def _problems(operators: Sequence[OperatorVerdict]) -> tuple[Problem, ...]:
    """Return each reason once, in the order of the first operator it holds back."""
    found: dict[tuple[str, str], list[tuple[int, OperatorVerdict, Reason]]] = {}
    for place, operator in enumerate(operators):
        for reason in operator.reasons:
            found.setdefault((reason.says, reason.remedy), []).append((place, operator, reason))
    return tuple(
        Problem(
            entries[0][2],
            dict(Counter(operator.kind for _, operator, _ in entries)),
            tuple(place for place, _, _ in entries),
        )
        for entries in found.values()
    )
