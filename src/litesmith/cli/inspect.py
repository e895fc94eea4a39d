# SPDX-License-Identifier: Apache-2.0
"""`litesmith inspect`: what is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.runtime import Delegation, Inspection, TensorFacts, inspect


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("inspect")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    delegates: Annotated[bool, typer.Option(help="Let LiteRT compile it, to see what the delegates take.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say what is in a .tflite: inputs, outputs, operators, parameters, MACs, bytes, quantization, signatures.

    Example: `litesmith inspect model.tflite`
    """
    result = inspect(model, delegates=delegates)
    if json:
        out.json(result)
        return
    show(result)


def show(result: Inspection) -> None:
    """Print an inspection for people."""
    out.facts(
        [
            ("file", f"{result.name}, {out.bytes_text(result.size_bytes)}"),
            *([("description", result.description)] if result.description else []),
            ("computes in", result.scheme),
            ("parameters", f"{result.parameters:,} ({_constants(result)})"),
            ("MACs", f"{result.macs:,}"),
            (
                "bytes moved",
                f"{out.bytes_text(result.bytes_read)} read, {out.bytes_text(result.bytes_written)} written",
            ),
            ("operators", f"{result.operator_count} in {out.plural(result.subgraphs, 'subgraph')}"),
            *([("Litesmith's delegate", _takes(result.litesmith))] if result.litesmith else []),
            *([("XNNPACK", _xnnpack(result))] if result.xnnpack else []),
            *([("metadata", ", ".join(result.metadata))] if result.metadata else []),
            *([("associated files", ", ".join(result.associated_files))] if result.associated_files else []),
            *([("outdated", ", ".join(result.legacy))] if result.legacy else []),
        ]
    )
    for signature in result.signatures:
        out.heading(f"Signature {signature.key}" if signature.key else "Inputs and outputs (the file has no signature)")
        rows = [*(("in", t) for t in signature.inputs), *(("out", t) for t in signature.outputs)]
        out.table(["", "name", "shape", "type", "quantization"], [_row(way, t) for way, t in rows], left=5)
    out.heading("Operators")
    out.table(
        ["kind", "count", "parameters", "MACs", "share", "read", "written"],
        [
            (
                group.kind,
                group.count,
                out.count_text(group.parameters),
                out.count_text(group.macs),
                f"{100 * group.macs / result.macs:.1f} %" if result.macs else "",
                out.bytes_text(group.bytes_read),
                out.bytes_text(group.bytes_written),
            )
            for group in result.operators
        ],
    )


def _row(way: str, tensor: TensorFacts) -> tuple[str, ...]:
    return way, tensor.name, out.shape_text(tensor.shape), tensor.dtype, tensor.quantization


def _constants(result: Inspection) -> str:
    return ", ".join(f"{out.bytes_text(size)} {dtype}" for dtype, size in result.constant_bytes.items()) or "none"


def _xnnpack(result: Inspection) -> str:
    found = result.xnnpack
    assert found is not None
    if found.problem:
        return f"not known, LiteRT does not load the file here: {found.problem}"
    left = ", ".join(f"{kind} {count}" for kind, count in found.left.items())
    whole = _takes(found)
    return f"{whole}; left to built-in kernels: {left}" if left else whole


def _takes(found: Delegation) -> str:
    return f"takes {found.delegated} operators in {out.plural(found.partitions, 'partition')}"
