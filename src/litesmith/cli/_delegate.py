# SPDX-License-Identifier: Apache-2.0
"""`--delegate`: the one option by which every verb that chooses kernels can do without Litesmith's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

_Option = Annotated[
    str,
    typer.Option(
        "--delegate",
        metavar="auto|off",
        help="off: without Litesmith's own kernels for int16x8 and pruned operators, as LiteRT comes.",
    ),
]


def with_delegate(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with the option, if it has kernels to choose; else unchanged."""
    signature = inspect.signature(command, eval_str=True)
    if "kernels" not in signature.parameters:
        return command

    @functools.wraps(command)
    def chosen(*arguments: Any, delegate: str = "auto", **options: Any) -> None:
        from litesmith.runtime import without_native

        kernels = options["kernels"]
        several = [kernels or "delegate"] if isinstance(kernels, str) or kernels is None else kernels
        named = [without_native(each, delegate) for each in several]
        command(*arguments, **{**options, "kernels": named[0] if isinstance(kernels, str) else named})

    option = inspect.Parameter("delegate", inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=_Option)
    parameters = [*signature.parameters.values(), option]
    shown: Any = chosen
    del shown.__wrapped__  # Typer would look behind
    shown.__signature__ = signature.replace(parameters=parameters)
    shown.__annotations__ = {p.name: p.annotation for p in parameters}
    return chosen
