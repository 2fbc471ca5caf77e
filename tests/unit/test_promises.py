"""What docs/stability.md promises outside of SQL, pinned: SQLSTATEs, public Python names, commands and exit codes.

A change shows as a difference to tests/data/promises.txt; ``pytest tests/unit/test_promises.py --pin`` rewrites it, for
review. (tests/sql/test_surface.py pins functions, tables, views and roles; tests/sql/test_export.py an export.)
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from memfold.client import errors
from memfold.tools import cli

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "tests" / "data" / "promises.txt"
# What the page lists; other names are of use to the commands alone. None: all that the module exports.
MODULES: dict[str, tuple[str, ...] | None] = {
    "memfold": None,
    "memfold.adopt": ("conflict_of", "conflict_of_async"),
    "memfold.client.embedding": None,
    "memfold.client.errors": tuple(
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and one.__module__.startswith("memfold")
    ),
    "memfold.client.facts": None,
    "memfold.client.judging": None,
    "memfold.client.tracing": ("enable", "disable"),
}
# They need their frameworks: their names are read, not imported.
FRAMEWORKS = ROOT / "python_client" / "memfold" / "agents"


def signature(function: Any) -> str:
    """Arguments with their defaults. Types are checked by mypy, and may become wider."""
    parameters = []
    for one in inspect.signature(function).parameters.values():
        # an object's default may show its address
        default = "..." if one.default is not one.empty and " at 0x" in repr(one.default) else one.default
        parameters.append(one.replace(annotation=one.empty, default=default))
    return str(inspect.Signature(parameters))


def described(name: str, found: Any) -> Iterator[str]:
    if not inspect.isclass(found):
        yield f"python {name}" + (signature(found) if inspect.isfunction(found) else "")
        return
    bases = ", ".join(base.__name__ for base in found.__bases__ if issubclass(base, Exception))
    yield f"python class {name}" + (f"({bases})" if bases else "")
    fields = {field.name for field in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
    fields |= set(getattr(found, "model_fields", ()))  # pydantic's
    yield from (f"python {name}.{field}" for field in fields)
    # their own and those of memfold's bases
    members = {
        member
        for base in found.__mro__
        if base.__module__.startswith("memfold") or base is found
        for member in vars(base)
    }
    for member in members - fields - {"from_row", "from_json"}:  # how the client makes them
        static, bound = inspect.getattr_static(found, member), getattr(found, member)
        if isinstance(static, property) and not member.startswith("_"):
            yield f"python {name}.{member}"
        elif inspect.isroutine(bound) and (
            not member.startswith("_") or (member == "__init__" and not fields)
        ):
            yield f"python {name}.{member}{signature(bound)}"


def python_names() -> Iterator[str]:
    known: dict[int, str] = {}
    for name, names in MODULES.items():
        module = importlib.import_module(name)
        for public in names or module.__all__:
            found = getattr(module, public)
            if first := known.get(id(found)):
                yield f"python {name}.{public}: {first}"
            elif public != "__version__":
                known[id(found)] = f"{name}.{public}"
                yield from described(f"{name}.{public}", found)
    for path in sorted(FRAMEWORKS.glob("[a-z]*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                for public in ast.literal_eval(node.value):
                    yield f"python memfold.agents.{path.stem}.{public}"


def commands(command: click.Command, path: str) -> Iterator[str]:
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from commands(below, f"{path} {name}")
    if isinstance(command, click.Group):
        return
    yield f"command {path}"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.hidden:
                continue
            word = "/".join([*parameter.opts, *parameter.secondary_opts])
        else:
            word = parameter.human_readable_name
        many = " ..." if parameter.nargs == -1 or getattr(parameter, "multiple", False) else ""
        default = parameter.to_info_dict()["default"]
        value = "" if default in (None, False, ()) or callable(default) else f" = {default}"
        yield f"command {path}: {word}{many}" + (" required" if parameter.required else value)


def exit_codes(error: type[click.ClickException] = click.ClickException) -> Iterator[str]:
    """Of click's own errors and those of memfold's commands."""
    if error.__module__.startswith("memfold.") or error in (click.ClickException, click.UsageError):
        yield f"exit code {error.exit_code}: {error.__name__}"
    for below in error.__subclasses__():
        yield from exit_codes(below)


def promises() -> list[str]:
    found = [f"sqlstate {code} {cls.__name__}" for code, cls in errors.CLASSES.items()]
    found += [*python_names(), *commands(cli.main, "memfold"), *exit_codes()]
    return sorted(set(found))


def test_what_is_promised_is_as_pinned(pytestconfig: pytest.Config) -> None:
    found = promises()
    kinds = {line.split()[0] for line in found}
    assert kinds == {"sqlstate", "python", "command", "exit"}
    if pytestconfig.option.pin:
        PINNED.write_text("\n".join(found) + "\n")
    pinned = PINNED.read_text().splitlines()
    gone, new = sorted(set(pinned) - set(found)), sorted(set(found) - set(pinned))
    assert (gone, new) == ([], []), (
        "if it is meant, and docs/stability.md allows it: pytest tests/unit/test_promises.py --pin, and review"
    )
