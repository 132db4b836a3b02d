"""Exercises of the chapter on the inside of one layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from measured_transformer.training.seeding import seeded
from torch import Tensor, nn

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    in_words,
    normal,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/machine/one-layer"
_WORDS = ("norm", "attention", "network", "drop", "add")


@exercise(_CHAPTER)
def order(answer: Answer) -> None:
    """The eight steps of a pre-norm layer in training: a list of norm, attention, network, drop and add."""
    given = answer.value
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
        raise Fault(f"expected a list of words, got {in_words(given)}")
    steps = [one.strip().casefold() for one in given]
    demand(steps, "there is nothing to check yet: the list is empty")
    unknown = [one for one in steps if one not in _WORDS]
    demand(not unknown, f"expected the words {', '.join(_WORDS)}; got {unknown[:1]}")
    for word, times in (("attention", 1), ("network", 1), ("norm", 2), ("add", 2), ("drop", 2)):
        came = steps.count(word)
        demand(came == times, f"`{word}` stands there {came} times; look at the figure again")
    demand(steps.index("attention") < steps.index("network"), "the network comes after attention")
    demand(
        steps[0] == "norm",
        f"a pre-norm layer does not begin with `{steps[0]}`; what does a branch see of the stream?",
    )
    for word in ("attention", "network"):
        at = steps.index(word)
        demand(steps[at - 1] == "norm", f"what stands right before `{word}` in a pre-norm layer?")
        demand(
            steps[at + 1 : at + 3] == ["drop", "add"],
            f"after `{word}`: what is thinned out, the write or the whole stream?",
        )


@exercise(_CHAPTER)
def parts(answer: Answer) -> None:
    """Write `parts(n, d, m)`: parameters of attention, network and norms, operations of attention and network.

    Five whole numbers; all biases count, and the operations are those of matrix products for n tokens.
    """
    names = ("attention", "the network", "the norms")
    for n, d, m in ((3, 4, 8), (7, 5, 11), (512, 768, 3072)):
        came = answer(n, d, m)
        if not isinstance(came, (tuple, list)) or len(came) != 5:
            raise Fault(f"expected five numbers, got {in_words(came)}")
        values = [float(tensor(one, (), name="a count")) for one in came]
        right = [4 * d * d + 4 * d, 2 * d * m + m + d, 4 * d]
        slips = [
            {
                4.0 * d * d: "each of the four projections has a bias, too",
                3.0 * d * d + 3 * d: "the output projection belongs to attention as well",
                3.0 * d * d: "queries, keys and values are not all, and each map has a bias",
            },
            {
                2.0 * d * m: "both maps have biases, of different lengths",
                2.0 * d * m + 2 * m: "the second bias is as long as what the second map gives",
                2.0 * d * m + 2 * d: "the first bias is as long as what the first map gives",
                8.0 * d * d + 5 * d: "the hidden width is m here, not four times d",
            },
            {
                2.0 * d: "a norm multiplies and adds, or there is more than one of them",
                2.0: "there is a number for each entry of the stream",
            },
        ]
        for name, found, expected, wrong in zip(names, values, right, slips, strict=False):
            wrong = {value: words for value, words in wrong.items() if value != expected}
            demand_number(
                found,
                float(expected),
                way="write down the shape of each matrix and each bias",
                name=f"parameters of {name} for n={n}, d={d} and m={m}",
                within=1e-9,
                slips=wrong,
            )
        operations = [8 * n * d * d + 4 * n * n * d, 4 * n * d * m]
        slips = [
            {
                8.0 * n * d * d: "scores and mixing are products of matrices, too",
                4.0 * n * d * d + 2 * n * n * d: "a multiplication and an addition count as two",
                6.0 * n * d * d + 4 * n * n * d: "the output projection works for each token, too",
            },
            {
                2.0 * n * d * m: "there are two maps, and a multiplication and an addition are two",
                4.0 * d * m: "that is one token's share",
            },
        ]
        for name, found, expected, wrong in zip(names, values[3:], operations, slips, strict=False):
            demand_number(
                found,
                float(expected),
                way="an a by b times a b by c matrix takes 2abc",
                name=f"operations of {name} for n={n}, d={d} and m={m}",
                within=1e-9,
                slips=wrong,
            )


@exercise(_CHAPTER)
def sublayer(answer: Answer) -> None:
    """Write `sublayer(x, branch, kept, rate)`: what the stream is after a branch with dropout.

    `branch` is a function, `kept` a Boolean tensor like `x`, False where an entry is dropped.
    """
    for d, rate in ((4, 0.5), (3, 0.2)):
        x, matrix = normal(d, seed=d), normal(d, d, seed=10 + d)

        def branch(y: Tensor, matrix: Tensor = matrix) -> Tensor:
            return (y @ matrix).relu() + 0.5

        write = branch(x)
        nothing = torch.zeros(d, dtype=torch.bool)
        found = tensor(answer(x, branch, nothing, rate), (d,))
        demand(
            not close(found, torch.zeros(d)),
            "with every entry dropped nothing is left of the stream; only the write may be lost",
        )
        demand(
            not close(found, x + branch(torch.zeros(d, dtype=x.dtype))),
            "with every entry dropped the branch still writes: drop what it gives, not what it gets",
        )
        demand(
            close(found, x), "with every entry of the write dropped, the stream must be x itself"
        )
        found = tensor(answer(x, branch, ~nothing, rate), (d,))
        demand(
            not close(found, x + write),
            "with no entry dropped the write comes out as it is, so on average over masks it is too small",
        )
        demand(
            not close(found, (x + write) / (1 - rate)),
            "what is scaled up is the whole stream; only the write is thinned",
        )
        demand(
            rate == 0.5 or not close(found, x + write / rate),
            "the write is divided by the probability of losing an entry, not of keeping it",
        )
        mean = torch.zeros(d, dtype=x.dtype)
        for bits in itertools.product((False, True), repeat=d):
            kept = torch.tensor(bits)
            chance = (1 - rate) ** sum(bits) * rate ** (d - sum(bits))
            mean += chance * tensor(answer(x, branch, kept, rate), (d,))
        demand(
            close(mean, x + write),
            "the mean over all masks, each with its probability, is not the stream without dropout",
        )


@exercise(_CHAPTER)
def layer(answer: Answer) -> None:
    """Write `layer(x, w, n_heads, norm_first)`: a whole layer with the weights of PyTorch's, in evaluation.

    `x` is (batch, position, d), `w` the `state_dict()` of a `TransformerEncoderLayer` with ReLU.
    """
    for norm_first, heads, d, m, seed in (
        (False, 1, 4, 6, 0),
        (False, 2, 8, 12, 1),
        (True, 2, 8, 12, 1),
        (True, 3, 6, 5, 2),
    ):
        theirs = _their_layer(d, heads, m, norm_first, seed)
        x = normal(2, 5, d, seed=seed)
        weights = {name: value.detach() for name, value in theirs.state_dict().items()}
        with torch.no_grad():
            expected = theirs(x)
        found = tensor(answer(x, weights, heads, norm_first), (2, 5, d))
        if close(found, expected, 1e-9):  # a missing epsilon is a small thing
            continue
        for words, other in _slips(x, weights, heads, norm_first):
            demand(not close(found, other, 1e-9), words)
        where = "pre-norm" if norm_first else "post-norm"
        worst = float((found - expected).abs().max())
        many = "one head" if heads == 1 else f"{heads} heads"
        raise Fault(
            f"{where} with {many}: off by {worst:.2g} at most; compare one value after the other "
            "with those of the library's trace"
        )


@exercise(_CHAPTER)
def shapes(answer: Answer) -> None:
    """Write `shapes(n, d, h, m)`: shapes of queries, scores, mixed, output and neurons, a list of tuples.

    For one sequence, without the batch; heads first, then tokens.
    """
    for n, d, h, m in ((3, 4, 2, 8), (5, 12, 3, 7), (512, 768, 12, 3072)):
        came = answer(n, d, h, m)
        if not isinstance(came, (tuple, list)) or len(came) != 5:
            raise Fault(f"expected five shapes, got {in_words(came)}")
        right = {
            "queries": (h, n, d // h),
            "scores": (h, n, n),
            "mixed": (h, n, d // h),
            "output": (n, d),
            "neurons": (n, m),
        }
        for (name, expected), one in zip(right.items(), came, strict=True):
            if not isinstance(one, (tuple, list, torch.Size)):
                raise Fault(f"the shape of {name} shall be a tuple, got {in_words(one)}")
            found = tuple(one)
            shown = f"{name} for n={n}, d={d}, h={h} and m={m}: {found}"
            demand(len(found) == len(expected), f"{shown} has the wrong number of axes")
            demand(
                sorted(map(str, found)) != sorted(map(str, expected)) or found == expected,
                f"{shown} has the right sizes in another order",
            )
            demand(
                not (len(found) == 3 and found[-1] == d and d != expected[-1]),
                f"{shown}: the stream's width is divided among the heads",
            )
            demand(found == expected, f"{shown} is not it; what does one token ask, and whom?")


def _their_layer(
    d: int, heads: int, m: int, norm_first: bool, seed: int
) -> nn.TransformerEncoderLayer:
    """PyTorch's layer with random numbers in every weight, bias and norm."""
    with seeded(seed):
        made = nn.TransformerEncoderLayer(
            d, heads, m, batch_first=True, norm_first=norm_first, dtype=torch.float64
        )
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))
    return made.eval()


def _by_hand(
    x: Tensor,
    w: dict[str, Tensor],
    n_heads: int,
    norm_first: bool,
    *,
    scale: float | None = None,
    biases: bool = True,
    heads_last: bool = False,
    activation: Callable[[Tensor], Tensor] = torch.relu,
    correction: int = 0,
    eps: float = 1e-5,
    skips: tuple[bool, bool] = (True, True),
    norms: tuple[bool, bool] = (True, True),
) -> Tensor:
    """The layer written out, with the slips that readers make."""
    d = x.shape[-1]
    width = d // n_heads

    def norm(y: Tensor, which: int) -> Tensor:
        if not norms[which - 1]:
            return y
        centred = y - y.mean(-1, keepdim=True)
        root = (y.var(-1, correction=correction, keepdim=True) + eps).sqrt()
        return centred / root * w[f"norm{which}.weight"] + w[f"norm{which}.bias"]

    def linear(y: Tensor, name: str, separator: str = ".") -> Tensor:
        out = y @ w[f"{name}{separator}weight"].mT
        return out + w[f"{name}{separator}bias"] if biases else out

    def attention(y: Tensor) -> Tensor:
        def split(z: Tensor) -> Tensor:
            if heads_last:
                return z.reshape(z.shape[0], n_heads, -1, width)
            return z.unflatten(-1, (n_heads, width)).transpose(1, 2)

        q, k, v = (split(z) for z in linear(y, "self_attn.in_proj", "_").chunk(3, dim=-1))
        scores = q @ k.mT * (width**-0.5 if scale is None else scale)
        mixed = scores.softmax(-1) @ v
        merged = mixed.reshape(y.shape) if heads_last else mixed.transpose(1, 2).flatten(2)
        return linear(merged, "self_attn.out_proj")

    def network(y: Tensor) -> Tensor:
        return linear(activation(linear(y, "linear1")), "linear2")

    for which, branch in ((1, attention), (2, network)):
        write = branch(norm(x, which) if norm_first else x)
        x = x + write if skips[which - 1] else write
        x = x if norm_first else norm(x, which)
    return x


def _slips(
    x: Tensor, w: dict[str, Tensor], heads: int, norm_first: bool
) -> list[tuple[str, Tensor]]:
    d = x.shape[-1]

    def made(**slip: Any) -> Tensor:
        return _by_hand(x, w, heads, norm_first, **slip)

    return [
        (
            "the norms stand at the other place: what does `norm_first` say?",
            _by_hand(x, w, heads, not norm_first),
        ),
        (
            "the scores are divided by the root of a head's width, not the stream's",
            made(scale=d**-0.5),
        ),
        ("the scores are not scaled", made(scale=1.0)),
        (
            "the heads are cut across the tokens: split the last axis first, then move it",
            made(heads_last=True),
        ),
        ("all projections have biases", made(biases=False)),
        ("this layer bends with ReLU", made(activation=torch.nn.functional.gelu)),
        ("the network bends nothing in between", made(activation=lambda y: y)),
        (
            "a norm divides by the biased standard deviation, over d and not d - 1",
            made(correction=1),
        ),
        ("a norm adds its epsilon to the variance, and yours does not", made(eps=0.0)),
        ("the first skip connection is missing", made(skips=(False, True))),
        ("the second skip connection is missing", made(skips=(True, False))),
        ("the skip connections are missing", made(skips=(False, False))),
        ("the first norm is missing", made(norms=(False, True))),
        ("the second norm is missing", made(norms=(True, False))),
    ]


@exercise(_CHAPTER)
def second_half(answer: Answer) -> None:
    """Write `second_half(x, gate, up, down, factors)`: the stream after RMSNorm, gated network, addition."""
    for d, m in ((6, 4), (5, 8)):
        x = 2 * normal(2, 3, d, seed=d) + 1
        gate, up, down = normal(m, d, seed=1), normal(m, d, seed=2), normal(d, m, seed=3)
        factors = 1 + 0.5 * normal(d, seed=4)
        found = tensor(answer(x, gate, up, down, factors), (2, 3, d))

        def network(y: Tensor, gate: Tensor = gate, up: Tensor = up, down: Tensor = down) -> Tensor:
            return (nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T

        size = (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        y = x / size * factors
        centred = nn.functional.layer_norm(x, (d,), factors, None, 1e-5)
        slips = {
            "the write alone: where is the addition?": network(y),
            "the network reads the stream itself; where is the norm?": x + network(x),
            "the normed copy is what goes on; add to the stream itself": y + network(y),
            "this norm does not subtract the mean": x + network(centred),
            "the norm's factors are missing": x + network(x / size),
            "the activation stands on the other projection": x + network(y, up, gate),
            "the activation is missing": x + ((y @ gate.T) * (y @ up.T)) @ down.T,
            "the activation stands on the product; it belongs on the gate alone": x
            + nn.functional.silu((y @ gate.T) * (y @ up.T)) @ down.T,
        }
        for words, wrong in slips.items():
            demand(not close(found, wrong), words)
        demand(close(found, x + network(y)), "not the stream plus what the gated network writes")
