# SPDX-License-Identifier: Apache-2.0
"""Give a verb one more option than its function has arguments, for options that many verbs share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def added_option(
    command: Callable[..., None],
    name: str,
    kind: Any,
    default: Any,
    use: Callable[[Any, dict[str, Any]], dict[str, Any]],
) -> Callable[..., None]:
    """Return the verb with the option: ``use`` gets its value and the verb's own arguments, and returns these.

    Args:
        command: The function of the verb.
        name: Of the option.
        kind: Its type, annotated for Typer.
        default: Where it is not given.
        use: What is done with it before the verb runs.
    """
    signature = inspect.signature(command, eval_str=True)

    def extended(**given: Any) -> None:
        value = given.pop(name)
        command(**use(value, given))

    option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    parameters = [*signature.parameters.values(), option]
    shown: Any = extended  # Typer reads these
    shown.__name__, shown.__doc__ = command.__name__, command.__doc__
    shown.__signature__ = signature.replace(parameters=parameters)
    shown.__annotations__ = {p.name: p.annotation for p in parameters}
    return extended
