# SPDX-License-Identifier: Apache-2.0
"""The command line: one verb is one file is one public function; here they are gathered and their errors told."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from litesmith import __version__
from litesmith.cli._custom_op import RUNNING, with_custom_ops
from litesmith.cli._delegate import with_delegate
from litesmith.errors import LitesmithError, UsageError

VERBS = (
    "inspect",
    "run",
    "bench",
    "profile",
    "trace",
    "threads",
    "copies",
    "accelerators",
    "app",
    "compare",
    "compat",
    "quantize",
    "prune",
    "channels",
    "cluster",
    "fold",
    "recipe",
    "train",
    "retrain",
    "evaluate",
    "diagnose",
    "devices",
    "advise",
    "tune",
    "gate",
    "choose",
    "report",
    "zoo",
    "doctor",
    "demo",
)
"""In the order of the help."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"litesmith {__version__}")
        raise typer.Exit


def _options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def command_line(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """Return the command line with these verbs."""
    app = typer.Typer(
        name="litesmith",
        help="Make a LiteRT / TensorFlow Lite model small and fast on the device that runs it, and prove it by measuring.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for verb in verbs:
        importlib.import_module(f"litesmith.cli.{verb}").register(app)
        if verb in RUNNING and (command := app.registered_commands[-1].callback):
            app.registered_commands[-1].callback = with_custom_ops(with_delegate(command))
    return app


def main() -> None:
    """Run the command line; the exit code is 0, 1 for a failure that is explained, 2 for wrong use, 130 for Ctrl-C."""
    from litesmith.progress import show

    named = sys.argv[1:2]
    try:
        with show():  # what another verb would need is not loaded
            command_line(named if named and named[0] in VERBS else () if named == ["--version"] else VERBS)()
    except LitesmithError as error:
        _tell(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt:
        print("litesmith: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        sys.stdout = None
        sys.exit(0)
    except OSError as error:
        problem = _about_a_file(error)
        if not problem:
            raise
        _tell(problem)
        sys.exit(1)


def _about_a_file(error: OSError) -> str:
    """Return what is wrong with a file that was named, or with its disk; nothing for all else, which needs its traceback."""
    if isinstance(error.filename, (str, bytes, os.PathLike)):
        return f"cannot read or write {os.fsdecode(error.filename)}: {error.strerror}"
    return f"cannot write: {error.strerror}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""


def _tell(problem: str) -> None:
    print(f"litesmith: {problem.encode('utf-8', 'replace').decode('utf-8')}", file=sys.stderr)
