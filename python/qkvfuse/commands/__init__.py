"""The commands of `python -m qkvfuse`, one module each; `qkvfuse.__main__` has their options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A mistake of the user's: one sentence, printed without a traceback; exit code 2."""


class CheckFailed(Exception):
    """The library or a baseline has computed something wrong; exit code 1."""


@contextmanager
def refusals() -> Iterator[None]:
    """What the library refuses inside becomes a `UsageError` of the same sentence."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    except MemoryError as error:
        raise UsageError(f"memory: is not enough: {error}") from error
