# SPDX-License-Identifier: Apache-2.0
"""`--custom-op`: the one option by which every verb that runs a model gets kernels for its custom operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from litesmith.cli._added_option import added_option

RUNNING = (
    "accelerators", "bench", "channels", "cluster", "compare", "copies", "diagnose", "evaluate", "gate", "inspect",
    "profile", "prune", "quantize", "run", "threads", "trace", "tune",
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

    def register(specs: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
        from litesmith.runtime import load_custom_op

        for spec in specs or ():
            load_custom_op(spec)
        return given

    return added_option(command, "custom_op", _Option, None, register)
