"""What the chapter on attention measures: promises of the formula, a learned kernel, a mask set too late.

The functions under test are those of `measured_transformer.parts.attention`. Here are drawn cases to try them
on, the same formulas written down a second time, and attention that breaks the promises, for comparison.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.drawn_cases import Case, drawn_case
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
    causal_mask,
)
from measured_transformer.tasks.task import Batch, check_sizes
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run
from measured_transformer.training.seeding import make_generator, seeded
from scipy.optimize import linprog
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# The formula, written down again ------------------------------------------------------------------


def one_head(
    x: Float[Tensor, "position d_model"],
    w_query: Float[Tensor, "d_model d_head"],
    w_key: Float[Tensor, "d_model d_head"],
    w_value: Float[Tensor, "d_model d_head"],
) -> Float[Tensor, "position d_head"]:
    """One head of self-attention on the matrix of a whole sequence, divided by the root of the *model's* width.

    This is how the exercise sheet writes it, for heads as wide as the model.

    Raises:
        ValueError: as `attention_scores` and `attend`.
    """
    scores = attention_scores(x @ w_query, x @ w_key, scale=1 / math.sqrt(x.shape[-1]))
    return attend(attention_pattern(scores), x @ w_value)


def in_hull(point: Float[Tensor, "dimension"], corners: Float[Tensor, "corner dimension"]) -> bool:
    """Return whether a point is a weighted average of the corners, found by a linear program.

    It asks for weights, none negative and of sum one, that bring the corners to the point.

    Raises:
        ValueError: when point and corners have different widths.

    >>> corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> in_hull(torch.tensor([0.3, 0.3]), corners), in_hull(torch.tensor([0.6, 0.6]), corners)
    (True, False)
    """
    if corners.ndim != 2 or point.shape != corners.shape[1:]:
        raise ValueError(
            "expected a point (dimension,) and corners (corner, dimension), got shapes "
            f"{tuple(point.shape)} and {tuple(corners.shape)}"
        )
    equations = torch.cat([corners, corners.new_ones(len(corners), 1)], dim=1).T
    sums = torch.cat([point, point.new_ones(1)])
    found = linprog(np.zeros(len(corners)), A_eq=equations.numpy(), b_eq=sums.numpy())
    return bool(found.status == 0)


def sigmoid_pattern(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Weights that know nothing of one another: each score through the logistic function, on its own."""
    return scores.sigmoid()


def weight_derivatives(
    scores: Float[Tensor, "key"],
    weights: Callable[[Tensor], Tensor] = attention_pattern,
) -> Float[Tensor, "key key"]:
    """How each weight (row) answers to each score (column), by automatic differentiation.

    Args:
        scores: those of one query.
        weights: turns a row of scores into a row of weights.
    """
    found = torch.autograd.functional.jacobian(lambda row: weights(row[None])[0], scores)
    return torch.as_tensor(found)


def in_three_lines(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
    *,
    hide: bool = True,
) -> Float[Tensor, "*batch position d_value"]:
    """Causal attention as the deep dive writes it: scores, minus infinity ahead, softmax (and the average).

    Args:
        queries, keys, values: of one sequence.
        hide: whether the second line is there at all.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if hide:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    return scores.softmax(dim=-1) @ values


def masked_too_late(
    scores: Float[Tensor, "*batch query key"], mask: Bool[Tensor, "query key"]
) -> Float[Tensor, "*batch query key"]:
    """A common mistake: the softmax over everything, and the forbidden weights set to zero afterwards."""
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0)


# Drawn cases --------------------------------------------------------------------------------------

PRECISIONS = ("float64", "float32")


ROUNDING = ("sheet", "rows", "row", "key_bias", "derivative", "ahead", "moved", "recipe")
"""What is nothing but rounding in float64."""


@measurement(
    seeds=100,
    coords={"precision": PRECISIONS},
    repeat=2,
    tolerance={"kernel": 1e-5, "recipe_moved": 1e-12, **dict.fromkeys(ROUNDING, 1e-12)},
)
def drawn(seed: int) -> dict[str, Any]:
    """Attention of a drawn size against what is proved of it, each beside a control that must differ."""
    case = drawn_case(seed)
    return {
        **_formula(case, seed),
        **_average(case, seed),
        **_shifts(case, seed),
        **_budget(seed),
        **_masked(seed),
    }


def _off(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _formula(case: Case, seed: int) -> dict[str, Any]:
    """The library's three functions, and one head in the sheet's words, against PyTorch's kernel."""
    error, control = [], []
    for precision in PRECISIONS:
        given = case.to(getattr(torch, precision))
        theirs = F.scaled_dot_product_attention(
            given.queries, given.keys, given.values, attn_mask=given.mask
        )
        error.append(_off(given.output(), theirs))
        control.append(_off(given.output(scale=1.0), theirs))
    return {
        "kernel": ("precision", error),
        "kernel_control": ("precision", control),
        "sheet": _sheet(seed, share=1),
        "sheet_control": _sheet(seed, share=2),
    }


def _sheet(seed: int, share: int) -> float:
    """Off by how much one head of a width d / share is when it is divided by the root of d."""
    random = torch.Generator().manual_seed(seed)
    n, d = (2 * torch.randint(2, 9, (2,), generator=random)).tolist()
    x = torch.randn(n, d, generator=random, dtype=torch.float64)
    w = torch.randn(3, d, d // share, generator=random, dtype=torch.float64) / d**0.5
    theirs = F.scaled_dot_product_attention(*(x @ each for each in w))
    return _off(one_head(x, w[0], w[1], w[2]), theirs)


def _average(case: Case, seed: int) -> dict[str, Any]:
    """Rows that sum to one, no negative weight, outputs between the values; a point outside as a control."""
    flat = drawn_case(seed, d_value=2 + seed % 3)
    corners = flat.values[0, 0]
    farthest = corners[corners.norm(dim=1).argmax()]
    return {
        "rows": float((case.pattern().sum(-1) - 1).abs().max()),
        "rows_control": float((sigmoid_pattern(case.scores()).sum(-1) - 1).abs().max()),
        "smallest": float(case.pattern().min()),
        "inside": all(in_hull(point, corners) for point in flat.output()[0, 0]),
        "inside_control": in_hull(1.5 * farthest, corners),
    }


def _shifts(case: Case, seed: int) -> dict[str, Any]:
    """How far the weights move when something is added to scores, keys or queries."""
    scores, q, k = case.scores(), case.queries, case.keys
    random = torch.Generator().manual_seed(seed)
    bias = torch.randn(k.shape[-1], generator=random, dtype=torch.float64)
    column = scores.clone()
    seen = case.pattern()[-1, 0, -1].argmax()  # of a key that may be looked at
    column[..., seen] += 3
    changed = {
        "row": scores + 100,
        "row_control": column,
        "key_bias": attention_scores(q, k + bias),
        "key_bias_control": attention_scores(q + bias, k),
    }
    return {
        name: _off(attention_pattern(each, mask=case.mask), case.pattern())
        for name, each in changed.items()
    }


def _budget(seed: int) -> dict[str, Any]:
    """Derivatives of weights by the other scores against minus the product of both weights."""
    scores = drawn_case(seed, mask="none").scores()[0, 0, 0]
    others = ~torch.eye(len(scores), dtype=torch.bool)
    found: dict[str, Any] = {}
    for weights_of, ending in ((attention_pattern, ""), (sigmoid_pattern, "_control")):
        derivatives = weight_derivatives(scores, weights_of)[others]
        a = weights_of(scores[None])[0]
        found[f"derivative{ending}"] = _off(derivatives, -torch.outer(a, a)[others])
        found[f"largest{ending}"] = float(derivatives.max())
    return found


def _masked(seed: int) -> dict[str, Any]:
    """What causal layers, and the recipe of three lines, see of the future; without the mask as a control."""
    found: dict[str, Any] = {}
    for causal, ending in ((True, ""), (False, "_control")):
        weights, outputs = looks_ahead(seed, causal=causal)
        found |= {f"ahead{ending}": weights, f"moved{ending}": outputs}
        library, recipe = _recipe(seed, causal)
        found |= {f"recipe{ending}": library, f"recipe_moved{ending}": recipe}
    return found


def _recipe(seed: int, hide: bool) -> tuple[float, float]:
    """The recipe against the library, and how far earlier outputs move when later inputs change their sign."""
    case = drawn_case(seed, mask="causal")
    given = (case.queries, case.keys, case.values)
    place = case.keys.shape[-2] // 2
    later = [torch.cat([x[..., :place, :], -x[..., place:, :]], dim=-2) for x in given]
    ours = in_three_lines(*given, hide=hide)
    other = in_three_lines(later[0], later[1], later[2], hide=hide)
    return _off(ours, case.output()), _off(ours[..., :place, :], other[..., :place, :])


@torch.no_grad()
def looks_ahead(seed: int, *, causal: bool) -> tuple[float, float]:
    """What a drawn attention layer sees of the future, if anything.

    Args:
        seed: of sizes, weights, inputs and of the place from which on all inputs are replaced.
        causal: whether the layer hides the future.

    Returns:
        the largest weight on a later position, and the largest change of an earlier output when the later
        inputs are replaced by others (fused and explicit computation, the larger of the two).
    """
    generator = torch.Generator().manual_seed(seed)
    heads, width, n = (int(torch.randint(1, high, (), generator=generator)) for high in (4, 9, 10))
    n = n + 2
    with seeded(seed):
        layer = MultiHeadAttention(heads * width, heads).double()
    x, other = torch.randn(2, 1, n, heads * width, generator=generator, dtype=torch.float64)
    place = int(torch.randint(1, n, (), generator=generator))
    changed = torch.cat([x[:, :place], other[:, place:]], dim=1)
    outputs = [layer(x, causal=causal), layer(changed, causal=causal)]
    with capture(layer, "pattern") as seen:
        outputs += [layer(x, causal=causal)]
        weights = seen["pattern"].triu(1)
        outputs += [layer(changed, causal=causal)]
    changes = [(outputs[i] - outputs[i + 1])[:, :place].abs().max() for i in (0, 2)]
    return float(weights.max()), float(max(changes))


# Numbers that a source states ---------------------------------------------------------------------

SAT = (0.05, 0.42, 0.15, 0.18, 0.08, 0.12)
"""The deep dive's weights of *sat* on *the cat sat on the mat*."""
BERT_BASE = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
}
"""From config.json of bert-base-uncased, as published with the checkpoint."""


@measurement(seeds=1, coords={"query": tuple(range(6)), "word": tuple(range(6))})
def stated(seed: int) -> dict[str, Any]:
    """Six weights of an example, the keys that a causal mask of six leaves open, and BERT's width."""
    del seed  # nothing is drawn
    bert = Config(
        vocab=BERT_BASE["vocab_size"],
        d_model=BERT_BASE["hidden_size"],
        n_layers=BERT_BASE["num_hidden_layers"],
        n_heads=BERT_BASE["num_attention_heads"],
        d_ff=BERT_BASE["intermediate_size"],
    )
    return {
        "sat": ("word", list(SAT)),
        "open": ("query", causal_mask(6).sum(1)),
        "width": bert.d_model,
        "head_width": bert.head_width,
    }


# Attention as a kernel smoother -------------------------------------------------------------------

COORDINATES = (1, 2, 4, 8)
SMOOTHERS = ("average of all", "nearest", "fixed kernel", "learned kernel")
PAIRS = 64
NOISE = 0.3
WIDTHS = tuple(0.02 * 1.4**k for k in range(14))
"""The grid of kernel widths, from 0.02 to 1.6."""
KERNEL_STEPS = 200
KERNEL_RATE = 0.1


def kernel_scores(
    queries: Float[Tensor, "*batch query coordinate"],
    keys: Float[Tensor, "*batch key coordinate"],
    matrix: Float[Tensor, "coordinate d_head"],
) -> Float[Tensor, "*batch query key"]:
    r"""Scores whose softmax is a Gaussian kernel of the distance between projected queries and keys.

    $-\frac12 |qW - kW|^2$ without the term of the query alone, which is the same along a row and cancels.
    """
    q, k = queries @ matrix, keys @ matrix
    return q @ k.transpose(-2, -1) - k.square().sum(-1)[..., None, :] / 2


def wave(x: Float[Tensor, "*batch coordinate"]) -> Float[Tensor, "*batch"]:
    """What is to be found: one turn of a sine over the first coordinate; the others do not matter."""
    return torch.sin(2 * math.pi * x[..., 0])


@dataclass(frozen=True)
class Lookups:
    """Pairs of keys and noisy values, and queries to be answered from them; many times over.

    Attributes:
        keys, queries: uniform in the unit cube.
        values: the wave at the keys, and noise.
    """

    keys: Float[Tensor, "batch key coordinate"]
    values: Float[Tensor, "batch key 1"]
    queries: Float[Tensor, "batch query coordinate"]

    def error(self, matrix: Float[Tensor, "coordinate d_head"]) -> Float[Tensor, ""]:
        """Root mean squared error of attention with `kernel_scores`, against the wave without noise."""
        pattern = attention_pattern(kernel_scores(self.queries, self.keys, matrix))
        return self.off(attend(pattern, self.values))

    def off(self, guess: Float[Tensor, "batch query 1"]) -> Float[Tensor, ""]:
        """Root mean squared error of a guess."""
        return (guess[..., 0] - wave(self.queries)).square().mean().sqrt()


def lookups(generator: torch.Generator, count: int, coordinates: int) -> Lookups:
    """Draw so many sets of pairs and queries."""
    shape = (count, PAIRS, coordinates)
    keys = torch.rand(*shape, generator=generator, dtype=torch.float64)
    queries = torch.rand(*shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, PAIRS, generator=generator, dtype=torch.float64)
    return Lookups(keys, (wave(keys) + NOISE * noise)[..., None], queries)


def fixed_kernel(given: Lookups) -> Float[Tensor, "coordinate coordinate"]:
    """The round kernel whose width, of those on the grid, makes the smallest error."""
    eye = torch.eye(given.keys.shape[-1], dtype=torch.float64)
    return min((eye / width for width in WIDTHS), key=lambda matrix: float(given.error(matrix)))


def learned_kernel(
    generator: torch.Generator, start: Float[Tensor, "coordinate coordinate"]
) -> Float[Tensor, "coordinate coordinate"]:
    """What gradient descent on ever new look-ups makes of a round kernel."""
    matrix = start.clone().requires_grad_()
    updates = torch.optim.Adam([matrix], lr=KERNEL_RATE)
    for _ in range(KERNEL_STEPS):
        updates.zero_grad()
        lookups(generator, 16, len(start)).error(matrix).backward()
        updates.step()
    return matrix.detach()


@measurement(
    seeds=12,
    coords={"coordinates": COORDINATES, "smoother": SMOOTHERS},
    tolerance={"error": 0.01, "first": 0.05},
)
def smoothing(seed: int) -> dict[str, Any]:
    """Error of attention that looks up a noisy sine among 64 pairs, by the coordinates of its keys."""
    errors, first = [], []
    for count in COORDINATES:
        generator = make_generator(seed, f"smoothing {count}")
        fixed = fixed_kernel(lookups(generator, 64, count))
        learned = learned_kernel(generator, fixed)
        given = lookups(generator, 64, count)
        mean = given.values.mean(1, keepdim=True).expand_as(given.values)
        nearest = torch.cdist(given.queries, given.keys).argmin(-1, keepdim=True)
        found = [given.off(mean), given.off(given.values.gather(1, nearest))]
        found += [given.error(matrix) for matrix in (fixed, learned)]
        errors.append([float(each) for each in found])
        first.append(float(learned[0].square().sum() / learned.square().sum()))
    return {
        "error": (("coordinates", "smoother"), errors),
        "first": ("coordinates", first),
    }


# A mask set too late ------------------------------------------------------------------------------

MaskingName = Literal["in time", "too late", "no mask"]
MASKINGS = get_args(MaskingName)
EVERY = 20
STEPS = 300
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
"""The grid of learning rates, the same for all arms."""


@dataclass(frozen=True)
class Dice:
    """Rolls of a fair die: from the rolls so far, the next one is to be predicted. Nobody can.

    The last roll of a sequence has no next one in it, and is not scored.

    Attributes:
        vocab: sides of the die.
        length: number of rolls.

    >>> batch = Dice().batch(torch.Generator().manual_seed(0), size=2)
    >>> bool((batch.targets[:, :-1] == batch.inputs[:, 1:]).all())
    True

    Raises:
        ValueError: when a size is not positive.
    """

    vocab: int = 6
    length: int = 8
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` sequences.

        Raises:
            ValueError: when a size is not positive.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        rolls = torch.randint(self.vocab, (size, n), generator=generator)
        scored = torch.ones(size, n, dtype=torch.bool)
        scored[:, -1] = False
        return Batch(rolls, rolls.roll(-1, dims=1), scored)

    def best_loss(self) -> float:
        """Smallest expected cross-entropy, in nats, of anybody who does not know the next roll."""
        return math.log(self.vocab)


DICE = Dice()


class _MaskedTooLate(MultiHeadAttention):
    """Causal attention with the mistake of `masked_too_late`."""

    def _mix(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        causal: bool,
        allowed: Tensor | None,
        score_bias: Tensor | None,
    ) -> Tensor:
        scores = attention_scores(queries, keys, scale=self.scale)
        past = causal_mask(*scores.shape[-2:], device=scores.device)
        return attend(masked_too_late(scores, past), values)


class _NeverMasked(MultiHeadAttention):
    """Causal attention whose mask has been forgotten."""

    def _mix(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        causal: bool,
        allowed: Tensor | None,
        score_bias: Tensor | None,
    ) -> Tensor:
        scores = attention_scores(queries, keys, scale=self.scale)
        return attend(attention_pattern(scores), values)


@dataclass(frozen=True)
class Masking:
    """Preparation for training: when the attention layers of a decoder set their causal mask.

    Attributes:
        how: 'in time' (before the softmax, as it should be), 'too late' (after it) or 'no mask'.

    Raises:
        ValueError: when there is no such way.
    """

    how: MaskingName

    def __post_init__(self) -> None:
        if self.how not in MASKINGS:
            raise ValueError(f"how must be one of {', '.join(MASKINGS)}, got {self.how!r}")

    def __call__(self, model: Model) -> None:
        """Change the layers, in place."""
        kinds = {"too late": _MaskedTooLate, "no mask": _NeverMasked}
        for module in model.modules():
            if isinstance(module, MultiHeadAttention) and self.how in kinds:
                module.__class__ = kinds[self.how]


def dice_trainings(seed: int) -> dict[str, Job]:
    """One block that predicts dice, with its mask in time, too late and not at all."""
    config = Config(vocab=DICE.vocab, d_model=32, n_layers=1)
    jobs = {}
    for how in MASKINGS:
        options = {"prepare": Masking(how), "batch_size": 32}
        name = f"dice-{how.replace(' ', '-')}"
        search = Search(name, config, DICE, RATES, tuning_seeds(2), STEPS, options)
        jobs[how] = job(
            config,
            DICE,
            seed,
            steps=STEPS,
            learning_rate=tuned(search),
            evaluate_every=EVERY,
            **options,
        )
    return jobs


@torch.no_grad()
def loss_of_next(
    model: Model, rolls: Int[Tensor, "batch position"], *, known: bool
) -> Float[Tensor, "prediction"]:
    """Cross-entropy of each next roll, of all but the last position.

    Args:
        model: a decoder.
        rolls: whole sequences.
        known: whether the model is given the whole sequence at once, as in training; if not, it is given
            what was rolled before, and no more, as when it writes by itself.
    """
    losses = []
    whole = model(rolls) if known else None
    for place in range(rolls.shape[1] - 1):
        logits = model(rolls[:, : place + 1])[:, -1] if whole is None else whole[:, place]
        losses.append(F.cross_entropy(logits, rolls[:, place + 1]))
    return torch.stack(losses)


@measurement(
    seeds=10,
    coords={"masking": MASKINGS, "step": tuple(range(EVERY, STEPS + 1, EVERY))},
    trainings=dice_trainings,
    tolerance={"curve": 0.1, "whole": 0.1, "alone": 0.5},
)
def dice(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """One block that predicts dice: loss on held-out rolls while it learns, and when the next are not there."""
    rolls = DICE.batch(make_generator(seed, "evaluation"), 512).inputs
    whole, alone = (
        [float(loss_of_next(runs[how].model, rolls, known=known).mean()) for how in MASKINGS]
        for known in (True, False)
    )
    return {
        "curve": (("masking", "step"), [runs[how].evaluation_losses for how in MASKINGS]),
        "whole": ("masking", whole),
        "alone": ("masking", alone),
    }
