# SPDX-License-Identifier: Apache-2.0
"""`litesmith advise`: the decision tree, from data, target and tolerance to a recipe, with the reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.tune import Advice, Node, advise


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("advise")(command)


def command(
    model: Annotated[Path | None, typer.Argument(help="A .tflite to look at for what speaks against it.")] = None,
    data: Annotated[str, typer.Option(help="What samples there are: none, unlabelled or labelled.")] = "none",
    target: Annotated[str, typer.Option(help="cpu, gpu, edgetpu, hexagon or npu.")] = "cpu",
    max_drop: Annotated[str, typer.Option(help="How much of the score may be lost.")] = "1%",
    purpose: Annotated[str, typer.Option(help="What matters most: latency, size or download.")] = "latency",
    json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Say which recipe the field would take, with the reason at each branch, before anything is measured.

    Example: `litesmith advise model.tflite --data unlabelled --target cpu --max-drop 1%`
    """
    advice = advise(model, data=data, target=target, max_drop=max_drop, purpose=purpose)
    if json:
        out.json(advice)
    else:
        show(advice)


def show(advice: Advice) -> None:
    """Print the tree with the road taken, the reasons and the next command."""
    for line in tree_lines(advice.tree):
        out.line(line)
    out.heading(f"Recipe: {advice.recipe}")
    for reason in advice.reasons:
        out.line(f"· {reason}")
    out.line(f"cost: {advice.cost}")
    for warning in advice.warnings:
        out.line(f"! {warning}")
    out.console.print(f"next: {out.printable(advice.command)}", soft_wrap=True)  # on one line, to be copied


def tree_lines(nodes: tuple[Node, ...]) -> list[str]:
    """Return the tree as text: what the road does not pass is folded to its question."""
    lines = []
    ancestors: list[Node] = []
    for node in nodes:
        del ancestors[node.depth :]
        if all(ancestor.taken for ancestor in ancestors):
            mark = "●" if node.taken else "○"
            words = (
                [node.answer, "→", node.text] if node.is_leaf else [f"{node.answer}:" if node.answer else "", node.text]
            )
            folded = " …" if not node.taken and not node.is_leaf else ""
            lines.append(f"{'  ' * node.depth}{mark} {' '.join(filter(None, words))}{folded}")
        ancestors.append(node)
    return lines
