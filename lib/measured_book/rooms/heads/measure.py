r"""What the chapter on many heads measures: a sum of heads, what one head cannot do, and circuits of two.

Vectors are rows. `heads_of` gives each head's output $O^i$ and its block $W^{O_i}$ of the output projection, so
that attention is $\sum_i O^i W^{O_i}$. All about sums is an identity, on drawn layers. What is trained is
small: one layer on tasks with a known answer, for how many heads serve; two layers of attention
alone for induction; two-hop recall for how heads depend on one another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.circuits import compositions, module_circuits
from measured_transformer.analysis.handmade import set_head
from measured_transformer.analysis.induction import prefix_matching_score, previous_token_score
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.tasks.two_places import TwoPlaces
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.component_ablation import without_ffn
from torch import Tensor, nn

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

Which = Bool[np.ndarray, "pair"]
Composition = Literal["q", "k", "v"]


@torch.no_grad()
def drawn_attention(
    seed: int, *, bias: bool = False, d_head: int | None = None, wide: bool = False
) -> tuple[MultiHeadAttention, Float[Tensor, "batch position d_model"]]:
    """Attention of random size with random weights, and an input for it, in double precision.

    Two to five heads of width two to five (or `d_head`), three to eight positions.

    Args:
        seed: of sizes, weights and input.
        bias: whether there are biases (random ones).
        d_head: width of a head.
        wide: whether heads are as wide as the model; else the model is as wide as its heads together.
    """
    with seeded(seed):
        heads, width, n = (
            int(torch.randint(low, high, ())) for low, high in ((2, 6), (2, 6), (3, 9))
        )
        width = width if d_head is None else d_head
        d_model = width if wide else heads * width
        attention = MultiHeadAttention(d_model, heads, d_head=width, bias=bias).double()
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) / math.sqrt(d_model))
        return attention, torch.randn(2, n, d_model, dtype=torch.float64)


@torch.no_grad()
def heads_of(
    attention: MultiHeadAttention, x: Float[Tensor, "batch position d_model"]
) -> tuple[
    Float[Tensor, "head batch position d_head"],
    Float[Tensor, "head d_head d_model"],
]:
    """Each head's output, before the output projection, and its block of that projection."""
    with capture(attention, "mixed") as seen:
        attention(x)
    blocks = attention.output.weight.detach().T.unflatten(0, (attention.n_heads, -1))
    return seen["mixed"].transpose(0, 1), blocks


@torch.no_grad()
def concatenated(
    attention: MultiHeadAttention, x: Float[Tensor, "batch position d_model"]
) -> Float[Tensor, "batch position d_model"]:
    """Equation 9 of the exercise sheet without its residual: heads written out, side by side, times $W^O$.

    For heads without biases. Source: Vaswani et al. (2017), section 3.2.2.
    """
    outputs = []
    for head in range(attention.n_heads):
        rows = slice(head * attention.d_head, (head + 1) * attention.d_head)
        query, key, value = (
            x @ linear.weight[rows].T
            for linear in (attention.query, attention.key, attention.value)
        )
        outputs.append(attend(attention_pattern(attention_scores(query, key)), value))
    return torch.cat(outputs, dim=-1) @ attention.output.weight.T


@torch.no_grad()
def as_torch(attention: MultiHeadAttention) -> nn.MultiheadAttention:
    """PyTorch's own multi-head attention with the same weights.

    Raises:
        ValueError: when heads share keys and values, or are not `d_model / n_heads` wide: PyTorch's are.
    """
    d, h = attention.d_model, attention.n_heads
    if attention.n_kv_heads != h or attention.d_head * h != d:
        raise ValueError(
            "PyTorch's heads have their own keys and values and are d_model / n_heads wide, got "
            f"n_kv_heads={attention.n_kv_heads}, n_heads={h}, d_head={attention.d_head}, d_model={d}"
        )
    theirs = nn.MultiheadAttention(d, h, bias=attention.query.bias is not None, batch_first=True)
    theirs = theirs.to(attention.query.weight.dtype)
    projections = (attention.query, attention.key, attention.value)
    theirs.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
    theirs.out_proj.weight.copy_(attention.output.weight)
    if attention.query.bias is not None:
        theirs.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
        theirs.out_proj.bias.copy_(attention.output.bias)
    return theirs


def best_numbers(
    outputs: Float[Tensor, "head batch position d_model"],
    total: Float[Tensor, "batch position d_model"],
) -> float:
    """How much of `total` the best combination with one number a head misses, as a share of its length.

    Raises:
        ValueError: when heads are not as wide as the total.
    """
    if outputs.shape[1:] != total.shape:
        raise ValueError(
            "numbers can only weigh heads that are as wide as the model, got heads of shape "
            f"{tuple(outputs.shape[1:])} for {tuple(total.shape)}"
        )
    columns, goal = outputs.flatten(1).T, total.flatten()
    weights = torch.linalg.lstsq(columns, goal[:, None]).solution[:, 0]
    return ((goal - columns @ weights).norm() / goal.norm()).item()


# What one head cannot do ----------------------------------------------------------------------------


def map_values(
    patterns: Float[Tensor, "head query key"], forms: Float[Tensor, "head d_model d_model"]
) -> Float[Tensor, "value"]:
    r"""The singular values of $X \mapsto \sum_h A_h X W_h$, a sum of products of two maps each.

    How many are not zero is the number of heads, with patterns that do not depend on the input, that the map
    needs. The root of the sum of the squares of all but the first is a lower bound for what a single such head
    misses: the root of the mean square over inputs with independent standard normal entries (Eckart and
    Young 1936). It is only a bound, because the best product may need negative weights or a form of a rank that
    a head does not have.
    """
    products = torch.einsum("hij,hde->ijde", patterns, forms)
    return torch.linalg.svdvals(products.flatten(2).flatten(0, 1))


@dataclass(frozen=True)
class TwoMaps:
    r"""A target that brings two positions at once, $y_i = c_{i-1} W_1 + c_{i-3} W_2$, and heads that reach it.

    Attributes:
        attention: two heads with hand-set weights; without residual connection.
        x: the stream: random contents $c$, and the place, one entry for each.
        target: the answers from the fourth position on, zero where the place stands.
        bound: what any single head that looks at places misses at least, as a share of the target (root mean
            squares over contents); negative weights, which no head has, would reach it.
        one_head: what the best single head that looks at places misses.
    """

    attention: MultiHeadAttention
    x: Float[Tensor, "1 position d_model"]
    target: Float[Tensor, "answer d_model"]
    bound: float
    one_head: float


@torch.no_grad()
def two_maps(seed: int, *, length: int = 8, width: int = 4) -> TwoMaps:
    """Draw contents and two matrices, and write two heads that look one and three places back.

    Args:
        seed: of contents and matrices.
        length: number of positions, more than three.
        width: entries of a content.
    """
    with seeded(seed):
        contents = torch.randn(length, width, dtype=torch.float64)
        forms = torch.randn(2, width, width, dtype=torch.float64)
    d_model = width + length
    eye = torch.eye(d_model, dtype=torch.float64)
    content, place = eye[:, :width], eye[:, width:]
    attention = MultiHeadAttention(
        d_model, 2, d_head=max(width, length), bias=False, scale=1.0
    ).double()
    shifts = []
    for head, back in enumerate((1, 3)):
        shift = torch.diag(torch.ones(length - back, dtype=torch.float64), -back)
        set_head(
            attention,
            head,
            query=60.0 * place @ shift,
            key=place,
            value=content,
            output=forms[head] @ content.T,
        )
        shifts.append(shift[3:])
    patterns = torch.stack(shifts)
    values = map_values(patterns, forms)
    target = torch.einsum("hij,jd,hde->ie", patterns, contents, forms)
    bound = values[1:].square().sum().sqrt() / values.square().sum().sqrt()
    x = torch.cat((contents, torch.eye(length, dtype=torch.float64)), dim=1)[None]
    return TwoMaps(attention, x, target @ content.T, bound.item(), one_head_misses(forms))


def one_head_misses(forms: Float[Tensor, "2 d_model d_model"]) -> float:
    r"""What the best single head misses of $c_{i-1} W_1 + c_{i-3} W_2$, as a share of its size.

    With weights a and b on the two places (others only add noise), the best form is
    $(a W_1 + b W_2) / (a^2 + b^2)$, which catches $\lVert a W_1 + b W_2 \rVert^2 / (a^2 + b^2)$. Without a sign
    to mind, that is at most the larger eigenvalue of the table of inner products; where its eigenvector has two
    signs, a head does best that ignores one of the places.

    >>> round(one_head_misses(torch.stack((torch.eye(2), -torch.eye(2))).double()), 3)
    0.707
    """
    flat = forms.flatten(1)
    inner = flat @ flat.T
    values, vectors = torch.linalg.eigh(inner)
    caught = values[-1] if vectors[:, -1].prod() >= 0 else inner.diagonal().max()
    return (1 - caught / inner.trace()).clamp(min=0).sqrt().item()


def on_a_circle(
    angles: Float[Tensor, "query"], *, keys: int, sharpness: float
) -> Float[Tensor, "query key"]:
    r"""The weights of a head that is two wide, its keys evenly on a circle, for queries of these directions.

    >>> on_a_circle(torch.tensor([0.0, 3.14159]), keys=8, sharpness=20.0).argmax(-1)
    tensor([0, 4])

    Args:
        angles: directions of the queries, in radians.
        keys: how many there are; the first at an angle of zero.
        sharpness: length of query times length of key, the scale included.
    """
    places = 2 * math.pi * torch.arange(keys).to(angles) / keys
    queries, points = (torch.stack((t.cos(), t.sin()), dim=1) for t in (angles, places))
    return (sharpness * queries @ points.T).softmax(-1)


def on_a_line(
    queries: Float[Tensor, "query"], keys: Float[Tensor, "key"]
) -> Float[Tensor, "query key"]:
    """The weights of a head that is one wide: no key that lies between two others is ever looked at most.

    >>> on_a_line(torch.tensor([-9.0, 9.0]), torch.tensor([0.0, 1.0, 2.0])).argmax(-1)
    tensor([0, 2])
    """
    return torch.outer(queries, keys).softmax(-1)


# What two heads do together -------------------------------------------------------------------------


@dataclass(frozen=True)
class PairEffects:
    """What removing heads does to a model's loss, one at a time and two at a time.

    Attributes:
        heads: (layer, head) of each.
        pairs: the numbers, in `heads`, of the two of each pair.
        single: rise of the loss without one head, in nats.
        joint: rise of the loss without both heads of a pair.
    """

    heads: Int[np.ndarray, "head 2"]
    pairs: Int[np.ndarray, "pair 2"]
    single: Float[np.ndarray, "head"]
    joint: Float[np.ndarray, "pair"]

    @property
    def interaction(self) -> Float[np.ndarray, "pair"]:
        """What the joint effect has beyond the sum of the two single ones; independent heads have none."""
        return self.joint - self.single[self.pairs].sum(axis=1)

    @property
    def same_layer(self) -> Which:
        """Which pairs stand in one layer."""
        layers = self.heads[self.pairs, 0]
        same: Which = layers[:, 0] == layers[:, 1]
        return same

    def share(self, chosen: Which) -> float:
        """Sizes of the interactions over sizes of the joint effects, both summed over the chosen pairs.

        Raises:
            ValueError: when the chosen pairs have no effect at all.
        """
        size = float(np.abs(self.joint[chosen]).sum())
        if size == 0:
            raise ValueError("the chosen pairs have no joint effect that could be taken apart")
        return float(np.abs(self.interaction[chosen]).sum()) / size


@torch.no_grad()
def pair_effects(model: Model, batch: Batch) -> PairEffects:
    """Remove each head and each pair of heads of a decoder or encoder and see what the loss does.

    A head is removed by setting what it mixed to zero, so that it writes nothing.

    Args:
        model: in evaluation mode.
        batch: what the loss is computed on.

    Raises:
        KeyError: when the model is an encoder-decoder, whose blocks have other names.
    """
    with capture(model, "blocks.*.attention.mixed", transform=lambda mixed: mixed[:1]) as seen:
        predict(model, batch)
    counts = [mixed.shape[1] for mixed in seen.values()]
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def loss(*removed: tuple[int, int]) -> float:
        changes = {}
        for layer in {layer for layer, _ in removed}:
            these = [head for at_layer, head in removed if at_layer == layer]
            changes[f"blocks.{layer}.attention.mixed"] = at(0.0, heads=these)
        with intervene(model, changes):
            logits = predict(model, batch).double()
        return cross_entropy(logits, batch.targets, batch.scored).item()

    whole = loss()
    pairs = list(itertools.combinations(range(len(heads)), 2))
    return PairEffects(
        np.array(heads),
        np.array(pairs),
        np.array([loss(head) - whole for head in heads]),
        np.array([loss(heads[a], heads[b]) - whole for a, b in pairs]),
    )


# Induction ------------------------------------------------------------------------------------------


Path = Literal["q", "k", "v", "all", "direct"]
PATHS: tuple[Path, ...] = ("q", "k", "v", "all", "direct")
"""The ways from a first layer's heads: to what the second layer reads for its queries, keys, values, to all
three, and past the second layer to the logits."""
_TAPS = {"q": ("queries", "query"), "k": ("keys", "key"), "v": ("values", "value")}


@torch.no_grad()
def patched(model: Model, batch: Batch, path: Path) -> Float[Tensor, "batch position vocab"]:
    """Logits when over one path the first layer's heads bring what they wrote on another sequence.

    All other paths stay as they are. The other sequence is the next one of the batch, so that what is common to
    all sequences, such as the place, goes on arriving.

    Args:
        model: two blocks of attention alone, with norms before it.
        batch: of at least two sequences.
        path: the way that is cut.

    Raises:
        ValueError: for another number of blocks, or a batch of one.
    """
    if len(model.blocks) != 2 or len(batch.inputs) < 2:  # type: ignore[arg-type]
        raise ValueError(
            f"expected two blocks and two sequences, got {len(model.blocks)} "  # type: ignore[arg-type]
            f"and {len(batch.inputs)}"
        )
    with capture(model, "blocks.0.attention.out", "blocks.1.residual_pre") as seen:
        predict(model, batch)
    wrote, stream = seen["blocks.0.attention.out"], seen["blocks.1.residual_pre"]
    other = wrote.roll(1, dims=0) - wrote
    if path == "direct":
        with intervene(model, {"blocks.1.residual_post": lambda x: x + other}):
            return predict(model, batch)
    block = cast(Block, model.blocks[1])  # type: ignore[index]
    read = block.attention_norm(stream + other)
    changes = {}
    for each in _TAPS if path == "all" else (path,):
        tap, projection = _TAPS[each]
        whole = block.attention.get_submodule(projection)(read)
        heads = whole.unflatten(-1, (-1, block.attention.d_head)).transpose(1, 2)
        changes[f"blocks.1.attention.{tap}"] = heads
    with intervene(model, changes):
        return predict(model, batch)


def right(logits: Float[Tensor, "batch position vocab"], batch: Batch) -> float:
    """Share of the scored positions with the right answer."""
    found = (logits.argmax(-1) == batch.targets)[batch.scored]
    return float(found.double().mean())


# Drawn layers ---------------------------------------------------------------------------------------

DRAWS = 50
CHECKS = (
    "joined", "split", "printed", "stacked", "sum", "matrices", "torch", "parameters", "sizes",
    "removed", "causal", "ov", "ov with bias", "qk", "stream", "two maps",
)  # fmt: skip
"""What is checked on drawn layers, each with a control that must fail."""


def _off(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max())


def parameters(d: int, k: int, d_h: int | None = None, *, bias: bool = False) -> int:
    """The number of weights of a layer of attention with k heads, counted."""
    return sum(w.numel() for w in MultiHeadAttention(d, k, d_head=d_h, bias=bias).parameters())


def _sums(seed: int) -> dict[str, tuple[float, float]]:
    """Heads as wide as the model, as the exercise sheet has them: concatenated, and as a sum."""
    attention, x = drawn_attention(seed, wide=True)
    outputs, blocks = heads_of(attention, x)
    terms, whole = outputs @ blocks[:, None], attention(x) + x
    side_by_side = torch.cat(list(outputs), dim=-1) @ blocks.flatten(0, 1)
    w_o = attention.output.weight.T
    other = torch.randn(blocks.shape, dtype=blocks.dtype, generator=make_generator(seed, "other"))
    return {
        "joined": (_off(concatenated(attention, x) + x, whole), _off(whole, whole - x)),
        "split": (
            _off(terms.sum(0), side_by_side),
            _off((outputs @ blocks.flip(0)[:, None]).sum(0), side_by_side),
        ),
        "printed": (
            _off(blocks.mT.flatten(0, 1), w_o),
            _off(blocks.mT.flip(0).flatten(0, 1), w_o),
        ),
        "stacked": (_off(blocks.flatten(0, 1), w_o), _off(blocks.flip(0).flatten(0, 1), w_o)),
        "sum": (_off(terms.sum(0) + x, whole), _off(terms[1:].sum(0) + x, whole)),
        "matrices": (
            _off((outputs @ blocks[:, None]).sum(0), whole - x),
            _off((outputs @ other[:, None]).sum(0), whole - x),
        ),
    }


def _modules(seed: int) -> dict[str, tuple[float, float]]:
    """Against PyTorch's module, and what a layer's weights number."""
    attention, x = drawn_attention(seed, bias=True)
    theirs = as_torch(attention)(x, x, x, need_weights=False)[0]
    swapped = drawn_attention(seed, bias=True)[0]
    out = attention.output.weight.unflatten(1, (attention.n_heads, -1))
    swapped.output.weight.copy_(out.flip(1).flatten(1))
    extra, k, d_h = np.random.default_rng(seed).integers(2, 9, size=3).tolist()
    d = extra + d_h + 1  # wider than a head
    counted, narrow = parameters(d, k, d_h), parameters(k * d_h, k, bias=True)
    return {
        "torch": (_off(theirs, attention(x)), _off(theirs, swapped(x))),
        "parameters": (
            float(narrow - parameters(k * d_h, 1, bias=True)),
            float(parameters(k * d_h, k, k * d_h, bias=True) - narrow),
        ),
        "sizes": (float(counted - 4 * k * d * d_h), float(counted - 4 * k * d * d)),
    }


def _removal(seed: int) -> tuple[float, float]:
    """A head removed: by how much the layer's output changes, and the same behind a norm."""
    attention, x = drawn_attention(seed)
    outputs, blocks = heads_of(attention, x)
    whole = attention(x) + x
    with intervene(attention, {"mixed": at(0.0, heads=0)}):  # the first head is silent
        without = attention(x) + x
    own, norm = outputs[0] @ blocks[0], LayerNorm(x.shape[-1]).double()
    return _off(whole - without, own), _off(norm(whole) - norm(without), own)


def _one_head(seed: int, *, bias: bool) -> dict[str, tuple[float, float]]:
    """A head's write and pattern from its two circuits."""
    attention, x = drawn_attention(seed, bias=bias)
    with capture(attention, "pattern", "head_outputs") as seen:
        attention(x)
    (qk, ov), (_, other) = (module_circuits(attention, head) for head in (0, 1))
    a, write = seen["pattern"][:, 0], seen["head_outputs"][:, 0]
    factors = a @ x @ ov.form.left @ ov.form.right + ov.bias
    crossed = a @ x @ ov.form.left @ other.form.right + ov.bias  # values of one, output of another
    scores = qk.scores(x, x)
    sharper = scores * attention.d_head**0.5
    return {
        "ov": (
            max(_off(factors, write), _off(ov.writes(a, x), write)),
            _off(crossed, write),
        ),
        "qk": (_off(scores.softmax(-1), a), _off(sharper.softmax(-1), a)),
    }


def _reads(seed: int) -> tuple[tuple[float, float], tuple[int, int]]:
    """A head's write when what is ahead changes, with and without a mask; ranks of writes less the width."""
    attention, x = drawn_attention(seed, d_head=2)
    cut = x.shape[1] // 2
    changed = x.clone()
    changed[:, cut:] += torch.randn(
        changed[:, cut:].shape, dtype=x.dtype, generator=make_generator(seed, "ahead")
    )
    moved, found = [], []
    for causal in (True, False):
        pair = []
        for given in (x, changed):
            with capture(attention, "head_outputs") as seen:
                attention(given, causal=causal)
            pair.append(seen["head_outputs"])
        moved.append(_off(pair[0][:, 0, :cut], pair[1][:, 0, :cut]))
        found.append(pair[0])
    rank = torch.linalg.matrix_rank
    one, all_heads = found[0][:, 0].flatten(0, 1), found[0].sum(1).flatten(0, 1)
    return (moved[0], moved[1]), (int(rank(one)) - 2, int(rank(all_heads)) - 2)


def _stream(seed: int) -> tuple[float, float]:
    """What a block's attention adds to the stream, against the sum of its heads."""
    model, tokens = random_model(seed, placement="pre", attention_bias=False, n_heads=4)
    taps = ("blocks.0.residual_*", "blocks.0.attention.head_outputs")
    with capture(model, *taps) as seen:
        model(tokens)
    added = seen["blocks.0.residual_mid"] - seen["blocks.0.residual_pre"]
    heads = seen["blocks.0.attention.head_outputs"]
    return _off(heads.sum(1), added), _off(heads[:, 1:].sum(1), added)


def _ranks(seed: int) -> tuple[int, int, int, int]:
    """Rank of score forms less the width, of a free form; heads that two patterns and one amount to."""
    attention, x = drawn_attention(seed)
    with capture(attention, "pattern") as seen:
        attention(x)
    circuits = [module_circuits(attention, head) for head in (0, 1)]
    d = attention.d_model
    free = torch.randn(d, d, dtype=torch.float64, generator=make_generator(seed, "free"))
    patterns = seen["pattern"][0, :2]
    forms = torch.stack([ov.form.matrix for _, ov in circuits])
    two, one = (int((map_values(patterns[:n], forms[:n]) > 1e-9).sum()) for n in (2, 1))
    largest = max(qk.form.rank() for qk, _ in circuits)
    return (
        largest - attention.d_head,
        int(torch.linalg.matrix_rank(free)) - attention.d_head,
        two,
        one,
    )


@measurement(
    seeds=1,
    coords={"check": CHECKS, "draw": tuple(range(DRAWS)), "entry": tuple(range(7))},
    tolerance={
        "error": 1e-9,
        "control": 1e-6,
        "numbers": 1e-6,
        "bound": 1e-6,
        "one_head": 1e-6,
    },
)
@torch.no_grad()
def drawn(seed: int) -> dict[str, Any]:
    """Heads as a sum, their circuits and their ranks, on 50 drawn layers each, with controls that must fail."""
    del seed
    error, control = [], []
    ranks, numbers, bound, one_head = [], [], [], []
    for draw in range(DRAWS):
        maps = two_maps(draw)
        causal, writes = _reads(draw)
        found = _sums(draw) | _modules(draw) | _one_head(draw, bias=False)
        found["ov with bias"] = _one_head(draw, bias=True)["ov"]
        found["removed"], found["causal"], found["stream"] = _removal(draw), causal, _stream(draw)
        reached = maps.attention(maps.x)[0, 3:]
        found["two maps"] = _off(reached, maps.target), maps.bound
        error.append([found[check][0] for check in CHECKS])
        control.append([found[check][1] for check in CHECKS])
        ranks.append([*writes, *_ranks(draw)])
        attention, x = drawn_attention(draw, wide=True)
        numbers.append(round(best_numbers(heads_of(attention, x)[0], attention(x)), 9))
        bound.append(round(maps.bound, 9))
        one_head.append(round(maps.one_head, 9))
    with seeded(0):
        qk, ov = module_circuits(MultiHeadAttention(768, 12, bias=False), head=3)
    del qk
    shapes = [*ov.form.left.shape, *ov.form.right.shape, *ov.form.matrix.shape, ov.form.rank()]
    columns = np.array(ranks).T.tolist()
    names = ("writes", "all_writes", "form", "free_form", "two_patterns", "one_pattern")
    return {
        "error": (("check", "draw"), np.array(error).T.tolist()),
        "control": (("check", "draw"), np.array(control).T.tolist()),
        "numbers": ("draw", numbers),
        "bound": ("draw", bound),
        "one_head": ("draw", one_head),
        **{name: ("draw", values) for name, values in zip(names, columns, strict=True)},
        "shapes": ("entry", [int(each) for each in shapes]),
        "head_width": Config(vocab=1, d_model=768, n_heads=8).head_width,
        "printed_exists": int(_exists(torch.ones(768, 64), torch.ones(768, 64))),
    }


def _exists(left: Tensor, right: Tensor) -> bool:
    """Return whether two matrices have a product."""
    try:
        return (left @ right).ndim == 2
    except RuntimeError:  # shapes that do not fit
        return False


# Two places at once ---------------------------------------------------------------------------------

FEW_HEADS = (1, 2, 4, 8)
PLACES = TwoPlaces(vocab=6, length=8)
PLACE_STEPS = 500
"""The step at which the arms are compared, and for which their rates are chosen."""
PLACE_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
EVALUATED = 50


def places_trainings(seed: int) -> dict[int, Job]:
    """One block of width 32 with one to eight heads, each at its own rate; one head for twice as long."""
    jobs = {}
    for heads in FEW_HEADS:
        config = Config(
            vocab=PLACES.vocab,
            d_model=32,
            n_layers=1,
            n_heads=heads,
            positions="learned",
            max_length=32,
        )
        options = {"batch_size": 32}
        search = Search(
            f"heads-two-places-{heads}",
            config,
            PLACES,
            PLACE_RATES,
            tuning_seeds(2),
            PLACE_STEPS,
            options,
        )
        jobs[heads] = job(
            config,
            PLACES,
            seed,
            steps=PLACE_STEPS * (2 if heads == 1 else 1),
            learning_rate=tuned(search),
            evaluate_every=EVALUATED,
            **options,
        )
    return jobs


@measurement(
    seeds=12,
    coords={
        "heads": FEW_HEADS,
        "step": tuple(range(EVALUATED, PLACE_STEPS + 1, EVALUATED)),
        "late": tuple(range(PLACE_STEPS + EVALUATED, 2 * PLACE_STEPS + 1, EVALUATED)),
    },
    trainings=places_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3, "one_later": 0.3},
)
def places(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy on a label that needs two places, over the steps; of one head also later."""
    del seed
    until = PLACE_STEPS // EVALUATED
    return {
        "accuracy": (
            ("heads", "step"),
            [runs[heads].evaluation_accuracies[:until].tolist() for heads in FEW_HEADS],
        ),
        "one_later": ("late", runs[1].evaluation_accuracies[until:].tolist()),
    }


LATER_STEPS = 3 * PLACE_STEPS
LATER_AT = tuple(range(250, LATER_STEPS + 1, 250))
FRESH = 2
"""Added to each seed: models of which no earlier look has shown anything."""


def later_trainings(seed: int) -> dict[int, Job]:
    """One head and two heads on two places for three times as long, from seeds of their own."""
    jobs = {}
    for heads in (1, 2):
        first = places_trainings(seed + FRESH)[heads]
        jobs[heads] = job(
            first.config,
            PLACES,
            seed + FRESH,
            steps=LATER_STEPS,
            learning_rate=first.settings["learning_rate"],
            evaluate_every=LATER_AT[0],
            batch_size=32,
        )
    return jobs


@measurement(
    seeds=12,
    coords={"heads": (1, 2), "step": LATER_AT},
    trainings=later_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3},
)
def later(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy on a label that needs two places, of one head and of two, over three times as many steps."""
    del seed
    return {
        "accuracy": (
            ("heads", "step"),
            [runs[heads].evaluation_accuracies.tolist() for heads in (1, 2)],
        )
    }


# One wide head or many narrow ones --------------------------------------------------------------------

COUNTS = (1, 2, 4, 8, 16)
STREAM = 64
LOOKUP = JoinedRecall(pairs=16, queries=8, keys=16, values=8)
TASKS: Mapping[str, tuple[Task, str, int, int]] = {
    "recall": (LOOKUP, "none", 200, 16),
    "translation": (
        NoisyTranslation(symbols=8, length=8, pad_share=0.4, noise=0.1),
        "learned",
        150,
        16,
    ),
}
"""Task -> itself, how it is told of order, steps and sequences a step."""
COUNT_RATES = (1e-3, 2.5e-3, 6.3e-3, 1.6e-2, 4e-2, 1e-1)
NARROW = (1, 2, 4, 8)
"""Widths of a head that is alone."""


def count_job(name: str, heads: int, width: int, seed: int) -> Job:
    """One block of width 64 on a task, at the rate that suits this number of heads of this width."""
    task, positions, steps, batch_size = TASKS[name]
    config = Config(
        vocab=task.vocab,
        d_model=STREAM,
        n_layers=1,
        n_heads=heads,
        d_head=width,
        d_ff=STREAM,
        positions=cast(Any, positions),
        max_length=64,
        norm="rms",
        bias=False,
    )
    options = {"batch_size": batch_size}
    search = Search(
        f"heads-{name}-{heads}x{width}", config, task, COUNT_RATES, tuning_seeds(1), steps, options
    )
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)


def counts_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Each task with one to sixteen heads that are together as wide as the stream."""
    return {
        (name, heads): count_job(name, heads, STREAM // heads, seed)
        for name in TASKS
        for heads in COUNTS
    }


@measurement(
    seeds=24,
    coords={"task": tuple(TASKS), "heads": COUNTS},
    trainings=counts_trainings,
    repeat="opening",
    tolerance={"loss": 0.3, "accuracy": 0.2},
)
def counts(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Loss and accuracy with one to sixteen heads at equal parameters, on two tasks."""
    scores = [
        [evaluate(runs[name, heads].model, TASKS[name][0], seed=seed) for heads in COUNTS]
        for name in TASKS
    ]
    axes = ("task", "heads")
    return {
        "loss": (axes, [[score.loss for score in row] for row in scores]),
        "accuracy": (axes, [[score.accuracy for score in row] for row in scores]),
    }


SHORTER = (1, 8, 16)
SHORTER_STEPS = 80


def shorter_trainings(seed: int) -> dict[int, Job]:
    """Recall with so few steps that eight heads are not done, each number of heads at its own rate."""
    jobs = {}
    for heads in SHORTER:
        config = count_job("recall", heads, STREAM // heads, seed).config
        options = {"batch_size": 16}
        search = Search(
            f"heads-shorter-{heads}",
            config,
            LOOKUP,
            COUNT_RATES,
            tuning_seeds(3),
            SHORTER_STEPS,
            options,
        )
        jobs[heads] = job(
            config, LOOKUP, seed, steps=SHORTER_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=24,
    coords={"heads": SHORTER},
    trainings=shorter_trainings,
    repeat="opening",
    tolerance={"loss": 0.5},
)
def shorter(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Loss at recall with one, eight and sixteen heads, after steps so few that none has learned it."""
    return {"loss": ("heads", [evaluate(runs[h].model, LOOKUP, seed=seed).loss for h in SHORTER])}


def narrow_trainings(seed: int) -> dict[int, Job]:
    """Recall with a single head that is much narrower than the stream."""
    return {width: count_job("recall", 1, width, seed) for width in NARROW}


@measurement(
    seeds=24,
    coords={"width": NARROW},
    trainings=narrow_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2},
)
def narrow(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy at recall of a single head of width 1 to 8 in a stream of 64."""
    return {
        "accuracy": (
            "width",
            [evaluate(runs[width].model, LOOKUP, seed=seed).accuracy for width in NARROW],
        )
    }


# Induction, trained -----------------------------------------------------------------------------------

STRINGS = Induction(vocab=16, length=24, shortest=4, longest=10)
STRING_STEPS = 400
STRING_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
ARMS = ("learned", "rotary", "one layer")
"""Two layers of four heads with learned or rotary positions; one layer of eight, with learned ones."""


def string_config(arm: str) -> Config:
    """A decoder of width 32 whose blocks are attention alone once they are prepared."""
    one = arm == "one layer"
    return Config(
        vocab=STRINGS.vocab,
        d_model=32,
        n_layers=1 if one else 2,
        n_heads=8 if one else 4,
        d_head=8,
        d_ff=1,
        positions="rotary" if arm == "rotary" else "learned",
        max_length=32,
        norm="rms",
        bias=False,
    )


def induction_trainings(seed: int) -> dict[str, Job]:
    """Each arm at the rate that suits it."""
    jobs = {}
    for arm in ARMS:
        config, options = string_config(arm), {"batch_size": 32, "prepare": without_ffn}
        search = Search(
            f"heads-induction-{arm.replace(' ', '-')}",
            config,
            STRINGS,
            STRING_RATES,
            tuning_seeds(6),
            STRING_STEPS,
            options,
        )
        jobs[arm] = job(
            config, STRINGS, seed, steps=STRING_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "deep": ARMS[:2],
        "state": ("untrained", "trained"),
        "layer": (0, 1),
        "head": (0, 1, 2, 3),
        "path": PATHS,
        "by": ("q", "k", "v"),
    },
    trainings=induction_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.1, "previous": 0.3, "prefix": 0.3, "cut": 0.3, "fit": 0.3},
)
@torch.no_grad()
def induction(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What heads of models that continue strings look at, and over which path the first layer matters."""
    batch = STRINGS.batch(make_generator(seed, "strings"), 256)
    looked = [[_looks(model, batch) for model in _states(runs[arm], seed)] for arm in ARMS[:2]]
    axes = ("deep", "state", "layer", "head")
    return {
        "accuracy": ("arm", [right(predict(runs[arm].model, batch), batch) for arm in ARMS]),
        "previous": (axes, [[each["previous"] for each in row] for row in looked]),
        "prefix": (axes, [[each["prefix"] for each in row] for row in looked]),
        "cut": (
            ("deep", "path"),
            [
                [right(patched(runs[arm].model, batch, path), batch) for path in PATHS]
                for arm in ARMS[:2]
            ],
        ),
        "fit": (
            ("deep", "state", "by"),
            [[_fits(model, batch) for model in _states(runs[arm], seed)] for arm in ARMS[:2]],
        ),
    }


def _states(run: Run, seed: int) -> tuple[Model, Model]:
    fresh = make_model(run.model.config, causal=True, seed=seed)
    without_ffn(fresh)
    return fresh, run.model


def _looks(model: Model, batch: Batch) -> dict[str, list[list[float]]]:
    """Both scores of every head, layer by layer."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        predict(model, batch)
    patterns = [pattern.double() for pattern in seen.values()]
    return {
        "previous": [previous_token_score(pattern).tolist() for pattern in patterns],
        "prefix": [prefix_matching_score(pattern, batch.inputs).tolist() for pattern in patterns],
    }


def _fits(model: Model, batch: Batch) -> list[float]:
    """Composition scores, over chance, of the head that looks back most with the one that matches most."""
    looks = _looks(model, batch)
    earlier = int(np.argmax(looks["previous"][0]))
    later = int(np.argmax(looks["prefix"][1]))
    rotary = model.config.positions == "rotary"
    found = compositions(cast(Any, model), 0, 1, offset=1 if rotary else None)
    return [float(table[earlier, later]) / found.baseline for table in (found.q, found.k, found.v)]


# Heads together -----------------------------------------------------------------------------------------

CHAINS = JoinedTwoHop(chains=3, names=4, values=4)
ASKED = JoinedRecall(pairs=4, queries=3, keys=6, values=6)
DEPTHS = (1, 2, 6)
PAIR_STEPS = 300
PAIR_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)


def task_of(depth: int) -> Task:
    """What a model of this depth learns: recall by one look, or by two that build on one another."""
    return ASKED if depth == 1 else CHAINS


def pairs_trainings(seed: int) -> dict[int, Job]:
    """Models of one, two and six layers of four heads."""
    jobs = {}
    for depth in DEPTHS:
        task = task_of(depth)
        config = Config(
            vocab=task.vocab,
            d_model=32,
            n_layers=depth,
            n_heads=4,
            d_ff=32,
            positions="none",
            norm="rms",
            bias=False,
        )
        options = {"batch_size": 32}
        search = Search(
            f"heads-together-{depth}",
            config,
            task,
            PAIR_RATES,
            tuning_seeds(2),
            PAIR_STEPS,
            options,
        )
        jobs[depth] = job(
            config, task, seed, steps=PAIR_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={"depth": DEPTHS, "deep": DEPTHS[1:]},
    trainings=pairs_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.1, "one_layer": 0.5, "two_layers": 0.5, "excess": 0.5},
)
def pairs(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """The share of the joint effect of two heads on the loss that their single effects do not add up to."""
    effects = {
        depth: pair_effects(
            runs[depth].model, task_of(depth).batch(make_generator(seed, "pairs"), 128)
        )
        for depth in DEPTHS
    }
    return {
        "accuracy": (
            "depth",
            [evaluate(runs[d].model, task_of(d), seed=seed).accuracy for d in DEPTHS],
        ),
        "one_layer": ("depth", [each.share(each.same_layer) for each in effects.values()]),
        "two_layers": ("deep", [effects[d].share(~effects[d].same_layer) for d in DEPTHS[1:]]),
        "excess": (
            "depth",
            [float(each.interaction[each.same_layer].sum()) for each in effects.values()],
        ),
    }
