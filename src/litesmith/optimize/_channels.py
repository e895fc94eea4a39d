# SPDX-License-Identifier: Apache-2.0
"""Remove whole channels: a narrower model, faster on every runtime, whose layers are fitted to what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Model
from litesmith.model._cost import cost
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._channels_groups import Group, PlanCost, changed_readers, find_groups, kept_indices
from litesmith.optimize._channels_importance import Order, removal_order
from litesmith.optimize._channels_plan import Widths, first_within, removal_path, rounded, uniform_widths, widened
from litesmith.optimize._channels_rewrite import without_channels
from litesmith.optimize._channels_trace import Trace
from litesmith.optimize._compressed_size import FileSizes, file_sizes
from litesmith.optimize._dequantize import dequantize
from litesmith.optimize._layer_fit import fit
from litesmith.optimize._layer_pairs import fittable, input_moments, layer_pairs, most_samples, single_sample_notes
from litesmith.optimize._layer_rules import LayerRule, matching_rules, parse_rules, weight_layers
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune import check_runs
from litesmith.optimize._run import Data, Feed
from litesmith.optimize._segments import spread_samples
from litesmith.optimize._shared_constants import held_elsewhere
from litesmith.progress import task
from litesmith.result import Result

Array = np.ndarray[Any, Any]
DEFAULT_SAMPLES = 500
_IMPORTANCE_SAMPLES = 128
_SENSITIVITY_SAMPLES = 32
_FURTHER_STEPS = 4
"""How often more is removed where the finished model turns out slower than its plan was measured to be."""
_PROBE = 0.6
"""The share of its channels that a group keeps when its effect on the output is measured."""
_STORED = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True)
class ChannelGroupCoverage:
    """Channels that shrink together, and what became of them.

    Attributes:
        name: of the first tensor that is written.
        layers: the layers that write them, by index of the operator.
        width: how many there are, before and after.
        reason: why none were removed; empty where it was possible.
    """

    name: str
    layers: tuple[int, ...]
    width: tuple[int, int]
    reason: str


@dataclass(frozen=True)
class ChannelsCoverage(Result, kind="channels", schema=1):
    """What removing channels did.

    Attributes:
        wanted: what was asked for, as text.
        multiple: that widths were rounded to.
        importance: where the order came from: "activations" or "weights".
        repaired: how many layers were fitted anew.
        groups: every group of channels.
        macs, parameters: before and after.
        latency_ms: before and after, measured in one interleaved run; None where not asked for.
        sizes: of the whole file before and after, raw and compressed; None where not asked for.
        notes: what else one should know.
    """

    wanted: str
    multiple: int
    importance: str
    repaired: int
    groups: tuple[ChannelGroupCoverage, ...]
    macs: tuple[int, int]
    parameters: tuple[int, int]
    latency_ms: tuple[float, float] | None
    sizes: tuple[FileSizes, FileSizes] | None
    notes: tuple[str, ...]

    @property
    def removed(self) -> tuple[ChannelGroupCoverage, ...]:
        """The groups that got narrower."""
        return tuple(group for group in self.groups if group.width[1] < group.width[0])

    @property
    def left(self) -> tuple[ChannelGroupCoverage, ...]:
        """The groups that could not be proved safe to shrink."""
        return tuple(group for group in self.groups if group.reason)


@dataclass(frozen=True)
class Narrowed:
    """The narrower model and what was done."""

    model: Model
    coverage: ChannelsCoverage


def channels(
    model: Model,
    *,
    keep: float | None = None,
    max_macs: float | None = None,
    max_latency_ms: float | None = None,
    data: Data | None = None,
    multiple: int = 8,
    repair: bool = True,
    rules: Sequence[LayerRule | str] = (),
    samples: int = DEFAULT_SAMPLES,
    threads: int = 1,
    seed: int = 0,
    sizes: bool = False,
    check: bool = True,
) -> Narrowed:
    """Return a model with fewer channels, and a report of what became of each group of them.

    Channels that are tied by additions, concatenations, depthwise layers, gates or flattening go together; whatever
    cannot be proved safe stays, with the reason in the report.

    Args:
        model: in float; weights stored as float16 or sparse become float32 first.
        keep: the share of its channels that each group keeps. Give this or one of the two budgets:
        max_macs: multiply-accumulates at most; up to 1, a share of what the model has. Removed is what costs least.
        max_latency_ms: latency at most, measured on this machine while searching, and of the model that is returned.
        data: unlabelled samples, some hundreds, from which the importance of channels and the repair come.
        multiple: widths are multiples of this, as the kernels like; 8 or 16, or 1 for any.
        repair: fit the layers that are left to what the original writes, by least squares on the data.
        rules: ``skip:MATCH`` or ``SHARE:MATCH`` for the channels that layers write, by kind, #index or name.
        samples: how many at most.
        threads: for the measured latency.
        seed: of the choice of positions that layers are looked at.
        sizes: measure the file raw and compressed too.
        check: compile and run the result in LiteRT.

    Raises:
        UsageError: none or several of keep, max_macs and max_latency_ms, or one that makes no sense.
        OptimizeError: nothing can be removed, a budget cannot be met, or a plan would empty a layer.
    """
    wanted = check_options(keep, max_macs, max_latency_ms, multiple)
    source, notes = _as_float(model)
    signature, subgraph = entry_points(source)[0]
    trace = Trace(source.subgraphs[subgraph], held_elsewhere(source, subgraph))
    groups = find_groups(trace)
    free, fixed = _free_groups(source, subgraph, groups, parse_rules(rules), multiple)
    if not free:
        raise OptimizeError(_nothing(groups))
    fed = _feeds(source, data, signature, subgraph, samples)
    plan_cost = PlanCost(source, subgraph, trace, groups)
    orders = _orders(source, subgraph, trace, free, fed, seed)

    cutter = _Cutter(source, subgraph, trace, free, orders)
    given = {n: rounded(groups[n].width * s, groups[n].width, multiple) for n, s in fixed.items()}

    if keep is not None:
        _refuse_empty(free, keep, fixed)
        shares = {group.number: fixed.get(group.number, keep) for group in free}
        widths = uniform_widths(free, shares, multiple)
    else:
        limit = max_macs if max_macs is None or max_macs > 1 else max_macs * plan_cost.macs({})

        def planned(orders: Mapping[int, Order]) -> Widths:
            path = removal_path(free, orders, plan_cost, multiple, given)
            if limit is None:
                assert max_latency_ms is not None
                return first_within(path, lambda w: _latency_ms(cutter.cut(w), threads), max_latency_ms, "ms")
            able = [group for group in free if group.number not in given]
            found = first_within(path, plan_cost.macs, limit, "multiply-accumulates")
            return widened(found, able, orders, plan_cost, multiple, limit)

        widths = _best_plan(cutter, planned, orders, fed, multiple, seed) if fed and repair else planned(orders)

    def made(widths: Widths) -> tuple[Model, int]:
        narrow = cutter.cut(widths)
        return cutter.repaired(narrow, widths, fed, seed) if fed and repair else (narrow, 0)

    result, repaired = made(widths)
    latency = None
    if max_latency_ms is not None:
        latency = _latencies(model, result, threads)
        for _ in range(_FURTHER_STEPS):
            path = removal_path(free, orders, plan_cost, multiple, given, start=widths)
            if latency[1] <= max_latency_ms or len(path) == 1:
                break
            widths = _further(path, plan_cost, max_latency_ms / latency[1])
            result, repaired = made(widths)
            latency = _latencies(model, result, threads)
        _refuse_slow(latency[1], max_latency_ms)
    if fed and repair:
        notes += single_sample_notes(len(fed))
    elif repair:
        notes.append("no data was given: the layers are not fitted to what is left")
    if check:
        check_runs(source, result)
    importance = "activations" if fed else "weights"
    coverage = _coverage(source, result, groups, widths, wanted, multiple, importance, repaired, latency, notes)
    if sizes:
        coverage = replace(coverage, sizes=(file_sizes(model), file_sizes(result)))
    return Narrowed(result, coverage)


def _further(path: Sequence[Widths], cost: PlanCost, share: float) -> Widths:
    """Return the first plan behind the start of a path with at most a share of its work; the last one where none has."""
    most = share * cost.work(path[0])
    return next((widths for widths in path[1:] if cost.work(widths) <= most), path[-1])


def _refuse_slow(latency_ms: float, most_ms: float) -> None:
    if latency_ms > most_ms:
        raise OptimizeError(
            f"the narrower model takes {latency_ms:.4g} ms, measured when it was done, not {most_ms:.4g}; ask for more, "
            "allow narrower widths with a smaller multiple, measure when the machine is quiet, or start from a smaller model"
        )


def check_options(keep: float | None, max_macs: float | None, max_latency_ms: float | None, multiple: int) -> str:
    """Refuse options that make no sense; returns them in words."""
    given = [(n, v) for n, v in (("keep", keep), ("macs", max_macs), ("latency", max_latency_ms)) if v is not None]
    if len(given) != 1:
        raise UsageError(f"give one of keep, max_macs and max_latency_ms, not {len(given)} of them")
    name, value = given[0]
    if name == "keep" and not 0 < value <= 1:
        raise UsageError(f"the share of channels to keep must be above 0 and at most 1, not {value}")
    if not value > 0:
        raise UsageError(f"the budget of {name} must be positive, not {value}")
    if multiple < 1:
        raise UsageError(f"widths can be multiples of 1 or more, not of {multiple}")
    macs = f"at most {100 * value:g} % of the MACs" if value <= 1 else f"at most {value:,.0f} MACs"
    unit = {"keep": f"keep {value:g}", "macs": macs, "latency": f"at most {value:g} ms"}
    return unit[name]


def _as_float(model: Model) -> tuple[Model, list[str]]:
    """Return the model with stored weights as float32 constants; refuse one that computes in integers."""
    stored = False
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.is_quantized and tensor.dtype not in ("float32", "float16"):
                raise OptimizeError(
                    f"the model is quantized: tensor {tensor.name!r} is {tensor.dtype}; remove channels from the float "
                    "model and quantize afterwards, or make one with dequantize(model) (--dequantize)"
                )
            stored |= tensor.is_constant and (tensor.dtype in _STORED or tensor.sparsity is not None)
    if not stored:
        return model, []
    note = "weights that were stored in 16 bits or sparse are float32 now; quantize to float16 to store them so again"
    return dequantize(model), [note]


def _free_groups(
    model: Model, subgraph: int, groups: Sequence[Group], rules: Sequence[LayerRule], multiple: int
) -> tuple[list[Group], dict[int, float]]:
    """Return the groups that may shrink, and the share of those that a rule gives one."""
    layers = weight_layers(model)
    by_rule = matching_rules(model, layers, rules)
    free, fixed = [], {}
    for group in groups:
        found = [by_rule[subgraph, w] for w in group.writers if (subgraph, w) in by_rule]
        if group.reason or any(rule.action == "skip" for rule in found):
            continue
        numbers = [rule.number for rule in found if rule.number is not None]
        for number in numbers:
            if not 0 < number <= 1 or number * group.width < 1:
                raise OptimizeError(
                    f"keeping {number:g} of the {group.width} channels of {group.name!r} would empty it; keep at least 1"
                )
        if numbers:
            fixed[group.number] = numbers[-1]
        if group.width > multiple:
            free.append(group)
    return free, fixed


def _refuse_empty(free: Sequence[Group], keep: float, fixed: Mapping[int, float]) -> None:
    for group in free:
        if group.number not in fixed and group.width * keep < 1:
            raise OptimizeError(
                f"keeping {keep:g} of the {group.width} channels of {group.name!r} would empty the layer; keep at least "
                f"{1 / group.width:.3g}"
            )


def _nothing(groups: Sequence[Group]) -> str:
    reasons = [group.reason for group in groups if group.reason]
    if reasons:
        return f"no channels can be removed: {reasons[0]}" + (f" (and {len(reasons) - 1} more)" if reasons[1:] else "")
    return "no channels can be removed: every group is as narrow as the multiple of the widths, or skipped by a rule"


def _feeds(model: Model, data: Data | None, signature: int, subgraph: int, samples: int) -> list[Feed]:
    if data is None:
        return []
    affordable = most_samples(model.subgraphs[subgraph])
    return spread_samples(model, data, min(samples, affordable), signature=signature)


def _orders(
    model: Model, subgraph: int, trace: Trace, groups: Sequence[Group], fed: Sequence[Feed], seed: int
) -> dict[int, Order]:
    readers = sorted({index for group in groups for index in group.readers} & fittable(model, subgraph))
    few = fed[:: max(len(fed) // _IMPORTANCE_SAMPLES, 1)]
    moments = input_moments(model, subgraph, few, readers, seed=seed) if fed else {}
    orders = {}
    with task("Ranking channels", total=len(groups)) as advance:
        for group in groups:
            orders[group.number] = removal_order(trace, group, moments)
            advance(1)
    return orders


class _Cutter:
    """Makes narrower models of one model, by the widths of its groups."""

    def __init__(
        self, model: Model, subgraph: int, trace: Trace, groups: Sequence[Group], orders: Mapping[int, Order]
    ) -> None:
        self.model, self.subgraph, self.trace, self.groups, self._orders = model, subgraph, trace, groups, orders

    def removed(self, widths: Mapping[int, int]) -> set[int]:
        """Return the atoms that a plan removes; groups that it does not name stay as wide as they are."""
        gone = ((g, g.width - widths.get(g.number, g.width)) for g in self.groups)
        return {atom for g, count in gone for atom in self._orders[g.number].atoms[:count].tolist()}

    def cut(self, widths: Mapping[int, int]) -> Model:
        """Return the model without the removed channels, other weights as they are."""
        removed = self.removed(widths)
        graph = without_channels(self.trace, removed, kept_indices(self.trace, removed))
        return replace(self.model, subgraphs=_swapped(self.model, self.subgraph, graph), source=None)

    def repaired(
        self, narrow: Model, widths: Mapping[int, int], fed: Sequence[Feed], seed: int, only: Sequence[int] = ()
    ) -> tuple[Model, int]:
        """Return the model with the layers from the first narrower one on fitted to what the original writes."""
        graph = narrow.subgraphs[self.subgraph]
        kept = kept_indices(self.trace, self.removed(widths))
        touched = changed_readers(self.trace.graph, kept)
        if not touched:
            return narrow, 0
        able = fittable(narrow, self.subgraph)
        layers = [i for i in only or range(touched[0], len(graph.operators)) if i in able]
        with task("Repairing", total=len(layers)) as advance:
            for pair in layer_pairs(self.model, narrow, self.subgraph, fed, layers, kept=kept, seed=seed):
                rows = fit(pair.fitted, pair.held, pair.rows)
                pair.replace(rows, pair.fitted.merged(pair.held).bias(rows))
                graph = pair.walk.graph()
                advance(1)
        return replace(narrow, subgraphs=_swapped(narrow, self.subgraph, graph)), len(layers)


def _best_plan(
    cutter: _Cutter,
    planned: Callable[[Mapping[int, Order]], Widths],
    orders: Mapping[int, Order],
    fed: Sequence[Feed],
    multiple: int,
    seed: int,
) -> Widths:
    """Return the plan with the least error in the output after a quick repair: losses as they are, or as measured.

    A layer's own error says little about what reaches the end, and what one group alone does to the end says little
    about all together. So both are tried, and what lies between.
    """
    few = fed[:: max(len(fed) // _SENSITIVITY_SAMPLES, 1)]
    others = fed[1 :: max(len(fed) // _SENSITIVITY_SAMPLES, 1)] or fed
    judge = OutputError(cutter.model, others, subgraph=cutter.subgraph)
    factors = _measured_factors(cutter, orders, few, judge, multiple, seed)
    tried: list[tuple[float, Widths]] = []
    for power in (0.0, 0.5, 1.0):
        widths = planned({n: Order(o.atoms, o.losses * factors[n] ** power) for n, o in orders.items()})
        if all(widths != other for _, other in tried):
            narrow, _ = cutter.repaired(cutter.cut(widths), widths, few, seed)
            tried.append((judge.of(narrow), widths))
    return min(tried, key=lambda pair: pair[0])[1]


def _measured_factors(
    cutter: _Cutter, orders: Mapping[int, Order], few: Sequence[Feed], judge: OutputError, multiple: int, seed: int
) -> dict[int, float]:
    """Return by how much each group's losses grow until they reach the output, narrowing one group at a time."""
    found = {}
    with task("Measuring sensitivity", total=len(cutter.groups)) as advance:
        for group in cutter.groups:
            order = orders[group.number]
            width = rounded(group.width * _PROBE, group.width, multiple)
            widths = {group.number: width}
            narrow, _ = cutter.repaired(cutter.cut(widths), widths, few, seed, only=group.readers)
            expected = max(float(order.losses[: group.width - width].sum()), 1e-30)
            found[group.number] = judge.of(narrow) / expected if width < group.width else 1.0
            advance(1)
    return found


def _swapped(model: Model, subgraph: int, graph: Any) -> tuple[Any, ...]:
    return (*model.subgraphs[:subgraph], graph, *model.subgraphs[subgraph + 1 :])


def _latency_ms(model: Model, threads: int) -> float:
    from litesmith.measure import bench

    return bench(model, threads=threads, seconds=0.5, memory=False).latencies[0].summary.median


def _latencies(before: Model, after: Model, threads: int) -> tuple[float, float]:
    from litesmith.measure import bench

    found = bench(before, after, threads=threads, seconds=1.0, memory=False).latencies
    return found[0].summary.median, found[1].summary.median


def _coverage(
    before: Model,
    after: Model,
    groups: Sequence[Group],
    widths: Mapping[int, int],
    wanted: str,
    multiple: int,
    importance: str,
    repaired: int,
    latency: tuple[float, float] | None,
    notes: Sequence[str],
) -> ChannelsCoverage:
    found = [
        ChannelGroupCoverage(g.name, g.writers, (g.width, widths.get(g.number, g.width)), g.reason) for g in groups
    ]
    costs = cost(before), cost(after)
    return ChannelsCoverage(
        wanted,
        multiple,
        importance,
        repaired,
        tuple(found),
        (costs[0].macs, costs[1].macs),
        (costs[0].parameters, costs[1].parameters),
        latency,
        None,
        tuple(notes),
    )
