# SPDX-License-Identifier: Apache-2.0
"""`--delegate`: the one option by which every verb that chooses kernels can do without Litesmith's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from litesmith.cli._added_option import added_option

_Option = Annotated[
    str,
    typer.Option(
        "--delegate",
        metavar="auto|off",
        help="off: without Litesmith's own kernels for int16x8, pruned and hybrid operators, as LiteRT comes.",
    ),
]


def with_delegate(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with the option, if it has kernels to choose; else unchanged."""
    if "kernels" not in inspect.signature(command).parameters:
        return command

    def choose(delegate: str, given: dict[str, Any]) -> dict[str, Any]:
        from litesmith.runtime import without_native

        kernels = given["kernels"]
        several = [kernels or "delegate"] if isinstance(kernels, str) or kernels is None else kernels
        named = [without_native(each, delegate) for each in several]
        return {**given, "kernels": named[0] if isinstance(kernels, str) else named}

    return added_option(command, "delegate", _Option, "auto", choose)
