# SPDX-License-Identifier: Apache-2.0
"""Quantize a model: ranges, recovery of accuracy, and a report of what was done."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Model
from litesmith.model._channel_scales import recorded, rescaled
from litesmith.optimize._build import Quantized, build
from litesmith.optimize._calibrate import DEFAULT_METHOD, calibrate
from litesmith.optimize._cluster_shared import BREAKING, shared_weights
from litesmith.optimize._coverage import Coverage
from litesmith.optimize._data_free import data_free_ranges
from litesmith.optimize._input_range import InputRange, input_ranges
from litesmith.optimize._layer_rules import sharing_layers, weight_layers
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._recovery import RECOVERY_MODULES, default_passes, in_order, recovered
from litesmith.optimize._request import checked_request
from litesmith.optimize._run import Data, repeatable
from litesmith.optimize._scheme import Rule
from litesmith.optimize._weights import Overrides


def quantize(
    model: Model,
    *,
    scheme: str = "int8",
    data: Data | None = None,
    ranges: Ranges | None = None,
    input_range: InputRange | None = None,
    rules: Sequence[Rule | str] = (),
    io: str = "float",
    per_channel: bool = True,
    method: str = DEFAULT_METHOD,
    samples: int | None = None,
    weight_ranges: str = "minmax",
    head: str = "auto",
    min_weight_elements: int | None = None,
    recover: Sequence[str] | None = None,
    weights: Overrides | None = None,
    strict: bool = False,
    allow_unused_rules: bool = False,
    check: bool = True,
) -> Quantized:
    """Return a model in another number format, with a report of what became of each operator.

    Tensor i of the float model is tensor i of the quantized one, in the type in which its producer writes it; what
    is added comes behind. So recovery passes and diagnosis compare tensors by index.

    Args:
        model: a float model; ``dequantize`` makes one of a quantized model.
        scheme: "int8", "int16x8", "int8w4", "dynamic", "dynamic4", "float16", "weights8", "weights4",
            "weights4-block32" (64, 128, 256); "relaxed", which changes no number and only allows kernels to compute
            with less precision; or "float", which with rules quantizes only what they match.
        data: samples for calibration, and for recovery passes that need them.
        ranges: of the activations, where they are known already; with neither data nor ranges, integer schemes take
            data-free ranges and say so. Passes that change activations or ranges find others, on the data. Those that
            an earlier result had, with channels rescaled, bring what these were rescaled by.
        input_range: without data, between what the input lies, as (low, high), or by name where there are several; by
            default as the file's metadata tell, or else as if it were normalized. The report says which.
        rules: other schemes for single operators, as Rule or ``scheme:match``; later ones win.
        io: the type of the model's inputs and outputs: "float", or "int8" or "int16" where activations are integers.
        per_channel: whether weights have a scale for each output channel.
        method: of the calibration, see ``calibrate``.
        samples: how many to take at most, from all over the data; of an iterator the first ones, at most 1000.
        weight_ranges: "minmax", "mse" or "octav".
        head: the scheme of the last layer, whose int8 results would tie: "auto" keeps its results float where outputs
            are float and ``strict`` is off; "same" treats it like the rest; else a scheme with float activations.
        min_weight_elements: smaller weights stay float in schemes with float activations; by default 1024 for
            dynamic schemes, which quantize the input each time, and 0 for the others.
        recover: accuracy recovery passes by name: "equalize", "clip", "trim", "gptq", "rounding" (needs the extra
            ``train``) and "bias". By default, with samples: equalize and bias for 8-bit activations or few bits, clip
            for 8-bit activations unless a method is given, gptq for weights of 6 bits or fewer, or of 8 where
            activations have more, and trim for other weights unless their ranges are given; each only where it brings
            the outputs closer to those of the float model. The report has what each of them gained.
        weights: weights already quantized, by (subgraph, tensor) of the float weights; see ``WeightOverride``.
        strict: raise where anything that was to be quantized stays float.
        allow_unused_rules: do not raise where a rule matches nothing; the report has it.
        check: compile and run the result in LiteRT, with and without XNNPACK; an operator that it refuses becomes
            float again, with LiteRT's words as the reason.

    Raises:
        OptimizeError: the model is quantized already, a rule matches nothing, or ``strict`` is not met.
    """
    request = checked_request(
        scheme=scheme,
        rules=rules,
        io=io,
        per_channel=per_channel,
        weight_ranges=weight_ranges,
        method=method,
        head=head,
        strict=strict,
        min_weight_elements=min_weight_elements,
        weights=weights,
    )
    unknown = [name for name in recover or () if name not in RECOVERY_MODULES]
    if unknown:
        raise UsageError(f"there is no recovery pass {unknown[0]!r}; choose from {', '.join(RECOVERY_MODULES)}")
    is_static = any(scheme.is_static for scheme in request.schemes)
    _check_input_range(input_range, scheme, is_needed=is_static and data is None and ranges is None)
    refuse_quantized(model)
    original, notes = model, list[str]()
    if ranges is not None:
        ranges.check(model)
        model = _rescaled_as_seen(model, ranges) if is_static else model
        notes += ["channels are rescaled as when the ranges were found (equalize)"] if model is not original else []
    shared = shared_weights(model, request.schemes)
    request = replace(request, weights={**shared, **(weights or {})})
    chosen = None if data is None else repeatable(data, samples)

    names = tuple(recover or ())
    if recover is None and chosen is not None and ranges is None:
        names = default_passes(request)
        dropped = [name for name in names if shared and name in BREAKING]
        names = tuple(name for name in names if name not in dropped)
        notes += _dropped_note(model, shared, dropped) if dropped else []
    passes = in_order(names)
    if is_static and ranges is not None:
        notes += _replaced_ranges_note(passes, has_data=chosen is not None)
    if "equalize" in passes:
        notes += _left_alone_note(model)
    request = replace(request, add_biases="result" in passes.values())

    inputs: dict[str, tuple[float, float]] = {}
    if is_static and chosen is None and ranges is None:
        inputs, about_inputs = input_ranges(model, input_range)
        notes += about_inputs

    @functools.cache
    def observed(source: Model, method: str) -> Ranges:
        return data_free_ranges(source, inputs=inputs) if chosen is None else calibrate(source, chosen, method=method)

    def calibrated(source: Model, method: str) -> Ranges | None:
        if not is_static:
            return None
        if method == "minmax" and "clip" in passes and chosen is not None:  # one pass over the samples gives both
            return observed(source, "percentile").as_seen()
        return observed(source, method)

    result = build(model, request, ranges or calibrated(model, method), check=check)
    _complain(result.coverage, strict=strict, allow_unused_rules=allow_unused_rules)
    if passes:
        result = recovered(model, result, request, passes, chosen, calibrated, check=check, forced=recover is not None)
    coverage = replace(result.coverage, notes=(*result.coverage.notes, *notes))
    return replace(result, coverage=coverage, ranges=_with_channel_scales(result, original))


def _check_input_range(given: InputRange | None, scheme: str, *, is_needed: bool) -> None:
    if given is not None and not is_needed:
        raise UsageError(
            f"a range of the input is for integers without data: the scheme {scheme}, the data or the ranges given need "
            "none; leave it out (--input-range)"
        )


def _rescaled_as_seen(model: Model, ranges: Ranges) -> Model:
    """Return the model with the channels that it had when its ranges were seen."""
    try:
        return rescaled(model, ranges.channel_scales)
    except (IndexError, KeyError, ValueError):
        raise OptimizeError(
            "the channel_scales kept with the ranges do not fit the layers of this model; calibrate this model"
        ) from None


def _with_channel_scales(result: Quantized, original: Model) -> Ranges | None:
    """Return the ranges that were used with what makes them those of the original: how its channels were rescaled."""
    if result.ranges is None:
        return None
    return replace(result.ranges, channel_scales=recorded(result.model)[len(recorded(original)) :])


def _dropped_note(model: Model, shared: Overrides, dropped: Sequence[str]) -> list[str]:
    number, index = next(iter(shared))
    name = model.subgraphs[number].tensors[index].name
    what = f"values that the weights of {len(shared)} layers share, first {name!r}"
    return [f"left out as they would tell apart {what}: {', '.join(dropped)}; name them (--recover) to have them"]


def _replaced_ranges_note(passes: Mapping[str, str], *, has_data: bool) -> list[str]:
    """Return that passes find ranges of their own, not those that were given; raise where there are no data for them."""
    replacing = [name for name, stage in passes.items() if stage in ("model", "ranges")]
    if replacing and not has_data:
        raise UsageError(
            f"the ranges given do not hold after {replacing[0]}, which needs samples to find others; give data, or leave "
            f"{replacing[0]!r} out of the recovery passes"
        )
    return (
        [f"the ranges given are replaced by those found on the data after {', '.join(replacing)}"] if replacing else []
    )


def _left_alone_note(model: Model) -> list[str]:
    layers = sharing_layers(model, weight_layers(model))
    if not layers:
        return []
    return [f"equalize leaves {len(layers)} layers alone, first {layers[0].label}: other tensors share their weights"]


def refuse_quantized(model: Model) -> None:
    """Raise where a model is quantized already."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            half = tensor.dtype in ("float16", "bfloat16") and tensor.is_constant
            if half or (tensor.is_quantized and tensor.dtype in ("int8", "uint8", "int16", "int4", "int2", "int32")):
                raise OptimizeError(
                    f"the model is quantized already: tensor {tensor.name!r} is {tensor.dtype}; give the float model, "
                    "or make one of it with dequantize(model) (--dequantize)"
                )


def _complain(coverage: Coverage, *, strict: bool, allow_unused_rules: bool) -> None:
    if coverage.unused_rules and not allow_unused_rules:
        kinds = ", ".join(sorted({op.kind for op in coverage.operators}))
        raise OptimizeError(
            f"the rule {coverage.unused_rules[0]!r} matches no operator; the model has {kinds}. Correct the rule, or allow "
            "it to match nothing (--allow-unused-rules)"
        )
    if strict and coverage.left_float:
        first = coverage.left_float[0]
        raise OptimizeError(
            f"{len(coverage.left_float)} operators would stay float, first #{first.index} {first.kind} {first.name!r}: "
            f"{first.reason}; drop strict, or change the model"
        )
