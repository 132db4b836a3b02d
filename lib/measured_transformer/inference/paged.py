"""A paged cache: requests of any length share one pool, and none reserves room it may never need.

A page holds the keys and values of a fixed number of tokens. Each request has a *block table*, the list of its
pages in the order of its tokens; the pages themselves may lie anywhere. When the last page is full, any free
page becomes the next; when a request ends, its pages are free again.

Source: Kwon et al. (2023), "Efficient Memory Management for Large Language Model Serving with PagedAttention".
Their kernel reads pages where they lie. Here each step gathers them first, which costs a copy and is otherwise
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.models.cache import KeyValueCache
from measured_transformer.models.token_positions import TokenPositions
from measured_transformer.parts.cache import KeyValues


class PageTable:
    """Tracks which page holds which tokens of which request, without any tensors.

    Attributes:
        n_pages, page_size: pages in all, and tokens that a page holds.
        pages: request -> its pages, in the order of its tokens (the block table).
        lengths: request -> tokens held.

    >>> table = PageTable(n_pages=4, page_size=2)
    >>> table.grow("a", 3)
    >>> table.grow("b", 1)
    >>> table.grow("a", 2)
    >>> table.pages, table.slots("a")
    ({'a': [0, 1, 3], 'b': [2]}, [0, 1, 2, 3, 6])
    """

    def __init__(self, n_pages: int, page_size: int) -> None:
        """Make a table with all pages free.

        Raises:
            ValueError: unless both numbers are positive.
        """
        if n_pages < 1 or page_size < 1:
            raise ValueError(
                f"expected at least one page of at least one token, got {n_pages}, {page_size}"
            )
        self.n_pages, self.page_size = n_pages, page_size
        self.pages: dict[str | int, list[int]] = {}
        self.lengths: dict[str | int, int] = {}
        self._free = list(range(n_pages))

    @property
    def free_pages(self) -> int:
        """The number of free pages."""
        return len(self._free)

    def missing(self, request: str | int, tokens: int) -> int:
        """The number of pages a request still needs for so many further tokens."""
        held = self.lengths.get(request, 0)
        return -(-(held + tokens) // self.page_size) - len(self.pages.get(request, ()))

    def grow(self, request: str | int, tokens: int) -> None:
        """Make room for further tokens of a request, which may be new.

        Raises:
            ValueError: when there are not enough free pages; nothing has changed then.
        """
        needed = self.missing(request, tokens)
        if needed > self.free_pages:
            raise ValueError(
                f"request {request!r} needs {needed} pages for {tokens} more tokens, "
                f"but {self.free_pages} of {self.n_pages} are free"
            )
        self.pages.setdefault(request, []).extend(self._free[:needed])
        del self._free[:needed]
        self.lengths[request] = self.lengths.get(request, 0) + tokens

    def release(self, request: str | int) -> None:
        """Free all pages of a request."""
        self._free.extend(self.pages.pop(request))
        del self.lengths[request]

    def slots(self, request: str | int) -> list[int]:
        """The slot of each token of a request: page times page size plus its place in the page."""
        pages, size = self.pages[request], self.page_size
        return [pages[t // size] * size + t % size for t in range(self.lengths[request])]

    @property
    def wasted(self) -> int:
        """The number of empty places in allocated pages."""
        given = sum(len(pages) for pages in self.pages.values()) * self.page_size
        return given - sum(self.lengths.values())


class PagedCache:
    """The keys and values of all layers and requests, in pages.

    Attributes:
        table: which page is whose.

    >>> import torch
    >>> from measured_transformer import Config, Decoder
    >>> model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2)).eval()
    >>> cache = PagedCache(1, n_pages=8, page_size=4)
    >>> with torch.no_grad():
    ...     first = model(torch.tensor([[1, 2, 3]]), cache=cache.rows(["a"], 3))
    ...     other = model(torch.tensor([[4, 5, 6, 7, 8]]), cache=cache.rows(["b"], 5))
    ...     both = model(torch.tensor([[9], [9]]), cache=cache.rows(["a", "b"], 1))
    >>> both.shape, cache.table.pages
    (torch.Size([2, 1, 10]), {'a': [0], 'b': [1, 2]})
    """

    def __init__(self, n_layers: int, *, n_pages: int, page_size: int = 16) -> None:
        """Make an empty cache; the pool of a layer is made when the first keys arrive.

        Raises:
            ValueError: unless all numbers are positive.
        """
        self.table = PageTable(n_pages, page_size)
        self._pools = [_Pool(n_pages * page_size) for _ in range(n_layers)]

    def rows(self, requests: Sequence[str | int], tokens: int) -> KeyValueCache:
        """The cache of a batch for one call of the model, which reads so many further tokens of each request.

        Give it to one call only; the next one needs rows of its own.

        Raises:
            ValueError: when there are not enough free pages; no request has grown then.
        """
        needed = sum(self.table.missing(request, tokens) for request in requests)
        if needed > self.table.free_pages:
            raise ValueError(
                f"expected at least {needed} free pages, there are {self.table.free_pages}"
            )
        for request in requests:
            self.table.grow(request, tokens)
        return _Rows(self._pools, [self.table.slots(request) for request in requests], tokens)

    def release(self, request: str | int) -> None:
        """Free the pages of a request."""
        self.table.release(request)

    @property
    def bytes(self) -> int:
        """Bytes of the tokens held, of all layers."""
        return self._token_bytes * sum(self.table.lengths.values())

    @property
    def given_bytes(self) -> int:
        """Bytes of all allocated pages, empty places included."""
        size = self.table.page_size
        return self._token_bytes * size * sum(len(pages) for pages in self.table.pages.values())

    @property
    def _token_bytes(self) -> int:
        return sum(pool.token_bytes for pool in self._pools)


class _Pool:
    """All places of one layer: (slot, head, d_head), for keys and for values."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def token_bytes(self) -> int:
        if self.keys is None:
            return 0
        values = 0 if self.values is None else self.values[0].numel()
        return (self.keys[0].numel() + values) * self.keys.element_size()

    def buffers(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Places for such keys and values, (batch, head, new, d_head); their widths may differ."""
        if self.keys is None or self.values is None:
            self.keys, self.values = (
                one.new_zeros(self.slots, one.shape[1], one.shape[3]) for one in (keys, values)
            )
        return self.keys, self.values


class _Rows(KeyValueCache):
    """Some requests side by side, their ends aligned, as the model expects a batch of prompts."""

    def __init__(self, pools: Sequence[_Pool], slots: Sequence[list[int]], new: int) -> None:
        super().__init__(0)
        longest = max(map(len, slots))
        # Slot 0 stands in for what a shorter request has not: it is masked.
        index = torch.tensor([[0] * (longest - len(row)) + row for row in slots])
        before = torch.tensor([len(row) - new for row in slots])
        past = longest - new
        self.layers = tuple(_PagedKeyValues(pool, index, past) for pool in pools)
        if past:
            keys = torch.arange(past) - (past - before[:, None])
            real = keys >= 0
            self.positions = TokenPositions(
                queries=keys[:, -1:].clamp(min=0),
                keys=keys.clamp(min=0),
                padding_mask=None if bool(real.all()) else real,
                below=past,
            )


class _PagedKeyValues(KeyValues):
    """One layer's keys and values of some requests."""

    def __init__(self, pool: _Pool, index: Int[Tensor, "row key"], past: int) -> None:
        super().__init__()
        self.pool, self.index, self.length = pool, index, past

    @property
    def keys(self) -> Float[Tensor, "batch head key d_head"]:
        return self._gathered(self.pool.keys)

    @property
    def values(self) -> Float[Tensor, "batch head key d_head"]:
        return self._gathered(self.pool.values)

    def extend(
        self,
        keys: Float[Tensor, "batch head new d_head"],
        values: Float[Tensor, "batch head new d_value"],
    ) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]:
        """Write those of the next positions into their pages, and gather all."""
        new = self.index.shape[1] - self.length
        if keys.shape[0] != len(self.index) or keys.shape[2] != new:
            raise ValueError(
                f"these rows expect {len(self.index)} requests and {new} new tokens each, got "
                f"{keys.shape[0]} and {keys.shape[2]}; each call needs rows of its own"
            )
        pooled_keys, pooled_values = self.pool.buffers(keys, values)
        slots = self.index[:, -new:].to(keys.device)
        pooled_keys[slots] = keys.detach().transpose(1, 2)
        pooled_values[slots] = values.detach().transpose(1, 2)
        self.length += new
        return self.keys, self.values

    def crop(self, length: int) -> None:
        """Do nothing: rows serve a single call, so nothing is taken back."""

    def reorder(self, rows: Int[Tensor, "batch"]) -> None:
        """Not possible.

        Raises:
            ValueError: always.
        """
        raise ValueError("rows of pages cannot be reordered: ask for the requests in another order")

    def _gathered(self, pooled: Tensor | None) -> Tensor:
        if pooled is None:
            raise ValueError("this cache is empty: extend it before reading keys or values")
        return pooled[self.index[:, : self.length].to(pooled.device)].transpose(1, 2)
