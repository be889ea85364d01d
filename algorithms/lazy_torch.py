"""torch, imported when something of it is first used.

An algorithm's options stand beside its loss and are checked before anything heavy is imported:
`from algorithms import lazy_torch as torch`. A file with a plain `import torch` works as well, and
shows a mistake on the command line some seconds later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import *  # noqa: F403


def __getattr__(name: str) -> Any:
    import torch

    return getattr(torch, name)
