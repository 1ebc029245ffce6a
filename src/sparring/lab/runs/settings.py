"""Typed settings: dataclass fields with help text, group, choices and range, checked by pydantic.

From TOML and flags, and back.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from sparring.lab.errors import UserError, option
from sparring.lab.untrusted import read_text, reason

MAX_INTEGER = 2**31 - 1  # for integers without a limit of their own
NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


@dataclass
class Setting:
    """A field of a dataclass.

    Args:
        default: The value of a setting that is not set.
        help: The text that ``--help`` shows.
        group: The group of flags that ``--help`` lists it in.
        changes: Whether the result of a run depends on it.
        choices: The only words that are allowed, if it can be text.
        low: The smallest number that is allowed.
        high: The largest number that is allowed.
        name: The name of the field.
        types: The types of the field's annotation, without None.
    """

    default: Any
    help: str
    group: str
    changes: bool = True
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    name: str = ""
    types: tuple[type, ...] = ()

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def parse(self, value: Any, place: str = "") -> Any:
        """Convert a value, which may be text, to the setting's type. ``place`` begins the error message.

        Raises:
            UserError: The value has another type or is out of range.
        """
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            words = [NAMES[t] for t in self.types if t is not str or not self.choices]
            expected = " or ".join([*words, *self.choices])
            for problem in error.errors(include_url=False):
                limits = problem.get("ctx", {})
                if "ge" in limits or "le" in limits:
                    value = problem["input"]  # as a number
                    high = limits.get("le") if self.high is None else self.high
                    expected = f"at least {self.low}" if "ge" in limits else f"at most {high}"
                elif "pattern" in limits:
                    expected = "text without null characters"
            name = f"{place}{self.name}" if place else option(self.name)
            raise UserError(f"{name} must be {expected}, got {value!r:.80}") from None

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        """The pydantic type. Built when it is first needed, since 60 of them take time."""
        limits: Any = {"strict": True, "ge": self.low, "le": self.high}
        integer_limits = limits | {"le": MAX_INTEGER if self.high is None else self.high}
        types: dict[type, Any] = {
            int: Annotated[int, Field(**integer_limits), BeforeValidator(_from_text)],
            float: Annotated[float, Field(**limits, allow_inf_nan=False), BeforeValidator(_from_text)],
            bool: bool,
            str: Literal[self.choices] if self.choices else Annotated[str, Field(pattern="^[^\0]*$")],
        }
        union: Any = Union[(None, *(types[t] for t in self.types))]
        return TypeAdapter(union, config=ConfigDict(coerce_numbers_to_str=True))


def setting(default: Any, help: str, group: str, **facts: Any) -> Any:
    """Declare a field of a dataclass that is a `Setting`."""
    return field(default=default, metadata={"setting": Setting(default, help, group, **facts)})


def settings_of(cls: type) -> dict[str, Setting]:
    """The settings of a dataclass by name."""
    settings = {}
    for entry in fields(cls):
        value: Setting = entry.metadata["setting"]
        value.name = entry.name
        value.types = tuple(t for t in get_args(entry.type) or (entry.type,) if t is not NoneType)
        settings[entry.name] = value
    return settings


def _from_text(value: Any) -> Any:
    """Convert text to a number, and a float without fraction to an integer: ``1e3`` is an integer, too."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def read_toml(path: Path, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Read a file's values, converted to the types of the settings."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise UserError(f"{path}: not TOML: {reason(error)}") from None
    values = {name.replace("-", "_"): value for name, value in values.items()}
    if unknown := [name for name in values if name not in settings]:
        raise UserError(f"{path}: no setting named {', '.join(unknown)}; known: {', '.join(settings)}")
    return {name: settings[name].parse(value, f"{path}: ") for name, value in values.items()}


def to_flags(config: Any, settings: Mapping[str, Setting], without: Sequence[str] = ()) -> list[str]:
    """The flags that give the values of a config that are not the defaults."""
    words = []
    for name, known in settings.items():
        value = getattr(config, name)
        if name in without or value == known.default:
            continue
        if isinstance(value, bool):
            words.append(known.flag if value else f"--no-{known.flag[2:]}")
        else:
            words += [known.flag, short(value)]
    return words


def to_toml(config: Any, settings: Mapping[str, Setting], without: Sequence[str] = ()) -> str:
    """The values of a config that are set, as a TOML file."""
    values = {name: getattr(config, name) for name in settings if name not in without}
    lines = [(name, json.dumps(value, ensure_ascii=False)) for name, value in values.items()]
    return "".join(f"{name} = {value}\n" for name, value in lines if value != "null")


def short(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)
