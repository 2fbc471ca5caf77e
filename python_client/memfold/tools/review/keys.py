"""A person's input: one key at a time, and an end at any time."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

import click


class Keys:
    """One key at a time from a terminal, one line at a time from anything else."""

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()

    def ask(self, prompt: str) -> str | None:
        """A key in lower case ("" for Enter), or a whole line if it is not a terminal; None at the end of the input."""
        click.echo(prompt, nl=False)
        if not self.terminal:
            line = sys.stdin.readline()
            click.echo()
            return line.strip().lower() if line else None
        try:
            # Drop keys typed before the pair was visible.
            pressed = click.getchar()
        except EOFError:
            click.echo()
            return None
        # An arrow or function key sends several characters; the first is not one of our keys.
        key = "" if pressed[:1] in "\r\n" else pressed[:1].lower()
        click.echo(key if key.isprintable() else "")
        return key

    def letters(self, prompt: str) -> str | None:
        """Letters in lower case, up to Enter; None at the end of the input."""
        if not self.terminal:
            return self.ask(prompt)
        click.echo(prompt, nl=False)
        made = ""
        while True:
            try:
                pressed = click.getchar()
            except EOFError:
                click.echo()
                return None
            if pressed[:1] in "\r\n":
                click.echo()
                return made
            if pressed in "\x7f\b":
                made = made[:-1]
            elif len(pressed) == 1 and pressed.isprintable():
                made += pressed.lower()
                click.echo(pressed, nl=False)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A closed terminal and a request to end act like Ctrl-C: leases are given back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    earlier = {name: signal.signal(getattr(signal, name), stop) for name in names}
    try:
        yield
    finally:
        for name, handler in earlier.items():
            signal.signal(getattr(signal, name), handler)
