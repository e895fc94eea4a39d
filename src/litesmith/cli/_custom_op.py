# SPDX-License-Identifier: Apache-2.0
"""`--custom-op`: the one option by which every verb that runs a model gets kernels for its custom operators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

RUNNING = (
    "accelerators", "bench", "channels", "cluster", "compare", "copies", "diagnose", "evaluate", "inspect", "profile",
    "prune", "quantize", "run", "threads", "trace", "tune",
)  # fmt: skip
"""The verbs that run a model."""

_Option = Annotated[
    list[str] | None,
    typer.Option(
        "--custom-op",
        metavar="KERNEL",
        help="Kernel of a custom operator: FILE.py, module:function or library.so:symbol, after NAME= where its name in "
        "the model is another; again for more.",
    ),
]


def with_custom_ops(command: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with the option: the kernels are registered before anything else is done."""

    @functools.wraps(command)
    def registered(*arguments: Any, custom_op: list[str] | None = None, **options: Any) -> None:
        from litesmith.runtime import load_custom_op

        for spec in custom_op or ():
            load_custom_op(spec)
        command(*arguments, **options)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("custom_op", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option)
    parameters = [*signature.parameters.values(), option]
    shown: Any = registered
    del shown.__wrapped__  # Typer would look behind
    shown.__signature__ = signature.replace(parameters=parameters)
    shown.__annotations__ = {p.name: p.annotation for p in parameters}
    return registered
