# SPDX-License-Identifier: Apache-2.0
"""Where the operators of a model really ran, from what the runtime logged and its profiler saw.

LiteRT's own answer is not used: it calls a model "fully accelerated" that fell back to the CPU as a whole.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from litesmith.measure._findings import fallback_reason
from litesmith.model import Model, Tensor
from litesmith.model._flatbuffer import enum_name
from litesmith.runtime import LITESMITH
from litesmith.runtime._partitions import XNNPACK

_SELECTED = re.compile(r"selected (\d+) ops, from a total of (\d+) ops\. resulted in (\d+) partitions")
_ON_GPU = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+) operations will run on the CPU")
_UNSUPPORTED = re.compile(r"^([A-Z][A-Z0-9_]*): (.+?)\.?$", re.MULTILINE)
_ADAPTER = re.compile(r"Selected adapter: ([^,\n]+)")
_OPENVINO_UNKNOWN = re.compile(r"op type (\d+) is not supported")
_OPENVINO_ERROR = re.compile(r"Exception in compilation: (.*?)(?:\n\n|\nINFO|\nI0|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Fallback:
    """Operators of one kind that ran elsewhere, and why."""

    kind: str
    count: int
    reason: str


@dataclass(frozen=True)
class Placement:
    """How much of a model an accelerator took.

    Attributes:
        ran: Whether at least one operator ran there.
        taken: Operators that it took; None where nobody tells.
        total: Operators of the model's first subgraph.
        partitions: In how many pieces; None where nobody tells.
        fallback: The operators that ran elsewhere.
        device: What it ran on, where the accelerator tells.
        proof: What shows that it ran there, or that it did not.
    """

    ran: bool
    taken: int | None
    total: int
    partitions: int | None
    fallback: tuple[Fallback, ...]
    device: str
    proof: str


@dataclass(frozen=True)
class Evidence:
    """What was seen of one compiled model.

    Attributes:
        log: What LiteRT logged while it compiled.
        errors: What its error reporter holds afterwards.
        printed: What the accelerator printed.
        wholly_off_cpu: LiteRT's answer to whether nothing was left to the CPU, which holds where it is yes.
        events: Type, tag and node of one profiled run; empty where the accelerator cannot be profiled.
        pieces: The operators in each piece of an external delegate.
        decisions: Operator, whether it was taken and why not, where the delegate tells.
        note: What else shows that it ran as asked; of WebGPU, the number of its node in the graph, at which the
            profiled run stops.
        graph: Delegate (empty for none) and operators of each piece of a graph that the Interpreter runs.
    """

    log: tuple[str, ...] = ()
    errors: str = ""
    printed: str = ""
    wholly_off_cpu: bool = False
    events: tuple[tuple[str, str, int], ...] = ()
    pieces: tuple[tuple[int, ...], ...] = ()
    decisions: tuple[tuple[int, bool, str], ...] = ()
    note: str = ""
    graph: tuple[tuple[str, tuple[int, ...]], ...] = ()
    kernels: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(t for k, t, _ in self.events if k == "delegate_profiled_operator"))

    @property
    def kernel_partitions(self) -> int:
        """In how many pieces XNNPACK ran: it counts its kernels from 0 in each."""
        return sum(kind == "delegate_profiled_operator" and node == 0 for kind, _, node in self.events)

    def operators(self) -> list[tuple[str, int]]:
        """Return tag and node of what the interpreter itself called: built-in kernels, and delegates by their name."""
        return [(tag, node) for kind, tag, node in self.events if kind == "operator"]


def place(name: str, model: Model, seen: Evidence, *, external: bool = False) -> Placement:
    """Return where the operators ran, for the accelerator `name`."""
    if external:
        return _external(model, seen)
    if seen.graph:
        return _interpreted(name, model, seen)
    if name == "webgpu":
        return _webgpu(model, seen)
    if name.startswith("openvino"):
        return _openvino(model, seen)
    if name == "litesmith":
        return _litesmith(model, seen)
    if name in ("builtin", "reference"):
        return _plain(model, seen)
    return _xnnpack(name, model, seen)


def _interpreted(name: str, model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    wanted = {"xnnpack": XNNPACK, "litesmith": LITESMITH}.get(name, "")
    pieces = [piece for delegate, piece in seen.graph if delegate == wanted]
    taken = {i for piece in pieces for i in piece}
    proof = (
        f"the graph that LiteRT's Interpreter runs has {len(taken)} operators in "
        f"{_count(len(pieces), 'piece')} of {wanted or 'its own kernels'}"
    )
    left = [i for i in range(total) if i not in taken]
    fallback = _grouped((model.main.operators[i].name, fallback_reason(model, i)) for i in left)
    return Placement(bool(taken), len(taken), total, len(pieces) if wanted else 0, fallback, "", proof)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _xnnpack(name: str, model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    left = {node for _, node in seen.operators() if node < total}
    pieces = seen.kernel_partitions
    proof = f"the profile has {len(seen.kernels)} of its kernels in {_count(pieces, 'piece')}"
    ran = bool(seen.kernels)
    if name == "xnnpack-fp16":
        halves = sum("F16" in tag for tag in seen.kernels)
        ran, proof = halves > 0, f"{halves} of the {len(seen.kernels)} kernels in the profile are F16"
    proof = f"{proof}; {seen.note}" if seen.note else proof
    fallback = _grouped((model.main.operators[i].name, fallback_reason(model, i)) for i in sorted(left))
    return Placement(ran, (total - len(left)) if ran else 0, total, pieces, fallback, "", proof)


def _plain(model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    called = {node for _, node in seen.operators()}
    proof = f"the profile has {len(called)} operators on LiteRT's own kernels and {len(seen.kernels)} of XNNPACK's"
    return Placement(bool(called) and not seen.kernels, total, total, 0, (), "", proof)


def _litesmith(model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    ran = {node for kind, _, node in seen.events if kind == "delegate_operator" and node >= 0}
    taken = ran | {node for node, was_taken, _ in seen.decisions if was_taken and ran}  # some run as part of others
    why = {node: reason for node, was_taken, reason in seen.decisions if not was_taken}
    left = [i for i in range(total) if i not in taken]
    if not taken:
        reason = "it is for int16x8, pruned and hybrid operators, and would speed up none of this model's"
        return Placement(
            False, 0, total, 0, (Fallback("all operators", total, reason),), "", "its own clock saw no run"
        )
    fallback = _grouped((model.main.operators[i].name, why.get(i, "it is not for it")) for i in left)
    proof = f"its own clock has {len(taken)} operators"
    return Placement(True, len(taken), total, len(seen.pieces), fallback, seen.note, proof)


def _external(model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    taken = {i for piece in seen.pieces for i in piece}
    calls = [tag for tag, node in seen.operators() if node >= total]
    proof = f"the profile has {len(calls)} calls of {', '.join(dict.fromkeys(calls)) or 'the delegate'}"
    if not calls:
        reason = "it takes none of this model's operators"
        return Placement(False, 0, total, 0, (Fallback("all operators", total, reason),), "", proof)
    left = [model.main.operators[i].name for i in range(total) if i not in taken]
    fallback = _grouped((kind, "the delegate did not take it") for kind in left)
    return Placement(True, len(taken), total, len(seen.pieces), fallback, "", proof)


def _webgpu(model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    adapter = _ADAPTER.search(seen.printed)
    device = adapter[1].strip() if adapter else ""
    if not seen.note:
        reason = "; ".join(dict.fromkeys(why for _, why in _UNSUPPORTED.findall(seen.errors))) or "it took nothing"
        proof = "the graph has no node of the GPU, and a profiled run does without it"
        return Placement(False, 0, total, 0, (Fallback("all operators", total, reason),), device, proof)
    proof = f"node {seen.note} of the compiled graph is LITERT_WEBGPU"
    if seen.wholly_off_cpu:
        return Placement(True, total, total, 1, (), device, f"{proof}, and nothing is left to the CPU")
    counts = _ON_GPU.search(seen.errors)
    kinds = Counter(operator.name for operator in model.main.operators)
    reasons = {kind: textwrap.shorten(reason, 90) for kind, reason in reversed(_UNSUPPORTED.findall(seen.errors))}
    named = [Fallback(kind, kinds[kind], reason) for kind, reason in reasons.items() if kind in kinds]
    if counts is None:  # LiteRT keeps only the begin of a long report
        return Placement(
            True, None, total, None, tuple(named), device, f"{proof}; how many operators it has is not told"
        )
    piece = _gpu_piece(model, reasons, {node for _, node in seen.operators() if node < total})
    if len(piece) == int(counts[1]):
        left = (model.main.operators[i].name for i in range(total) if i not in piece)
        fallback = _grouped((kind, reasons.get(kind, "outside the one piece that the GPU takes")) for kind in left)
        return Placement(True, len(piece), total, 1, fallback, device, f"{proof}; {counts[0]}")
    rest = int(counts[2]) - sum(f.count for f in named)
    if rest > 0:
        named.append(Fallback("other operators", rest, "cut off from the piece that the GPU takes"))
    return Placement(True, int(counts[1]), total, None, tuple(named), device, f"{proof}; {counts[0]}")


def _gpu_piece(model: Model, unsupported: Collection[str], before: Collection[int]) -> set[int]:
    """Return the operators that can run on the GPU at once, after those that the CPU was seen to run before it."""
    graph = model.main
    ready = {*graph.inputs, *(t for i in before for t in graph.operators[i].outputs)}
    piece = set()
    for index, operator in enumerate(graph.operators):
        wanted = [t for t in operator.inputs if t >= 0 and not _is_given(graph.tensors[t])]
        if index not in before and operator.name not in unsupported and ready.issuperset(wanted):
            piece.add(index)
            ready.update(operator.outputs)
    return piece


def _is_given(tensor: Tensor) -> bool:
    return tensor.is_constant or tensor.is_variable


def _openvino(model: Model, seen: Evidence) -> Placement:
    total = len(model.main.operators)
    selected = _SELECTED.search("\n".join(seen.log))
    calls = sum(tag == "DELEGATE" for tag, _ in seen.operators())
    if not calls:
        problem = _OPENVINO_ERROR.search(seen.printed)
        lines = [line.strip() for line in problem[1].splitlines() if line.strip()] if problem else []
        reason = lines[-1] if lines else "its compiler took nothing"
        proof = "the profile has no dispatched operator; LiteRT ran the model on the CPU without a word"
        return Placement(False, 0, total, 0, (Fallback("all operators", total, reason),), "", proof)
    elsewhere = [tag for tag, _ in seen.operators() if tag != "DELEGATE"]
    unknown = {enum_name("BuiltinOperator", int(code)) for code in _OPENVINO_UNKNOWN.findall(seen.printed)}
    fallback = _grouped(
        (tag, f"OpenVINO's compiler for LiteRT {'has no such' if tag in unknown else 'leaves out this'} operator")
        for tag in elsewhere
    )
    device = re.search(r"Using Intel OpenVINO device: (\w+)", seen.printed)
    taken = int(selected[1]) if selected else total - len(elsewhere)
    proof = f"the profile has {_count(calls, 'dispatched piece')}"
    return Placement(True, taken, total, calls, fallback, device[1] if device else "", proof)


def _grouped(entries: Iterable[tuple[str, str]]) -> tuple[Fallback, ...]:
    counted = Counter(entries)
    return tuple(Fallback(kind, count, reason) for (kind, reason), count in counted.most_common())


def shown(fallback: Sequence[Fallback], most: int = 3) -> str:
    """Return the fallback as a line: the most frequent kinds with their number."""
    parts = [f"{f.kind} ×{f.count}" if f.count > 1 else f.kind for f in fallback[:most]]
    return ", ".join([*parts, *([f"… {len(fallback) - most} more"] if len(fallback) > most else [])])
