# SPDX-License-Identifier: Apache-2.0
"""Recipes: the ordered steps that turn one Model into another, as text and as TOML, read and written without loss.

A step is a name with options; for quantization the name is the scheme, and rules for single operators follow it:

    channels(0.25) → prune(0.8, block=4x1) → int8(percentile, equalize, bias) + float:SOFTMAX

The same in TOML:

    [[step]]
    name = "int8"
    method = "percentile"
    recover = ["equalize", "bias"]
    rules = ["float:SOFTMAX"]

Other passes add their steps with ``register_step``; steps of folders that come later are looked for in those.
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litesmith.errors import RecipeError, UsageError
from litesmith.model import Model
from litesmith.optimize._calibrate import DEFAULT_METHOD
from litesmith.optimize._coverage import Coverage
from litesmith.optimize._quantize import quantize
from litesmith.optimize._range_methods import METHODS
from litesmith.optimize._recovery import RECOVERY_MODULES
from litesmith.optimize._scheme import SCHEMES, Rule
from litesmith.optimize._weight_ranges import WEIGHT_METHODS
from litesmith.result import Result

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """An option of a step.

    Attributes:
        kind: the type of its value: str, int, float, bool, or tuple for a list of words.
        choices: the values allowed, empty for any; a word in brackets that is a choice needs no ``name=``.
        default: what it is when it is not given.
    """

    kind: type
    choices: tuple[str, ...] = ()
    default: Value | None = None


class Covered(typing.Protocol):
    """What a step makes that can tell what became of each layer or operator."""

    @property
    def model(self) -> Model:
        """The model after the step."""

    @property
    def coverage(self) -> Result | None:
        """What was done and what was not, and why; None where there is nothing to say."""


@dataclass(frozen=True)
class StepKind:
    """A kind of step: its options, which of them an unnamed number sets, what it does, and when it may come.

    A step with a ``stage`` may not follow one of a later stage. One that ``trains`` is given the samples to train on.
    ``check`` raises UsageError where values make no sense, so that a recipe that cannot work is refused before it runs.
    """

    options: Mapping[str, Option]
    apply: Callable[[Model, Step, Any], Model | Covered]
    number: str = ""
    takes_rules: bool = False
    stage: int | None = None
    trains: bool = False
    check: Callable[[Step], None] | None = None


QUANTIZING = 40
"""The stage of quantization: what changes shapes, zeros or shared values comes before, how they are stored after."""
_KINDS: dict[str, StepKind] = {}
_ELSEWHERE = {"fix": "litesmith.targets._recipe_step", "train": "litesmith.train._recipe_step"}
"""Steps that are made of more than this folder has: the module that registers them, imported when they are named."""


def register_step(name: str, kind: StepKind) -> None:
    """Make a step known by its name."""
    _KINDS[name] = kind


@dataclass(frozen=True)
class Step:
    """One step: its name and the options that are given; those not given have their defaults."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        kind = _kind(self.name)
        if self.rules and not kind.takes_rules:
            raise RecipeError(f"the step {self.name!r} takes no rules, but {self.rules[0]} is given")
        object.__setattr__(self, "options", {key: _checked(self.name, key, v) for key, v in self.options.items()})
        if kind.check is not None:
            try:
                kind.check(self)
            except UsageError as error:
                raise RecipeError(f"the step {str(self)!r} makes no sense: {error}") from error

    def get(self, option: str) -> Any:
        """Return the value of an option, given or default."""
        return self.options.get(option, _kind(self.name).options[option].default)

    @property
    def quantizes(self) -> bool:
        """Whether numbers have fewer bits after it; "relaxed" changes none."""
        return (self.name in SCHEMES and self.name != "relaxed") or "qat" in self.options

    def __str__(self) -> str:
        words = [_option_text(self.name, key, value) for key, value in self.options.items()]
        inner = f"({', '.join(words)})" if words else ""
        return " + ".join([f"{self.name}{inner}", *map(str, self.rules)])

    def __hash__(self) -> int:
        return hash(str(self))


def _kind(name: str) -> StepKind:
    if name not in _KINDS and name in _ELSEWHERE:
        importlib.import_module(_ELSEWHERE[name])
    if name not in _KINDS:
        raise RecipeError(f"there is no step {name!r}; there are {', '.join(sorted({*_KINDS, *_ELSEWHERE}))}")
    return _KINDS[name]


def _checked(step: str, key: str, value: Any) -> Value:
    options = _kind(step).options
    if key not in options:
        known = ", ".join(options) or "none"
        raise RecipeError(f"the step {step!r} has no option {key!r}; it has {known}")
    option = options[key]
    if option.kind is tuple:
        words = _words(f"{key} of {step!r}", value)
        unknown = [word for word in words if option.choices and word not in option.choices]
        if unknown:
            raise RecipeError(f"{key} of {step!r} cannot be {unknown[0]!r}; choose from {', '.join(option.choices)}")
        return words
    if option.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not option.kind:
        raise RecipeError(f"{key} of {step!r} must be a {option.kind.__name__}, not {value!r}")
    if option.choices and value not in option.choices:
        raise RecipeError(f"{key} of {step!r} cannot be {value!r}; choose one of {', '.join(option.choices)}")
    return typing.cast(Value, value)


def _words(what: str, value: Any) -> tuple[str, ...]:
    """Return a list of words, or a single one as such a list."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise RecipeError(f'{what} must be a list of words, such as ["one", "other"], not {value!r}')


def _option_text(step: str, key: str, value: Value) -> str:
    kind = _kind(step)
    option = kind.options[key]
    if isinstance(value, tuple):
        bare = all(_owner(kind, word) == key for word in value)
        return ", ".join(value) if bare and value else f"{key}={'/'.join(value)}"
    if isinstance(value, bool):
        return f"{key}={'yes' if value else 'no'}"
    if isinstance(value, str):
        return value if option.choices and _owner(kind, value) == key else f"{key}={value}"
    short = f"{value:g}"  # 4 for 4.0, but 1e+06 for a million
    number = short if isinstance(value, float) and float(short) == value else repr(value)
    return number if key == kind.number else f"{key}={number}"


def _owner(kind: StepKind, word: str) -> str | None:
    """Return the option that a bare word belongs to: the first that has it among its choices."""
    return next((key for key, option in kind.options.items() if word in option.choices), None)


@dataclass(frozen=True)
class Recipe:
    """Steps in order.

    Example:
        >>> recipe = Recipe.parse("int8(percentile, samples=100) + float:SOFTMAX")
        >>> str(recipe)
        'int8(percentile, samples=100) + float:SOFTMAX'
        >>> Recipe.from_toml(recipe.to_toml()) == recipe
        True
    """

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " → ".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Read the text form; ``->`` stands for the arrow as well."""
        parts = [part.strip() for part in re.split(r"→|->", text)]
        if not any(parts):
            return cls(())
        return cls(tuple(_parse_step(part) for part in parts))

    @classmethod
    def from_toml(cls, source: str | Path) -> Recipe:
        """Read the TOML form, from text or from the file at a Path."""
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        text = _read(source) if isinstance(source, Path) else source
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RecipeError(f"the recipe is not TOML: {error}") from error
        unknown = [key for key in document if key != "step"]
        if unknown:
            raise RecipeError(f"a recipe has no {unknown[0]!r}; it has [[step]] tables only")
        tables = document.get("step", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise RecipeError("the recipe has no [[step]] tables; write [[step]] with two brackets before each step")
        return cls(tuple(map(_step_of_table, tables)))

    def to_toml(self, path: Path | None = None) -> str:
        """Return the TOML form; with ``path``, also write it there."""
        text = "\n".join(_table_of_step(step) for step in self.steps)
        if path is not None:
            path.write_text(text, encoding="utf-8")
        return text

    @property
    def trains(self) -> bool:
        """Whether a step trains, so that samples to train on are needed."""
        return any(_kind(step.name).trains for step in self.steps)

    @property
    def before_quantizing(self) -> Recipe | None:
        """The steps before the one that quantizes, which make the float model of it; None where none does.

        Example:
            >>> str(Recipe.parse("prune(0.5) → int8 → sparse").before_quantizing)
            'prune(0.5)'
        """
        number = next((n for n, step in enumerate(self.steps) if step.quantizes), None)
        return None if number is None else Recipe(self.steps[:number])

    def apply(self, model: Model, data: Any = None, *, train: Any = None) -> Model:
        """Return the model after all steps.

        Args:
            model: to start with.
            data: samples for the steps that need some, such as for calibration.
            train: samples for the steps that train; ``data`` by default.
        """
        return self.apply_with_coverage(model, data, train=train)[0]

    def apply_with_coverage(
        self, model: Model, data: Any = None, *, train: Any = None
    ) -> tuple[Model, Coverage | None]:
        """Return the model after all steps, and the coverage of the one that quantizes; same arguments as ``apply``."""
        coverage = None
        for _, made, found in self.applied(model, data, train=train):
            model = made
            coverage = found if isinstance(found, Coverage) else coverage
        return model, coverage

    def applied(
        self, model: Model, data: Any = None, *, train: Any = None
    ) -> Iterator[tuple[Step, Model, Result | None]]:
        """Yield each step with the model after it and what it reports; same arguments as ``apply``."""
        self.check_order()
        for step in self.steps:
            kind = _kind(step.name)
            made = kind.apply(model, step, train if kind.trains and train is not None else data)
            model, coverage = (made, None) if isinstance(made, Model) else (made.model, made.coverage)
            yield step, model, coverage

    def in_order(self) -> Recipe:
        """Return the recipe with its steps in the order in which none undoes another.

        Example:
            >>> str(Recipe.parse("int8 → cluster(32) → prune(0.8)").in_order())
            'prune(0.8) → cluster(32) → int8'
        """
        stage, staged = 0, []
        for step in self.steps:
            own = _kind(step.name).stage
            stage = stage if own is None else own
            staged.append((stage, step))
        return Recipe(tuple(step for _, step in sorted(staged, key=lambda pair: pair[0])))

    def check_order(self) -> None:
        """Raise where a step would undo one before it."""
        staged = [step for step in self.steps if _kind(step.name).stage is not None]
        for before, after in itertools.pairwise(staged):
            if (_kind(before.name).stage or 0) > (_kind(after.name).stage or 0):
                raise RecipeError(
                    f"the step {after.name!r} comes after {before.name!r}, which would undo it or stand in its way; put "
                    f"{after.name!r} first: {self.in_order()}"
                )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecipeError(f"the recipe {str(path)!r} cannot be read: {why}") from None


def _parse_step(text: str) -> Step:
    head, *rules = [part.strip() for part in text.split(" + ")]
    match = re.fullmatch(r"([\w.-]+)\s*(?:\((.*)\))?", head, re.DOTALL)
    if match is None:
        raise RecipeError(f"{head!r} is not a step; write name or name(option, option=value)")
    kind = _kind(match[1])
    options: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        key, value = _parse_word(match[1], kind, word)
        if isinstance(value, tuple) and key in options:
            value = (*options[key], *value)
        elif key in options:
            raise RecipeError(f"the step {match[1]!r} has two values for {key}: {options[key]!r} and {value!r}")
        options[key] = value
    try:
        return Step(match[1], options, tuple(map(Rule.parse, rules)))
    except UsageError as error:
        raise RecipeError(str(error)) from error


def _parse_word(step: str, kind: StepKind, word: str) -> tuple[str, Any]:
    key, equals, text = (part.strip() for part in word.partition("="))
    if not equals:
        owner = _owner(kind, word)
        if owner is not None:
            return owner, (word,) if kind.options[owner].kind is tuple else word
        if kind.number and re.fullmatch(r"[-+.\deE]+", word):
            return kind.number, _number(step, kind.number, word, kind.options[kind.number].kind)
        raise RecipeError(f"the step {step!r} has no option {word!r}; it has {', '.join(kind.options) or 'none'}")
    if key not in kind.options:
        raise RecipeError(f"the step {step!r} has no option {key!r}; it has {', '.join(kind.options) or 'none'}")
    expected = kind.options[key].kind
    if expected is tuple:
        return key, tuple(filter(None, text.split("/")))
    if expected is bool:
        if text not in ("yes", "no"):
            raise RecipeError(f"{key} of {step!r} is yes or no, not {text!r}")
        return key, text == "yes"
    return key, text if expected is str else _number(step, key, text, expected)


def _number(step: str, key: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise RecipeError(f"{key} of {step!r} must be a number, not {text!r}") from None


def _step_of_table(table: Mapping[str, Any]) -> Step:
    options = dict(table)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise RecipeError('a [[step]] needs a name, such as name = "int8"')
    rules = _words(f"the rules of {name!r}", options.pop("rules", []))
    try:
        return Step(name, options, tuple(map(Rule.parse, rules)))
    except UsageError as error:
        raise RecipeError(str(error)) from error


def _table_of_step(step: Step) -> str:
    lines = ["[[step]]", f"name = {_toml(step.name)}"]
    lines += [f"{key} = {_toml(value)}" for key, value in step.options.items()]
    if step.rules:
        lines.append(f"rules = {_toml(tuple(map(str, step.rules)))}")
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in value)
        return f'"{escaped}"'
    return repr(value)


# -------------------------------------------------------------------- quantization as a step

_STATIC_OPTIONS = {
    "method": Option(str, tuple(METHODS), DEFAULT_METHOD),
    "weights": Option(str, WEIGHT_METHODS, "minmax"),
    "recover": Option(tuple, tuple(RECOVERY_MODULES), ()),
    "samples": Option(int),
    "io": Option(str, ("float", "int8", "int16"), "float"),
    "head": Option(str, ("auto", "same", "float", "dynamic", "weights8"), "auto"),
    "per_channel": Option(bool, (), True),
    "strict": Option(bool, (), False),
}
_STORED_OPTIONS = {key: _STATIC_OPTIONS[key] for key in ("weights", "recover", "per_channel", "strict")}


def quantize_arguments(step: Step) -> dict[str, Any]:
    """Return the keyword arguments of ``quantize`` that a quantization step stands for."""
    named = {"weights": "weight_ranges"}
    arguments: dict[str, Any] = {named.get(key, key): value for key, value in step.options.items()}
    return {"scheme": step.name, "rules": step.rules, **arguments}


def _apply_quantize(model: Model, step: Step, data: Any) -> Covered:
    return quantize(model, data=data, **quantize_arguments(step))


def _register_schemes(names: Sequence[str]) -> None:
    for name in names:
        options = _STATIC_OPTIONS if SCHEMES[name].is_static or name == "float" else _STORED_OPTIONS
        register_step(name, StepKind(options, _apply_quantize, takes_rules=True, stage=QUANTIZING))


_register_schemes(tuple(SCHEMES))
