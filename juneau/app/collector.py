"""When Python looks for cycles: seldom, and never among what the start made.

A collection stops every tenant, the oldest generation's for 100 ms with ten thousand connections. Nothing
here leans on it: what a connection leaves behind goes by reference counts, unless its handler tied a knot.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_YOUNG: Final = 50_000
"""New containers before the young are looked through, 2 ms; Python's 700 come with a dozen connections."""
_MIDDLE: Final = 20
_OLD: Final = 50


@contextmanager
def seldom() -> Iterator[None]:
    """Enter it when the start is over."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
