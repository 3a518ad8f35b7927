"""Expectations over discrete random variables, and their gradients, from distinct samples.

The public names are in :mod:`swor.public`. They are loaded, and torch with them, when the first of them
is used, so that ``swor --help`` does not wait for torch.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("swor")

# Without NumPy, which swor does not use, torch warns when it is imported.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

if TYPE_CHECKING:
    from swor.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """Load the public names, all at once, when one is used that is not there yet."""
        if name != "__all__" and name.startswith("__"):  # asked for by tools, such as __wrapped__
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = import_module("swor.public")
        globals().update({each: getattr(public, each) for each in (*public.__all__, "__all__")})
        if name not in globals():  # which has the modules of the package, too
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
