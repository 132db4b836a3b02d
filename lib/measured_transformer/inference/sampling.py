r"""How the next token is drawn from the model's distribution: temperature, top-k, top-p, and the draw itself.

Each function takes logits and returns logits, with $-\infty$ where a token is out of the question. They are
applied in this order.

Sources: temperature: Ackley et al. (1985); top-k: Fan et al. (2018), "Hierarchical Neural Story Generation";
top-p, nucleus sampling: Holtzman et al. (2020), "The Curious Case of Neural Text Degeneration".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """Draw each token from the model's distribution, made sharper, flatter or shorter.

    The same state of the generator gives the same text, on whatever device the model is: one uniform number
    for each row and step is drawn on the generator's own device. A text for more tokens begins with the text
    for fewer.

    Attributes:
        generator: where the numbers come from: `torch.Generator().manual_seed(0)`.
        temperature: what the logits are divided by; small: nearly greedy, large: nearly uniform.
        top_k: how many of the likeliest tokens stay possible; all when None.
        top_p: the probability that the tokens that stay possible must have together; 1 keeps all.

    Raises:
        ValueError: when a number lies outside its range.
    """

    generator: torch.Generator
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.generator, torch.Generator):
            raise ValueError(
                "generator must be a torch.Generator, such as torch.Generator().manual_seed(0), got "
                f"{self.generator!r}"
            )
        _check_temperature(self.temperature)
        _check_top_p(self.top_p)
        if self.top_k is not None:
            _check_top_k(self.top_k)

    def logits(self, logits: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """The logits of the distribution that tokens are drawn from."""
        if self.temperature != 1:
            logits = with_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        return keep_top_p(logits, self.top_p)


def with_temperature(
    logits: Float[Tensor, "*row vocab"], temperature: float
) -> Float[Tensor, "*row vocab"]:
    r"""Divide by the temperature: probabilities become $p_i^{1/T}$, normalised anew.

    Where a quotient would be too large for the precision, the largest logit is taken off first, which changes
    no probability: a temperature however small takes the likeliest token.

    Raises:
        ValueError: when the temperature is not a positive number.

    >>> with_temperature(torch.tensor([0.0, 1.0]), 0.5)
    tensor([0., 2.])
    """
    _check_temperature(temperature)
    divided = logits / temperature
    below = logits - logits.amax(dim=-1, keepdim=True)
    # A temperature of almost nothing may itself be rounded to zero, and 0 / 0 is no number.
    shifted = torch.where(below == 0, below, below / temperature)
    overflow = (~divided.isfinite() & logits.isfinite()).any(dim=-1, keepdim=True)
    return torch.where(overflow, shifted, divided)


def keep_top_k(logits: Float[Tensor, "*row vocab"], k: int) -> Float[Tensor, "*row vocab"]:
    """Keep the `k` likeliest tokens, and those that are exactly as likely as the last of them.

    Raises:
        ValueError: when `k` is less than one.

    >>> keep_top_k(torch.tensor([0.0, 3.0, 1.0]), 2)
    tensor([-inf, 3., 1.])
    """
    _check_top_k(k)
    k = int(k)
    if k >= logits.shape[-1]:
        return logits
    least = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def keep_top_p(logits: Float[Tensor, "*row vocab"], p: float) -> Float[Tensor, "*row vocab"]:
    """Keep the fewest tokens, likeliest first, that have the probability `p` together; at least one.

    Raises:
        ValueError: when `p` does not lie in (0, 1].

    >>> keep_top_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.6).exp()
    tensor([0.5000, 0.3000, 0.0000])
    """
    _check_top_p(p)
    if p == 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    # What comes before the first is zero, but a difference of rounded numbers need not be.
    enough = (before >= p).index_fill(-1, order.new_zeros(1), False)
    return logits.masked_fill(enough.gather(-1, order.argsort(dim=-1)), -math.inf)


def draw(logits: Float[Tensor, "row vocab"], uniform: Float[Tensor, "row"]) -> Int[Tensor, "row"]:
    """The token in which a number from [0, 1) falls, when tokens lie side by side, as wide as they are likely.

    A token of probability zero is never drawn.

    >>> draw(torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log(), torch.tensor([0.2, 0.3]))
    tensor([0, 1])
    """
    probabilities = logits.softmax(dim=-1)
    ends = probabilities.cumsum(dim=-1) * (probabilities > 0)
    reached = uniform.to(ends.dtype)[:, None] * ends.amax(dim=-1, keepdim=True)
    found = ends > reached
    # Rounding can lift the number to the end of the last token, behind which there is none.
    first, last = found.int().argmax(dim=-1), ends.argmax(dim=-1)
    return torch.where(found.any(dim=-1), first, last)


def require_finite(logits: Float[Tensor, "*row vocab"]) -> None:
    """Refuse logits among which no token can be chosen.

    Raises:
        ValueError: when a logit is NaN or infinite.
    """
    lowest, highest = logits.aminmax()  # one pass, and a NaN is both
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise ValueError(not_finite(logits))


def not_finite(logits: Float[Tensor, "*row vocab"]) -> str:
    """The reason why no token can be chosen from these logits."""
    wrong = logits[~logits.isfinite()].flatten()[:1].tolist()
    return (
        f"the logits must be finite to choose a token by, got {wrong[0] if wrong else math.nan}: weights "
        "that are not finite, or an overflow in half precision (compute in float32 or bfloat16); to rule a "
        "token out give it the lowest finite logit, torch.finfo(dtype).min"
    )


def _check_temperature(temperature: float) -> None:
    if not _is_number(temperature) or not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature must be a positive number, got {temperature!r}; for the likeliest token each "
            "time use Greedy()"
        )


def _check_top_k(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ValueError(f"top_k must be a whole number of at least 1, got {k!r}; None keeps all")


def _check_top_p(p: float) -> None:
    if not _is_number(p) or not 0 < p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {p!r}; 1 keeps all tokens")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
