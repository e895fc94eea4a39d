# SPDX-License-Identifier: Apache-2.0
"""`litesmith compat`: will this file run whole on that hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.targets import TARGETS, Compatibility, compat
from litesmith.targets import fix as apply_fixes

_SHOWN = 8
_NAME = 40  # letters of a tensor: those of fused operators have the names of all their parts


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("compat")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    target: Annotated[str, typer.Option(help=f"{', '.join(TARGETS)}.")],
    fix: Annotated[
        Path | None, typer.Option(help="A .tflite to write, with the safe rewrites that help this target.")
    ] = None,
    operators: Annotated[bool, typer.Option("--operators", help="List every operator.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say which operators of a model run on a target, which breaks the chain, and what to do about it.

    The exit code is 0 when the whole model maps, 1 when it does not.

    Example: `litesmith compat model.tflite --target edgetpu --fix fixed.tflite`
    """
    check_writable(fix)
    if fix is None:
        result = compat(model, target=target)
    else:
        fixed = apply_fixes(model, target=target)
        fixed.model.save(fix)
        result = fixed.found
    if json:
        out.json(result)
    else:
        show(result, operators=operators)
        if fix is not None:
            out.line(
                f"written: {fix}" if result.applied else f"nothing could be rewritten; {fix} is the model as it was"
            )
    if not result.maps:
        raise typer.Exit(1)


def show(result: Compatibility, *, operators: bool = False) -> None:
    """Print a check for people."""
    total = len(result.operators)
    pieces = out.plural(result.partitions, "piece")
    verdict = "maps whole" if result.maps else f"{result.mapped} of {total} operators map, in {pieces}"
    rows = [("model", result.model), ("target", result.title), ("verdict", verdict)]
    if result.first_break is not None:
        first = result.operators[result.first_break]
        rows.append(("breaks at", f"operator {first.index}, {first.kind} {_short(first.name)}"))
    rows += [("rewritten", text) for text in result.applied]
    rows += [("left as it was", text) for text in result.refused]
    out.facts(rows)
    out.heading("By kind")
    out.table(["kind", "map", "of"], [(kind, *counts) for kind, counts in result.by_kind().items()])
    if result.problems:
        out.heading("What does not fit")
    for problem in result.problems:
        kinds = ", ".join(f"{count} {kind}" for kind, count in list(problem.kinds.items())[:_SHOWN])
        more = ", …" if len(problem.kinds) > _SHOWN else ""
        out.line(f"! {problem.reason}: {kinds}{more}")
        out.line(f"  → {problem.reason.remedy}")
    if operators:
        out.heading("Every operator")
        out.table(
            ["#", "kind", "maps", "why not"],
            [
                (o.index, o.kind, "yes" if o.mapped else "no", "; ".join(map(str, o.reasons)) or _behind(o.mapped))
                for o in result.operators
            ],
            left=4,
        )
    for note in result.notes:
        out.line(f"note: {note}")
    out.line(f"rules: {result.source}")


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[:_NAME]}…"


def _behind(mapped: bool) -> str:
    return "" if mapped else "it comes after the operator that breaks the chain"
