"""The base of all parts: an `nn.Module` whose weights and parts are found without a search.

`nn.Module` keeps weights and parts in tables of its own. Python looks for `block.attention` among the plain
attributes first, fails, and only then calls a function that goes through the tables. A step of decoding asks
some forty times in each block; in a small model the searches take longer than the arithmetic. `Part` remembers
in which table a name was first put, and reads it there.

Nothing else is different: the tables are those of `nn.Module`, and what is put there in whatever way (tied or
stacked weights, a part that was replaced) is what is read.

>>> class Pair(Part):
...     def __init__(self):
...         super().__init__()
...         self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
>>> pair = Pair()
>>> pair.first is pair.get_submodule("first")
True
"""

from __future__ import annotations

from typing import Any

from torch import nn


class Part(nn.Module):
    """A module whose weights and parts are found about as fast as plain attributes.

    Attributes:
        keeps_state: whether a call leaves something in the module for the next one, see `parts.light`.
    """

    keeps_state: bool = False

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep the value where `nn.Module` keeps it, and remember the name of a weight or part."""
        super().__setattr__(name, value)
        if isinstance(value, nn.Module | nn.Parameter) and not hasattr(Part, name):
            table = "_modules" if isinstance(value, nn.Module) else "_parameters"
            setattr(Part, name, _Kept(name, table))


class _Kept:
    """Reads one name in one table of a module.

    It has no `__set__`, so a plain attribute of the module comes first, and assignments go to `nn.Module`.
    """

    def __init__(self, name: str, table: str) -> None:
        self.name, self.table = name, table

    def __get__(self, module: nn.Module | None, kind: type | None = None) -> Any:
        if module is None:
            return self
        try:
            return module.__dict__[self.table][self.name]
        except KeyError:  # it lies in another table, or there is no such attribute
            return nn.Module.__getattr__(module, self.name)
