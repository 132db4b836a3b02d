"""The dictionary of what was captured, in which a value that follows from another waits until it is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Later:
    """A value that is computed when it is read.

    Attributes:
        source: a copy, of the dictionary's own, of what it is a function of.
        function: that function.
    """

    source: Tensor
    function: Callable[[Tensor], Tensor]

    def value(self) -> Tensor:
        """The value."""
        with torch.no_grad():
            return self.function(self.source)


class Captured(dict[str, Any]):
    """A dictionary from the names of taps to their values (with every call kept, to lists of them).

    Some values are put off (`put_off`): they are computed when they are first read, and kept from then on. In
    everything else it is a plain dictionary, and it is copied and saved as one.

    >>> seen = Captured(scores=torch.zeros(1, 4))
    >>> seen.put_off("pattern", Later(torch.zeros(1, 4), lambda each: each.softmax(-1)))
    >>> len(seen), seen.waiting
    (2, ['pattern'])
    >>> seen["pattern"]
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    >>> seen.waiting
    []
    """

    def put_off(self, name: str, later: Later) -> None:
        """Have the value of this name computed when it is first read."""
        super().__setitem__(name, later)

    @property
    def waiting(self) -> list[str]:
        """The names of the values that nobody has read yet."""
        return [name for name, value in super().items() if isinstance(value, Later)]

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Later):
            value = value.value()
            super().__setitem__(name, value)
        return value

    def __iter__(self) -> Iterator[str]:  # with a method of its own, dict(seen) asks for each value
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or the default where there is none."""
        try:
            return self[name]
        except KeyError:
            return default

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The value, which is the default from now on where there was none."""
        return self[name] if name in self else super().setdefault(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """The value, which is taken out; or the default where there is none."""
        if name in self:
            self[name]
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        """The last name with its value, which are taken out."""
        return self._read().popitem()

    def values(self) -> Any:
        """All values."""
        return self._read().values()

    def items(self) -> Any:
        """All names with their values."""
        return self._read().items()

    def copy(self) -> dict[str, Any]:
        """A plain dictionary of the same values."""
        return dict(self)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {**other, **self}

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # As a kind that PyTorch loads without trusting the file (`weights_only`).
        return OrderedDict, (), None, None, iter(self.items())

    def _read(self) -> Any:
        """The plain methods of a dictionary, once every value is there."""
        for name in self.waiting:
            self[name]
        return super()
