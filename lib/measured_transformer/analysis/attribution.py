r"""Attribution: ten methods that tell which earlier tokens an answer depends on.

All methods take a model and tokens, and most of them a `Target`: one number a sequence, read off the logits,
that is to be explained (`answer_logit`). What they give differs in kind.

- **Where attention looks**: `attention_weights`; `weighted_norms`, which counts what is fetched and not only
  how much attention there is; `rollout` and `flow`, which follow the weights through several layers. None of
  them asks what the model does with what it looks at.
- **Slopes**: `gradients` of the target with respect to the stream that enters the first block, their length,
  their product with the input (`gradient_times_input`), the sum of slopes on the way from a baseline
  (`integrated_gradients`), and the slope with respect to the attention weights (`attention_times_gradient`,
  `relevance_rollout`).
- **Interventions**: `occlusion` takes a token away, in four ways. `patching` has those on parts.
- **An account**: `direct_logits` splits the logits into what each part adds to them.

Input gradients and integrated gradients are defined as Captum defines them, with the tap `embedding` as the
layer. All methods take a model with its tokenizer and texts as well, see `texts`.

Sources: Abnar and Zuidema (2020); Kobayashi et al. (2020); Simonyan et al. (2014); Sundararajan et al.
(2017); Chefer et al. (2021); Zeiler and Fergus (2014); Elhage et al. (2021).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex, cast, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.stats import rankdata
from torch import Tensor, nn

from measured_transformer.analysis.sums import held_norm, require_sum
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import select_one
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block

Explained = Decoder | Encoder
Target = Callable[[Tensor], Tensor]
"""From logits (example, position, vocab) to the number that is explained, one an example."""
Occluded = Literal["zero", "mean", "resample", "delete"]

STEPS = 50
"""Points of the quadrature of `integrated_gradients`, as many as Captum takes."""
GAP = 0.05
"""Share of what integrated gradients should add up to that may be missing before they warn."""
_CAPACITY = 10**6
"""Units of flow that an attention weight of one lets through: capacities are whole numbers."""


Answers = SupportsIndex | Sequence[SupportsIndex] | Tensor | ndarray
"""Tokens by number, one for each example; a single one is that of all."""


def answer_logit(position: SupportsIndex, answers: Answers) -> Target:
    """The logit of the right answer at one position.

    Args:
        position: where the answer is read, from the end when negative.
        answers: the token of each example; a single one is that of all.

    Raises:
        ValueError: when the answers are no whole numbers; when the target is called, if there is no such
            position or token, or not one answer for each example, or if the logits are not of positions.

    >>> answer_logit(-1, torch.tensor([1]))(torch.tensor([[[0.0, 0.0], [3.0, 5.0]]]))
    tensor([5.])
    """
    return _logit_of(position, "answers", answers)


def logit_difference(position: SupportsIndex, right: Answers, wrong: Answers) -> Target:
    """The logit of the right answer less that of a wrong one, at one position.

    It is the logarithm of how many times likelier the right one is; what raises all logits alike does not
    count.

    Args:
        position: where the answer is read, from the end when negative.
        right, wrong: tokens, one for each example; a single one is that of all.

    Raises:
        ValueError: as `answer_logit`.

    >>> logit_difference(-1, 1, 0)(torch.tensor([[[0.0, 0.0], [3.0, 5.0]]]))
    tensor([2.])
    """
    plus, minus = _logit_of(position, "right", right), _logit_of(position, "wrong", wrong)

    def target(logits: Tensor) -> Tensor:
        return plus(logits) - minus(logits)

    return target


def _logit_of(position: SupportsIndex, name: str, given: Answers) -> Target:
    answers = _token_numbers(name, given)

    def target(logits: Tensor) -> Tensor:
        if logits.ndim != 3:
            raise ValueError(
                "expected logits of each position, (example, position, vocab), got shape "
                f"{tuple(logits.shape)}: explain a class by a function, such as lambda logits: logits[:, 1]"
            )
        if answers.ndim and answers.shape != logits.shape[:1]:
            raise ValueError(
                f"expected one answer for each of {len(logits)} examples, got shape {tuple(answers.shape)}"
            )
        vocab = logits.shape[-1]
        if answers.numel() and not 0 <= int(answers.min()) <= int(answers.max()) < vocab:
            raise ValueError(f"expected {name} below vocab={vocab}, got {answers.tolist()}")
        read = logits[:, select_one("position", position, logits.shape[1])]
        return read.gather(1, answers.to(read.device).expand(len(read))[:, None])[:, 0]

    return target


def _token_numbers(name: str, given: Answers) -> Int[Tensor, "..."]:
    """One token or several. Raises ValueError when they are no whole numbers, or a table of them."""
    try:
        found = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(1)  # no whole number
    whole = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if found.ndim > 1 or (found.numel() and not whole):
        raise ValueError(
            f"{name} must be the number of a token, or a list of them, one for each example (an `encode` makes "
            f"numbers of words); got {' '.join(repr(given).split()):.80}"
        )
    return found.long()


# Where attention looks ------------------------------------------------------------------------------


@takes_text("tokens")
@torch.no_grad()
def attention_weights(
    model: Explained, tokens: Int[Tensor, "example position"]
) -> Float[Tensor, "layer example head query key"]:
    """The attention pattern of every head of every layer."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(tokens)
    return torch.stack(list(seen.values()))


@takes_text("tokens")
@torch.no_grad()
def weighted_norms(
    model: Explained, tokens: Int[Tensor, "example position"]
) -> Float[Tensor, "layer example query key"]:
    r"""Length of what each query fetches from each key, all heads together.

    $\lVert \sum_h \alpha^h_{ij} f^h(x_j) \rVert$ with $f^h(x) = (x W_V^h + b_V^h) W_O^h$: a weight on a key
    whose value is zero counts for nothing. Heads that share their values (grouped-query attention) each have
    their own part of $W_O$. Source: Kobayashi et al. (2020), equation 6.
    """
    found = []
    with capture(model, "blocks.*.attention.pattern", "blocks.*.attention.values") as seen:
        model(tokens)
    for i, block in enumerate(model.blocks):
        attention = cast(Block, block).attention
        shared = attention.n_heads // attention.n_kv_heads
        fetched = torch.einsum(
            "ehqk,ehkw,hwd->eqkd",
            seen[f"blocks.{i}.attention.pattern"],
            seen[f"blocks.{i}.attention.values"].repeat_interleave(shared, 1),
            _output_blocks(attention),
        )
        found.append(fetched.norm(dim=-1))
    return torch.stack(found)


def _output_blocks(attention: MultiHeadAttention) -> Float[Tensor, "head d_head d_model"]:
    return attention.output.weight.detach().T.unflatten(0, (attention.n_heads, -1))


def rollout(
    weights: Float[Tensor, "layer example query key"], *, kept: float = 0.5
) -> Float[Tensor, "example query key"]:
    r"""Attention followed through all layers: the product of $kI + (1-k)A_l$, from the last layer to the first.

    A token's residual connection counts as attention of size `kept` to itself.
    Rows sum to one where those of the weights do. Source: Abnar and Zuidema (2020), section 2.

    Args:
        weights: attention of each layer, averaged over heads.
        kept: the share of the residual connection.

    Raises:
        ValueError: when `kept` is no share.

    >>> look_back = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> rollout(torch.cat([look_back, look_back]))[0, 1]
    tensor([0.7500, 0.2500])
    """
    if not 0 <= kept <= 1:
        raise ValueError(f"kept must lie between 0 and 1, got {kept}")
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype)
    found = eye.expand_as(weights[0])
    for layer in weights:
        found = (kept * eye + (1 - kept) * layer) @ found
    return found


def flow(
    weights: Float[Tensor, "layer example query key"], query: int, *, kept: float = 0.5
) -> Float[Tensor, "example key"]:
    """The largest flow from one query, after the last layer, down to each token, with attention as capacities.

    One node for each position before and after each layer; the same weights as in `rollout` are what an edge
    lets through. With one layer it is the weight itself. Source: Abnar and Zuidema (2020), section 2.

    Args:
        weights: attention of each layer, averaged over heads.
        query: the position that asks, from the end when negative.
        kept: the share of the residual connection.

    Raises:
        ValueError: when `kept` is no share or there is no such query.

    >>> look_back = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> flow(torch.cat([look_back, look_back]), -1)
    tensor([[1.0000, 0.5000]])
    """
    if not 0 <= kept <= 1:
        raise ValueError(f"kept must lie between 0 and 1, got {kept}")
    depth, examples, n, _ = weights.shape
    query = select_one("query", query, n)
    mixed = kept * torch.eye(n, dtype=weights.dtype) + (1 - kept) * weights
    capacity = (mixed * _CAPACITY).round().to(torch.int32).numpy()
    found = torch.zeros(examples, n, dtype=weights.dtype)
    for example in range(examples):
        graph = np.zeros(((depth + 1) * n, (depth + 1) * n), dtype=np.int32)
        for layer in range(depth):
            above, below = (slice(at * n, (at + 1) * n) for at in (layer + 1, layer))
            graph[above, below] = capacity[layer, example]
        edges, top = csr_array(graph), depth * n + query
        for key in range(n):
            found[example, key] = maximum_flow(edges, top, key).flow_value / _CAPACITY
    return found


# Slopes ---------------------------------------------------------------------------------------------


@takes_text("tokens")
@torch.no_grad()
def embedded(
    model: Explained, tokens: Int[Tensor, "example position"]
) -> Float[Tensor, "example position d_model"]:
    """What enters the first block: the tokens' vectors and, where the scheme adds them, positions."""
    with capture(model, "embedding") as seen:
        model(tokens)
    return seen["embedding"]


def explained(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    entered: Float[Tensor, "example position d_model"],
    target: Target,
) -> Float[Tensor, "example"]:
    """The target, when this enters the first block in place of the tokens' own vectors.

    Raises:
        ValueError: when the target is not one number for each example.
    """
    with intervene(model, {"embedding": entered}):
        return answered(target, model(tokens))


def answered(target: Target, logits: Tensor, *, slopes: bool = False) -> Float[Tensor, "example"]:
    """What a target gives for logits.

    Args:
        target: is called.
        logits: what it reads.
        slopes: whether gradients are to be taken of it.

    Raises:
        ValueError: when it is not one number for each example, or has no gradient where one is asked for.
    """
    value = target(logits)
    if not isinstance(value, Tensor) or value.shape != logits.shape[:1]:
        came = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"a target must give one number for each of {len(logits)} examples, got {came}: give a tensor with "
            "an entry for each row of the logits"
        )
    if slopes and not value.requires_grad:
        raise ValueError(
            "a target must be computed from the logits by steps that have gradients, got numbers without: "
            "leave out detach, argmax, comparisons and numbers of Python"
        )
    return value


@takes_text("tokens")
def gradients(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    target: Target,
    *,
    entered: Float[Tensor, "example position d_model"] | None = None,
) -> Float[Tensor, "example position d_model"]:
    """The target's gradient with respect to what enters the first block.

    The length of each position's gradient is the *saliency* of its token (Simonyan et al., 2014).

    Args:
        model: is left as it is; no parameter gets a gradient.
        tokens, target: what is asked, and what is explained.
        entered: where the gradient is taken; at the tokens' own vectors when not given.

    Raises:
        ValueError: when `entered` has not one vector for each token, or the target is not one number for each
            example or has no gradient.
    """
    start = embedded(model, tokens) if entered is None else entered
    if start.shape[:-1] != tokens.shape:  # a single row would get the sum of all gradients
        raise ValueError(
            f"entered must have one vector for each token of shape {tuple(tokens.shape)}, got shape "
            f"{tuple(start.shape)}"
        )
    leaf = start.detach().clone().requires_grad_()
    with torch.enable_grad():
        with intervene(model, {"embedding": leaf}):
            value = answered(target, model(tokens), slopes=True)
        return torch.autograd.grad(value.sum(), leaf)[0]


@takes_text("tokens")
def gradient_times_input(
    model: Explained, tokens: Int[Tensor, "example position"], target: Target
) -> Float[Tensor, "example position"]:
    """Gradient times input, summed over the entries of each position: Captum's `LayerGradientXActivation`.

    The layer is the tap `embedding`.
    """
    return (gradients(model, tokens, target) * embedded(model, tokens)).sum(-1)


@takes_text("tokens")
def integrated_gradients(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    target: Target,
    *,
    baseline: Float[Tensor, "..."] | float | None = None,
    steps: int = STEPS,
) -> Float[Tensor, "example position"]:
    r"""Integrated gradients, summed over the entries of each position.

    $(x - b) \cdot \int_0^1 \nabla F(b + \alpha (x - b))\, d\alpha$ by Gauss-Legendre quadrature, as Captum's
    `IntegratedGradients` of these vectors has it: 50 points by default. They add up to $F(x) - F(b)$ as far as
    the quadrature is exact (`completeness_gap`); where they do not, a warning says so. Source: Sundararajan et
    al. (2017).

    The path starts by default at what token 0 would be at each position, as in Captum's
    `LayerIntegratedGradients`. Its `IntegratedGradients` of vectors starts at zero: a norm makes a vector of
    length one even of the shortest one, jumps at zero, and no number of points makes up for that.

    Args:
        model, tokens, target: as for `gradients`.
        baseline: where the path starts, in place of what enters the first block; broadcasts to its shape. What
            token 0 would be at each position when not given.
        steps: points of the quadrature.

    Raises:
        ValueError: when `steps` is below one.

    Warns:
        UserWarning: when an example's attributions miss what they should add up to by more than `GAP` of it, or
            of the sum of their sizes where that is larger.
    """
    if steps < 1:
        raise ValueError(f"the quadrature needs at least one point, got steps={steps}")
    end, start = embedded(model, tokens), _start(model, tokens, baseline)
    points, shares = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(end)
    for point, share in zip((1 + points) / 2, shares / 2, strict=True):
        at = start + float(point) * (end - start)
        total += float(share) * gradients(model, tokens, target, entered=at)
    found = ((end - start) * total).sum(-1)
    gap = completeness_gap(model, tokens, target, found, baseline=start)
    size = torch.maximum((found.sum(-1) - gap).abs(), found.abs().sum(-1))
    share = float((gap.abs() / size.clamp_min(torch.finfo(size.dtype).tiny)).max())
    if not share <= GAP:
        warnings.warn(
            f"integrated gradients do not add up: at worst they are {share:.0%} off with steps={steps}. More "
            "steps help where the path is smooth; where a norm jumps at its start, as at a baseline of zeros, "
            "take another baseline",
            UserWarning,
            stacklevel=2,
        )
    return found


def _start(
    model: Explained, tokens: Tensor, baseline: Tensor | float | None
) -> Float[Tensor, "example position d_model"]:
    """Where the path of integrated gradients starts."""
    end = embedded(model, tokens)
    if baseline is None:
        return embedded(model, torch.zeros_like(tokens))
    return torch.as_tensor(baseline, dtype=end.dtype, device=end.device).expand_as(end)


@takes_text("tokens")
@torch.no_grad()
def completeness_gap(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    target: Target,
    attributions: Float[Tensor, "example position"],
    *,
    baseline: Float[Tensor, "..."] | float | None = None,
) -> Float[Tensor, "example"]:
    """The sum of the attributions minus the target's distance from its value at the baseline.

    Captum's `compute_convergence_delta`. The baseline is that of `integrated_gradients`.
    """
    end, start = embedded(model, tokens), _start(model, tokens, baseline)
    change = explained(model, tokens, end, target) - explained(model, tokens, start, target)
    return attributions.sum(-1) - change


@takes_text("tokens")
def attention_times_gradient(
    model: Explained, tokens: Int[Tensor, "example position"], target: Target
) -> Float[Tensor, "layer example head query key"]:
    """Each attention weight times the target's gradient with respect to it.

    To first order, how far the target falls when that weight alone is set to zero and no other grows for it.

    Raises:
        ValueError: when the target is not one number for each example or has no gradient.
    """
    with (
        torch.enable_grad(),
        capture(model, "blocks.*.attention.pattern", gradients=True) as seen,
    ):
        value = answered(target, model(tokens), slopes=True).sum()
        slopes = torch.autograd.grad(value, list(seen.values()))
    pairs = zip(seen.values(), slopes, strict=True)
    return torch.stack([(weight * slope).detach() for weight, slope in pairs])


def relevance_rollout(
    products: Float[Tensor, "layer example head query key"],
) -> Float[Tensor, "example query key"]:
    r"""Attention times gradient, followed through all layers.

    $R \leftarrow R + \bar A_l R$, from $R = I$ and from the first layer to the last, with $\bar A_l$ the mean
    over heads of what is positive in the products. The own token's start is left in. Source: Chefer et al.
    (2021), section 3.1.

    Args:
        products: of `attention_times_gradient`.
    """
    found = torch.eye(products.shape[-1], dtype=products.dtype).expand_as(products[0, :, 0])
    for layer in products.clamp_min(0).mean(2):
        found = found + layer @ found
    return found


# Interventions --------------------------------------------------------------------------------------


@takes_text("tokens", "reference")
@torch.no_grad()
def occlusion(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    target: Target,
    *,
    how: Occluded,
    reference: Int[Tensor, "other position"] | None = None,
) -> Float[Tensor, "example position"]:
    """The fall of the target when one token is removed, for each position in turn.

    Args:
        model, tokens, target: as for `gradients`.
        how: `zero`: what enters the first block is zero there; `mean`: the mean over the reference at that
            position; `resample`: what another sequence of the reference has there, the average over four of
            them; `delete`: the token is left out, as padding is, and later tokens move up.
        reference: other sequences of the same length, for `mean` and `resample`; for these at least as many.

    Raises:
        ValueError: when `how` is another one or a reference is missing or does not fit.
    """
    if how not in get_args(Occluded):
        raise ValueError(f"tokens are occluded by {', '.join(get_args(Occluded))}; got {how!r}")
    if how in ("mean", "resample") and reference is None:
        raise ValueError(f"{how!r} replaces by what other sequences have: give a reference")
    whole = target(model(tokens))
    found = []
    own = embedded(model, tokens)
    if how == "delete":
        for position in range(tokens.shape[1]):
            left = torch.ones_like(tokens, dtype=torch.bool)
            left[:, position] = False
            found.append(whole - target(model(tokens, padding_mask=left)))
        return torch.stack(found, 1)
    others = _replacements(model, own, how, reference)
    for position in range(tokens.shape[1]):
        falls = []
        for other in others:
            changed = own.clone()
            changed[:, position] = other[:, position]
            falls.append(whole - explained(model, tokens, changed, target))
        found.append(torch.stack(falls).mean(0))
    return torch.stack(found, 1)


def _replacements(
    model: Explained, own: Tensor, how: Occluded, reference: Tensor | None
) -> list[Tensor]:
    if how == "zero" or reference is None:
        return [torch.zeros_like(own)]
    other = embedded(model, reference)
    if how == "mean":
        return [other.mean(0, keepdim=True).expand_as(own)]
    if len(other) < len(own):
        raise ValueError(
            f"expected at least as many sequences in the reference as are explained, {len(own)}, got "
            f"{len(other)}"
        )
    return [other.roll(shift, 0)[: len(own)] for shift in range(4)]


# An account of the logits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectLogits:
    """The contribution of each part to the logits, with the final norm's scale held fixed.

    Attributes:
        names: `embedding`, `blocks.0.attention head 0`, ..., `blocks.0.attention bias` (and the same for
            `cross_attention`, where a block has it), `blocks.0.feedforward`, ..., and `bias`: what the final
            norm and the unembedding add by themselves.
        logits: of each part; they sum to the model's.
    """

    names: tuple[str, ...]
    logits: Float[Tensor, "part example position vocab"]


@takes_text("tokens")
@torch.no_grad()
def direct_logits(model: Explained, tokens: Int[Tensor, "example position"]) -> DirectLogits:
    r"""Direct logit attribution: the logits as a sum over what each head and each network has written.

    The last state is the embedding plus all writes. The final norm centres it (LayerNorm), divides it by its
    scale and multiplies it by its weights; with the scale held at the value that it has, all this is linear,
    and so is the unembedding. Source: Elhage et al. (2021).

    Raises:
        ValueError: when the logits are no linear function of the stream but for the scale of a final norm: with
            post-norm, without residual connections, with a cap, or with BERT's head; and when the parts do not
            add up to the model's logits, because something that no tap shows changes them, such as a hook on a
            branch.
    """
    config = model.config
    if config.placement != "pre" or not config.residual or config.head != "linear":
        raise ValueError(
            "logits split into writes in pre-norm models with residual connections and a linear head, got "
            f"placement={config.placement!r}, residual={config.residual} and head={config.head!r}; what a part "
            "is worth in other models, patching (analysis.patching) and ablation (analysis.ablation) tell"
        )
    if config.logit_cap is not None:
        raise ValueError(
            f"a cap bends the logits, so that no parts add up to them: expected logit_cap=None, got "
            f"{config.logit_cap}; what a part is worth, patching (analysis.patching) tells"
        )
    norm = model.final_norm
    taps = ["embedding", "blocks.*attention.head_outputs", "blocks.*.feedforward.out"]
    if hasattr(norm, "scale"):
        taps.append("final_norm.scale")
    with capture(model, *taps) as seen:
        logits = model(tokens)
    parts: dict[str, Tensor] = {"embedding": seen["embedding"]}
    for i, block in enumerate(model.blocks):
        for name in ("attention", "cross_attention"):
            attention = cast(MultiHeadAttention | None, getattr(block, name))
            if attention is None:
                continue
            for head, write in enumerate(seen[f"blocks.{i}.{name}.head_outputs"].unbind(1)):
                parts[f"blocks.{i}.{name} head {head}"] = write
            if attention.output.bias is not None:
                parts[f"blocks.{i}.{name} bias"] = attention.output.bias.expand_as(write)
        parts[f"blocks.{i}.feedforward"] = seen[f"blocks.{i}.feedforward.out"]
    stacked = torch.stack(list(parts.values()))
    stacked[1:] *= config.residual_scale  # of all that is written behind the embedding
    through, bias = held_norm(norm, seen.get("final_norm.scale"))
    constant = torch.zeros_like(stacked[0])
    if bias is not None:
        constant = constant + bias
    stacked = through(stacked)
    unembedding = cast(nn.Linear, model.unembedding)
    # The scale of a norm is single precision where weights are half: so are then the parts.
    weight = (config.logit_scale * unembedding.weight).to(stacked.dtype)
    own = constant.to(stacked.dtype) @ weight.T
    if unembedding.bias is not None:
        own = own + unembedding.bias
    each = torch.cat([stacked @ weight.T, own[None]])
    require_sum(each, logits, what="the logits", model=model)
    return DirectLogits((*parts, "bias"), each)


# How well a method finds what matters -----------------------------------------------------------------


def found_area(
    scores: Float[Tensor, "example position"],
    relevant: Bool[Tensor, "example position"],
    candidates: Bool[Tensor, "example position"],
) -> Float[ndarray, "example"]:
    """Area under the ROC curve of scores that separate relevant positions from the other candidates.

    How often a relevant position has a higher score than another one, ties counting half: 1 where all relevant
    ones come first, 1/2 by chance.

    Raises:
        ValueError: when an example has no relevant candidate, or nothing but relevant ones, or the three
            differ in shape.

    >>> yes, all_of = torch.tensor([[False, True, False]]), torch.ones(1, 3, dtype=torch.bool)
    >>> found_area(torch.tensor([[0.1, 0.5, 0.7]]), yes, all_of)
    array([0.5])
    """
    _check_places(scores, relevant=relevant, candidates=candidates)
    good, bad = relevant & candidates, candidates & ~relevant
    if not bool(good.any(1).all()) or not bool(bad.any(1).all()):
        raise ValueError("each example needs a candidate that is relevant and one that is not")
    ahead = scores[:, :, None] - scores[:, None, :]
    wins = (ahead > 0).double() + (ahead == 0).double() / 2
    pairs = (good[:, :, None] & bad[:, None, :]).double()
    return ((wins * pairs).sum((1, 2)) / pairs.sum((1, 2))).numpy()


def _check_places(scores: Tensor, **others: Tensor) -> None:
    for name, other in others.items():
        if other.shape != scores.shape:
            raise ValueError(
                f"{name} must have the shape of the scores, {tuple(scores.shape)}, got {tuple(other.shape)}"
            )


def found_first(
    scores: Float[Tensor, "example position"],
    relevant: Bool[Tensor, "example position"],
    candidates: Bool[Tensor, "example position"],
) -> Bool[ndarray, "example"]:
    """Return whether the candidate with the highest score is a relevant one.

    Raises:
        ValueError: when the three differ in shape.

    >>> yes, all_of = torch.tensor([[False, True, False]]), torch.ones(1, 3, dtype=torch.bool)
    >>> found_first(torch.tensor([[0.1, 0.5, 0.7]]), yes, all_of)
    array([False])
    """
    _check_places(scores, relevant=relevant, candidates=candidates)
    best = scores.masked_fill(~candidates, float("-inf")).argmax(1, keepdim=True)
    return relevant.gather(1, best)[:, 0].numpy()


def ranks_agree(
    first: Float[Tensor, "example position"],
    second: Float[Tensor, "example position"],
    candidates: Bool[Tensor, "example position"],
) -> Float[ndarray, "example"]:
    """Spearman's rank correlation of two methods over the candidates of each example; 0 where one has no order.

    Raises:
        ValueError: when the three differ in shape.

    >>> a = torch.tensor([[1.0, 2.0, 3.0]])
    >>> ranks_agree(a, -a, torch.ones(1, 3, dtype=torch.bool))
    array([-1.])
    """
    _check_places(first, second=second, candidates=candidates)
    found = []
    for x, y, there in zip(first, second, candidates, strict=True):
        a, b = (rankdata(each[there].double().numpy()) for each in (x, y))
        a, b = a - a.mean(), b - b.mean()
        size = float(np.sqrt((a @ a) * (b @ b)))
        found.append(float(a @ b) / size if size else 0.0)
    return np.array(found)
