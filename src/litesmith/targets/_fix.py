# SPDX-License-Identifier: Apache-2.0
"""Apply the rewrites that help a target, each only if the model still gives the same outputs in LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from litesmith.errors import LitesmithError
from litesmith.model import Model, modernize
from litesmith.optimize._equal import TOLERANCE, difference
from litesmith.progress import task
from litesmith.targets._check import Compatibility, compat
from litesmith.targets._rewrites import fix_batch, fold_shapes, integer_border, merge_slices, substitute
from litesmith.targets._rules import rule_table
from litesmith.targets._substitutes import SUBSTITUTIONS

Rewrite = Callable[[Model], "Model | None"]


@dataclass(frozen=True)
class Fixed:
    """A model with rewrites that help a target, and what it is now; ``found`` says what was done and what was not."""

    model: Model
    found: Compatibility


def fix(model: Model | str | Path, *, target: str) -> Fixed:
    """Apply the safe rewrites that help a model onto a target.

    A fixed batch, shapes that are constants, integer inputs and outputs where the model converts them itself, and
    operators written as others that the target has. After each one, the model before and the model after run in LiteRT on
    the same random inputs; a rewrite that changes an output is left out, and said.

    Example:
        >>> import litesmith
        >>> from litesmith.targets import fix
        >>> fix(litesmith.samples.model(), target="tflite-micro").found.applied
        ()
    """
    original = model if isinstance(model, Model) else Model.load(model)
    current, applied, refused = original, list[str](), list[str]()
    with task(f"Rewriting for {target}") as advance:
        for says, rewrite in _rewrites(target):
            made = rewrite(current)
            advance(1)
            if made is None:
                continue
            made = modernize(made, drop_orphans=True)
            problem = _changed(original, made)
            if problem:
                refused.append(f"{says}: {problem}")
            else:
                current = made
                applied.append(says)
    found = compat(current, target=target)
    named = str(original.source or original.description or "model")
    current = replace(current, source=None) if applied else current  # no file holds it
    return Fixed(current, replace(found, model=named, applied=tuple(applied), refused=tuple(refused)))


def _rewrites(target: str) -> Iterator[tuple[str, Rewrite]]:
    """Yield the rewrites in their order; each looks at what does not fit by then."""
    table = rule_table(target)
    checked: list[tuple[Model, Compatibility]] = []  # the last model and its verdict, which most rewrites share

    def needed(kind: str, model: Model) -> list[int]:
        if not checked or checked[-1][0] is not model:
            checked[:] = [(model, compat(model, target=target))]
        return [o.index for o in checked[-1][1].operators if o.kind == kind and not o.fits and o.subgraph == 0]

    def border(model: Model) -> Model | None:
        return integer_border(model) if needed("QUANTIZE", model) or needed("DEQUANTIZE", model) else None

    def reshaped(model: Model) -> bool:
        return bool(needed("RESHAPE", model) or needed("SHAPE", model))

    static = any(rule.test == "static" for rule in table.rules)
    yield "a fixed batch", lambda model: fix_batch(model) if static or reshaped(model) else None
    yield "shapes as constants", lambda model: fold_shapes(model) if reshaped(model) else None
    yield "integer inputs and outputs", border
    yield "slices of slices as one", lambda model: merge_slices(model, needed("STRIDED_SLICE", model))
    for substitution in SUBSTITUTIONS:
        if not substitution.uses <= table.supported:
            continue
        yield substitution.says, lambda model, s=substitution: substitute(model, s, needed(s.kind, model))  # type: ignore[misc]


def _changed(before: Model, after: Model) -> str:
    """Return what is wrong with a rewritten model, nothing when it gives the same outputs."""
    try:
        after.verify()
        found = difference(before, after)
    except LitesmithError as error:
        return str(error)
    return "" if found <= TOLERANCE else f"the outputs would change by {found:.2g} of their span"
