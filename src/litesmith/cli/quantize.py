# SPDX-License-Identifier: Apache-2.0
"""`litesmith quantize`: one file in, a smaller one out, with a coverage report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.cli import _output as out
from litesmith.cli._compress import read_recipe
from litesmith.cli._files import check_writable
from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.optimize import SCHEMES, Coverage, Ranges, dequantize, quantize
from litesmith.optimize._recipe import quantize_arguments


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("quantize")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    scheme: Annotated[
        str, typer.Option(help="int8, int16x8, dynamic, float16, relaxed, weights8, weights4, …")
    ] = "int8",
    recipe: Annotated[
        str | None, typer.Option(help="All options in one: 'int8(minmax, bias) + float:SOFTMAX', or a .toml.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Samples to calibrate on: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples to take at most, from all over.")] = None,
    method: Annotated[
        str | None, typer.Option(help="How ranges are found: minmax, percentile, mse, entropy, average.")
    ] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option(help="Without data: LOW,HIGH of the input, or NAME=LOW,HIGH for one of several."),
    ] = None,
    ranges: Annotated[Path | None, typer.Option(help="A .json of ranges to use instead of calibrating.")] = None,
    save_ranges: Annotated[Path | None, typer.Option(help="A .json to keep the ranges in, to look at or edit.")] = None,
    weight_ranges: Annotated[str | None, typer.Option(help="Of the weights: minmax, mse or octav.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="Another scheme for some operators, 'float:SOFTMAX'. Again for more.")
    ] = None,
    recover: Annotated[
        list[str] | None,
        typer.Option(
            help="A recovery pass: equalize, clip, trim, gptq, rounding, bias. Again for more; 'none' for none."
        ),
    ] = None,
    io: Annotated[str | None, typer.Option(help="Type of inputs and outputs: float, int8 or int16.")] = None,
    per_channel: Annotated[
        bool | None, typer.Option("--per-channel/--per-tensor", help="Scales of weights: one a channel, or one.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="The last layer: auto, same, float, dynamic or weights8.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when anything stays float.")] = False,
    allow_unused_rules: Annotated[bool, typer.Option("--allow-unused-rules", help="A rule may match nothing.")] = False,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Write a model with smaller numbers, and say what became of each operator.

    Example: `litesmith quantize model.tflite --data photos/ --preprocess 'resize=224 scale=1/255' -o int8.tflite`
    """
    check_writable(output, save_ranges)
    given = {
        "method": method,
        "samples": samples,
        "weight_ranges": weight_ranges,
        "recover": None if recover is None else () if recover == ["none"] else tuple(recover),
        "io": io,
        "per_channel": per_channel,
        "head": head,
        "strict": strict or None,
    }
    options: dict[str, Any] = {"scheme": scheme} if recipe is None else _step(recipe)
    options |= {name: value for name, value in given.items() if value is not None}
    options["rules"] = (*options.get("rules", ()), *(rule or ()))
    source = Model.load(model)
    source.verify()
    if undo:
        source = dequantize(source)
    result = quantize(
        source,
        data=None if data is None else Dataset.open(data, preprocess=preprocess),
        ranges=None if ranges is None else Ranges.from_json(ranges),
        input_range=_input_range(input_range),
        allow_unused_rules=allow_unused_rules,
        **options,
    )
    if save_ranges is not None:
        if result.ranges is None:
            raise UsageError(f"the scheme {options['scheme']} needs no ranges, so there are none to keep")
        result.ranges.to_json(save_ranges)
    result.model.save(output)
    if json:
        out.json(result.coverage)
    else:
        show(result.coverage, model, output)


def _input_range(words: list[str] | None) -> tuple[float, float] | dict[str, tuple[float, float]] | None:
    """Return the range of the only input, or those of several by name."""
    if not words:
        return None
    found = {}
    for word in words:
        name, equals, numbers = word.rpartition("=")
        try:
            low, high = map(float, numbers.split(","))
        except ValueError:
            raise UsageError(f"{word!r} is no range of an input; write LOW,HIGH or NAME=LOW,HIGH") from None
        if not equals and len(words) > 1:
            raise UsageError(f"{word!r} does not say which input it is for; write NAME=LOW,HIGH for each")
        found[name] = low, high
    return found.get("", found)


def _step(text: str) -> dict[str, Any]:
    """Return the options of ``quantize`` that a recipe of one step stands for."""
    recipe = read_recipe(text)
    steps = [step for step in recipe.steps if step.name in SCHEMES]
    if len(recipe.steps) != 1 or len(steps) != 1:
        raise UsageError(
            f"quantize takes a recipe of one scheme, such as int8(bias), not {str(recipe)!r}; the verb recipe runs that"
        )
    return quantize_arguments(steps[0])


def show(coverage: Coverage, before: Path, after: Path) -> None:
    """Print a coverage for people, with the file that was written."""
    sizes = before.stat().st_size, after.stat().st_size
    share = f"{100 * sizes[1] / sizes[0]:.0f} %"
    show_coverage(coverage, f"{after}, {out.bytes_text(sizes[1])}, {share} of {out.bytes_text(sizes[0])}")


def show_coverage(coverage: Coverage, written: str = "") -> None:
    """Print a coverage for people."""
    found = "unknown" if coverage.actual_partitions is None else str(coverage.actual_partitions)
    conversions = ", ".join(f"{count} {kind}" for kind, count in coverage.conversions.items())
    out.facts(
        [
            *([("written", written)] if written else []),
            ("scheme", coverage.scheme),
            *([("ranges", coverage.ranges)] if coverage.ranges else []),
            ("operators", coverage.counts),
            *(("recovery", report) for report in coverage.recovery),
            ("conversions", conversions or "none added"),
            ("XNNPACK", f"{coverage.predicted_partitions} partition(s) predicted, {found} found"),
            ("constants", ", ".join(f"{out.bytes_text(size)} {kind}" for kind, size in coverage.bytes_by_type.items())),
        ]
    )
    if coverage.left_float:
        out.heading("Left float")
        rows = [(op.index, op.kind, op.scheme, op.reason) for op in coverage.left_float]
        out.table(["#", "kind", "runs as", "why"], rows, left=4)
    for rule in coverage.unused_rules:
        out.line(f"! the rule {rule} matches nothing")
    if coverage.widened:
        names = ", ".join(coverage.widened[:3]) + (", …" if len(coverage.widened) > 3 else "")
        out.line(
            f"! {out.plural(len(coverage.widened), 'scale')} made wider, so that biases and multipliers fit: {names}"
        )
    for note in coverage.notes:
        out.line(f"! {note}")
