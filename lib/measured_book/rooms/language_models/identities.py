"""What is exact about probabilities of sequences and about a course's model.

Each function gives, for one draw, what should be zero and what should not.
"""

from __future__ import annotations

import inspect
import io
import math
from functools import cache
from typing import Any

import numpy as np
import torch
from measured_transformer.inference.sampling import draw, with_temperature
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import sinusoidal_encoding
from measured_transformer.tasks.markov import Markov, stationary
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import seeded
from measured_transformer.variants.course_model import CourseModel, as_decoder
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

# Identities: each function gives, for one draw, what should be zero and what should not ---------------

DRAWS = 100
Pair = tuple[float, float]


def _random(draw_: int) -> torch.Generator:
    return torch.Generator().manual_seed(draw_)


def _furthest(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def _lively(model: Any, factor: float = 2.0) -> Any:
    """The model in double precision and with larger weights, so that it is far from uniform."""
    with torch.no_grad():
        for parameter in model.double().parameters():
            if parameter.ndim > 1:
                parameter *= factor
    return model.eval()


def chain_rule(draw_: int) -> Pair:
    """Sum of the probabilities of all sequences, minus 1: of a causal model, and of one without its mask.

    Sequences follow two tokens, four pairs of them; the pair after which the sum deviates most counts.
    """
    vocab, length = 2 + draw_ % 3, 3 + draw_ % 4
    config = Config(
        vocab=vocab, d_model=8, n_layers=2, n_heads=2, positions="learned", max_length=8
    )
    every = torch.cartesian_prod(*[torch.arange(vocab)] * length)
    sums = []
    for kind in (Decoder, Encoder):
        with seeded(draw_):
            model = _lively(kind(config), 4.0)
        off = []
        for start in torch.tensor([(0, 0), (0, 1), (1, 0), (1, 1)]):
            inputs = torch.cat((start.expand(len(every), 2), every[:, :-1]), 1)
            chances = model(inputs)[:, 1:].log_softmax(-1).gather(-1, every[..., None])
            off.append(float(chances.sum((1, 2)).exp().sum()) - 1)
        sums.append(max(off, key=abs))
    return sums[0], sums[1]


def likelihood(draw_: int) -> Pair:
    """The library's cross-entropy minus the mean negative log-likelihood; and with shifted targets."""
    random = _random(draw_)
    logits = 2 * torch.randn(3, 7, 9, generator=random, dtype=torch.float64)
    targets = torch.randint(9, (3, 7), generator=random)
    chances = logits.exp() / logits.exp().sum(-1, keepdim=True)
    total = sum(-math.log(float(chances[i, t, targets[i, t]])) for i in range(3) for t in range(7))
    scored = torch.ones(3, 7, dtype=torch.bool)
    return tuple(  # type: ignore[return-value]
        float(cross_entropy(logits, y, scored)) - total / 21 for y in (targets, targets.roll(1, 1))
    )


def entropy_floor(draw_: int) -> Pair:
    """What a Markov source's own table costs, minus its entropy rate; and what a smoothed table costs.

    The rate is computed from blocks: how much the entropy of four tokens exceeds that of three.
    """
    chances = Markov(vocab=5, branching=(2, 4), sharpness=1.0, rule_seed=draw_).transitions()
    often = stationary(chances)

    def block(n: int) -> float:
        joint = often
        for _ in range(n - 1):
            joint = joint[..., None] * chances
        flat = joint.flatten()
        return float(-torch.special.xlogy(flat, flat).sum())

    rate = block(4) - block(3)
    smooth = 0.9 * chances + 0.02
    costs = [
        float(-(often[:, None] * torch.special.xlogy(chances, table)).sum())
        for table in (chances, smooth)
    ]
    return costs[0] - rate, costs[1] - rate


def lookup(draw_: int) -> Pair:
    """One-hot vectors times W_E minus the embedding; and with columns in place of rows."""
    with seeded(draw_):
        table = (
            Decoder(Config(vocab=12, d_model=12, n_layers=1, n_heads=2)).double().token_embedding
        )
    tokens = torch.randint(12, (6,), generator=_random(draw_))
    one_hot = F.one_hot(tokens, 12).double()
    return tuple(  # type: ignore[return-value]
        _furthest(one_hot @ w, table(tokens)) for w in (table.weight, table.weight.T)
    )


@cache
def unembedding(draw_: int) -> tuple[float, Pair, Pair]:
    """How a decoder's probabilities come from its last states.

    Returns:
        whether the product of state and W_U exists as printed; the difference of the model's probabilities from
        those of the state times the transpose, and of another position's state; the same with the final norm.
    """
    with seeded(draw_):
        model = _lively(Decoder(Config(vocab=11, d_model=8, n_layers=2, n_heads=2)))
    tokens = torch.randint(11, (1, 5), generator=_random(draw_))
    positions = model.resolve_positions(tokens)
    x, rotation, bias = model.embed(tokens, positions)
    x = model.run_blocks(x, positions, rotation, bias)
    weight = model.unembedding.weight
    expected = model(tokens).softmax(-1)
    found = []
    for state in (x, model.apply_final_norm(x)):
        said = (state @ weight.T).softmax(-1)
        found.append((_furthest(said, expected), _furthest(said.roll(1, 1), expected)))
    return float(x.shape[-1] == weight.shape[0]), found[0], found[1]


def sampled(draw_: int) -> Pair:
    """P-value of 10000 drawn tokens against their probabilities, and against those of another temperature."""
    random = _random(draw_)
    logits = 2 * torch.randn(20, generator=random, dtype=torch.float64)
    temperature = float(torch.empty(()).uniform_(0.5, 2.0, generator=random))
    warm = with_temperature(logits, temperature)
    uniform = torch.rand(10000, generator=random, dtype=torch.float64)
    counts = torch.bincount(draw(warm.expand(10000, -1), uniform), minlength=20).numpy()
    found = []
    for other in (1.0, 1.5):
        expected = 10000 * with_temperature(warm, other).softmax(-1).numpy()
        rare = expected < 5  # too few for the test: they count together
        pool = rare if rare.any() else np.arange(20) == expected.argmin()
        groups = [np.append(x[~pool], x[pool].sum()) for x in (counts, expected)]
        found.append(float(stats.chisquare(groups[0], groups[1]).pvalue))
    return found[0], found[1]


@cache
def branching(draw_: int) -> tuple[Pair, Pair, float]:
    """Perplexity of sources with equally likely successors, minus their number.

    Returns:
        minus b, and minus b + 1, where all states have b; minus the mean and minus the largest number, where
        the numbers differ; minus the geometric mean there. Means are weighted by how often a state occurs.
    """
    b = 2 + draw_ % 6
    same = math.exp(Markov(vocab=10, branching=(b,), rule_seed=draw_).entropy_rate())
    mixed = Markov(vocab=10, branching=(1 + draw_ % 3, 6 + draw_ % 4), rule_seed=draw_)
    chances = mixed.transitions()
    often, count = stationary(chances), (chances > 0).sum(1).double()
    perplexity = math.exp(mixed.entropy_rate())
    mean, geometric = float(often @ count), math.exp(float(often @ count.log()))
    return (
        (same - b, same - b - 1),
        (perplexity - mean, perplexity - float(count.max())),
        perplexity - geometric,
    )


def course_model(draw_: int, *, vocab: int = 13, longest: int = 64) -> CourseModel:
    """A drawn model as the sheet has it, in double precision."""
    with seeded(draw_):
        model = _lively(CourseModel(vocab, longest=longest), 1.5)
    model.positions.pe = sinusoidal_encoding(longest, 16, dtype=torch.float64)
    return model


def _course_tokens(draw_: int, n: int = 7) -> Tensor:
    return torch.randint(13, (2, n), generator=_random(1000 + draw_))


@cache
def buffer(draw_: int) -> tuple[Pair, Pair, Pair]:
    """A registered buffer beside a parameter, and beside a tensor that is an attribute and no more.

    Returns:
        whether it is kept and no parameter; how far ten steps of training move it; whether it follows half()
        and to(): each for the buffer and for its control.
    """
    with seeded(draw_):
        model = CourseModel(13)
    model.positions.loose = model.positions.pe.clone()
    state, trained = model.state_dict(), dict(model.named_parameters())
    names = ("positions.pe", "decoder.weight")
    kept = [float(name in state and name not in trained) for name in names]
    before = [state[name].clone() for name in names]
    updates = torch.optim.Adam(model.parameters(), 1e-2)
    tokens = _course_tokens(draw_)
    for _ in range(10):
        updates.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        updates.step()
    moved = [
        _furthest(model.state_dict()[n].detach(), b) for n, b in zip(names, before, strict=True)
    ]
    model.half()
    halves = [x.dtype == torch.float16 for x in (model.positions.pe, model.positions.loose)]
    model.to("meta")
    away = [x.device.type == "meta" for x in (model.positions.pe, model.positions.loose)]
    follows = [float(h and a) for h, a in zip(halves, away, strict=True)]
    return (kept[0], kept[1]), (moved[0], moved[1]), (follows[0], follows[1])


@cache
def checkpoint(draw_: int) -> tuple[Pair, float, float]:
    """Logits before and after a checkpoint.

    Returns:
        the largest change with everything in it, and with a parameter left out; the largest change without the
        buffer, once that is computed again; whether strict loading refuses a checkpoint without it.
    """
    model, tokens = course_model(draw_), _course_tokens(draw_)
    expected, state = model(tokens), model.state_dict()

    def loaded(left_out: str, *, strict: bool = False) -> Tensor:
        file = io.BytesIO()
        torch.save({name: x for name, x in state.items() if name != left_out}, file)
        file.seek(0)
        other = course_model(draw_ + DRAWS)  # of other weights, whose buffer is computed anew
        other.load_state_dict(torch.load(file), strict=strict)
        return other(tokens)

    refused = 0.0
    try:
        loaded("positions.pe", strict=True)
    except RuntimeError:
        refused = 1.0
    whole = _furthest(loaded(""), expected)
    return (
        (whole, _furthest(loaded("decoder.weight"), expected)),
        _furthest(loaded("positions.pe"), expected),
        refused,
    )


def other_sequences(module: nn.Module) -> int:
    """Modules that attend to another sequence, and inputs for one."""
    attend = sum(name.endswith("multihead_attn") for name, _ in module.named_modules())
    inputs = sum(name == "memory" for name in inspect.signature(module.forward).parameters)
    return attend + inputs


def masks(n: int) -> tuple[Pair, Pair]:
    """PyTorch's mask: its entries against the description, and added against a boolean mask."""
    made = nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
    lower = torch.ones(n, n, dtype=torch.float64).tril()
    entries = _furthest(made.exp(), lower), _furthest(made.exp(), lower.tril(-1))
    q, k, v = torch.randn(3, 1, n, 4, generator=_random(n), dtype=torch.float64)
    added = F.scaled_dot_product_attention(q, k, v, attn_mask=made)
    others = (lower.bool(), None)
    both = [_furthest(added, F.scaled_dot_product_attention(q, k, v, attn_mask=m)) for m in others]
    return entries, (both[0], both[1])


def entry(draw_: int) -> Pair:
    """How far output i moves when token j is replaced and entry (i, j) is closed; and with (j, i) closed."""
    random = _random(draw_)
    n = 6
    i, j = torch.randperm(n, generator=random)[:2].tolist()
    with seeded(draw_):
        attention = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(1, n, 8, generator=random, dtype=torch.float64)
    changed = x.clone()
    changed[0, j] = 3 * torch.randn(8, generator=random, dtype=torch.float64)
    mask = torch.zeros(n, n, dtype=torch.float64)
    mask[i, j] = -math.inf
    found = []
    for m in (mask, mask.T):
        a, b = (attention(y, y, y, attn_mask=m, need_weights=False)[0] for y in (x, changed))
        found.append(_furthest(a[0, i], b[0, i]))
    return found[0], found[1]


def causality(draw_: int) -> Pair:
    """How far earlier logits of the sheet's model move when later tokens are replaced; and without the mask."""
    model, tokens = course_model(draw_), _course_tokens(draw_)
    cut = 1 + draw_ % 6
    other = tokens.clone()
    other[:, cut:] = (tokens[:, cut:] + 1 + draw_ % 11) % 13
    found = [
        _furthest(model(tokens, mask=m)[:, :cut], model(other, mask=m)[:, :cut])
        for m in ("causal", "none")
    ]
    return found[0], found[1]


def decoder_only(draw_: int) -> Pair:
    """Logits of the sheet's model minus those of the library's decoder with its weights; without the mask."""
    model, tokens = course_model(draw_), _course_tokens(draw_)
    expected = as_decoder(model)(tokens)
    found = [_furthest(model(tokens, mask=m), expected) for m in ("causal", "none")]
    return found[0], found[1]


def four_steps(draw_: int) -> Pair:
    """The sheet's four steps written out minus the module; and with positions left out."""
    model, tokens = course_model(draw_), _course_tokens(draw_)
    n = tokens.shape[1]
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    embedded = 4.0 * model.encoder.weight[tokens]
    found = []
    for positions in (sinusoidal_encoding(n, 16, dtype=torch.float64), 0.0):
        x = embedded + positions
        for layer in model.transformer.layers:
            x = layer(x, src_mask=ahead)
        found.append(_furthest(x @ model.decoder.weight.T + model.decoder.bias, model(tokens)))
    return found[0], found[1]


def teacher_forcing(draw_: int) -> Pair:
    """Loss of all positions at once minus the sum of single steps, each of which sees what came before."""
    model, tokens = course_model(draw_), _course_tokens(draw_)
    steps = sum(
        float(F.cross_entropy(model(tokens[:, :t])[:, -1], tokens[:, t], reduction="sum"))
        for t in range(1, tokens.shape[1])
    )
    found = []
    for m in ("causal", "none"):
        logits = model(tokens[:, :-1], mask=m)
        whole = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="sum")
        found.append(float(whole) - steps)
    return found[0], found[1]


def linear_head(states: int = DRAWS) -> list[Pair]:
    """A Linear from 200 to 30000 against matrix and bias; and with a softmax behind it."""
    with seeded(0):
        head = nn.Linear(200, 30000).double()
        x = torch.randn(states, 200, dtype=torch.float64)
    found = []
    for state in x:
        by_hand = head.weight @ state + head.bias
        made = head(state)
        found.append((_furthest(made, by_hand), _furthest(made.softmax(-1), by_hand)))
    return found


def softmax_inside(draw_: int) -> Pair:
    """CrossEntropyLoss of logits minus the likelihood by log_softmax; and with a softmax before it."""
    random = _random(draw_)
    logits = 2 * torch.randn(5, 9, generator=random, dtype=torch.float64)
    targets = torch.randint(9, (5,), generator=random)
    expected = F.nll_loss(logits.log_softmax(-1), targets)
    loss = nn.CrossEntropyLoss()
    return (
        float(loss(logits, targets) - expected),
        float(loss(logits.softmax(-1), targets) - expected),
    )


PAIRS = {
    "chain": chain_rule,
    "likelihood": likelihood,
    "floor": entropy_floor,
    "lookup": lookup,
    "transposed": lambda d: unembedding(d)[1],
    "normed": lambda d: unembedding(d)[2],
    "same": lambda d: branching(d)[0],
    "mixed": lambda d: branching(d)[1],
    "kept": lambda d: buffer(d)[0],
    "untrained": lambda d: buffer(d)[1],
    "moves": lambda d: buffer(d)[2],
    "whole": lambda d: checkpoint(d)[0],
    "softmax": softmax_inside,
    "entries": lambda d: masks(d + 2)[0],
    "boolean": lambda d: masks(d + 2)[1],
    "entry": entry,
    "causal": causality,
    "decoder": decoder_only,
    "steps": four_steps,
    "forcing": teacher_forcing,
}
"""What is compared over a hundred draws, by the name that the claims know."""
