r"""What the chapter without skips measures: what an addition does to tokens and to gradients, and its absence.

States, writes and branches are those of `analysis.residual` and `analysis.gradients`. A gradient is a row
like the vector it belongs to; on its way down it meets each sublayer, and goes past it or through its branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.gradients import Map, jacobian, stream_gradients, sublayers
from measured_transformer.analysis.mirroring import mirror_attention
from measured_transformer.analysis.residual import ledger, random_model, token_spread
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.skips import Around, OneSkip
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# Tokens on the way up -----------------------------------------------------------------------------


def farthest(x: Float[Tensor, "position d_model"]) -> float:
    """The largest distance between two rows."""
    return float(torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").max())


def cubic_bound(distance: float, qk: float, ov: float, d_head: int) -> float:
    r"""How far apart two outputs of a head can be: $\|W_{OV}\| \, D \tanh(\|W_{QK}\| D^2 / 4\sqrt{d_h})$.

    Two queries differ by at most D, so their scores differ by an offset that varies over the keys by at most
    $r = \|W_{QK}\| D^2 / \sqrt{d_h}$. Two softmaxes of scores whose difference varies by r share all but
    $\tanh(r/4)$ of their weight, and what they do not share moves the mixture by at most D. Below that is
    $\|W_{QK}\| \|W_{OV}\| D^3 / 4\sqrt{d_h}$: cubic. Norms are the largest singular values.

    Args:
        distance: D, the largest distance between two inputs.
        qk: of the matrix between queries and keys, $W_Q W_K^T$.
        ov: of what is carried, $W_V W_O$.
        d_head: width of the head.

    >>> round(cubic_bound(1.0, 1.0, 1.0, 1), 4), round(1 / 4, 4)
    (0.2449, 0.25)
    """
    return ov * distance * math.tanh(qk * distance**2 / (4 * math.sqrt(d_head)))


# Gradients on the way down ------------------------------------------------------------------------


@torch.no_grad()
def finite_difference(f: Map, x: Tensor, gradient: Tensor, *, step: float = 1e-5) -> Tensor:
    """The gradient of sum(gradient * f(x)) with respect to `x`, from differences of values alone.

    Central differences, one entry of `x` at a time; the error is of the order of step^2. `x` is left as
    it was.
    """
    result = torch.empty_like(x)
    for index in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.detach().clone()
            moved[index] += sign * step
            ends.append((gradient * f(moved)).sum())
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def by_autograd(f: Map, x: Tensor, gradient: Tensor) -> Tensor:
    """The same gradient by automatic differentiation."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(f(x), x, gradient)[0]


def last_gradient(model: Decoder | Encoder, last: Tensor, batch: Batch) -> Tensor:
    """The loss gradient at the last state of the stream, below the final norm."""
    with torch.enable_grad():
        x = last.detach().clone().requires_grad_()
        loss = cross_entropy(model.unembed(x), batch.targets, batch.scored)
        return torch.autograd.grad(loss, x)[0]


def every_path(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[Tensor, "path batch position d_model"]:
    r"""Split the gradient at the embedding into its $2^{2L}$ paths, one for each choice at each sublayer.

    On its way down the gradient meets each sublayer twice: it takes the skip connection, or it goes through
    the branch. Norms on the stream (post-norm) lie on both. Path number p goes through the branch of
    sublayer k where bit k of p is set; path 0 is the pure skip path. The sum over all paths is the gradient.

    Args:
        model: see `sublayers`.
        states: of the same forward pass, from `ledger`.
        gradient: at the last state.
    """
    paths = gradient[None]
    for through, straight in _backwards(model, states):
        below = torch.stack([straight(paths), through(paths)], dim=1)
        paths = below.flatten(0, 1)  # the newest sublayer is the lowest bit
    return paths.detach()


def by_length(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[Tensor, "length batch position d_model"]:
    r"""The same sum, with the paths gathered by the number of branches that they go through, 0 to 2L.

    The number of paths doubles with each sublayer; that of lengths grows by one. So this goes to any depth.
    """
    lengths = gradient[None]
    for through, straight in _backwards(model, states):
        skipped, taken = straight(lengths), through(lengths)
        none = torch.zeros_like(gradient)[None]
        lengths = torch.cat([skipped, none]) + torch.cat([none, taken])
    return lengths.detach()


def _backwards(
    model: Decoder | Encoder, states: Float[Tensor, "state batch position d_model"]
) -> Iterator[tuple[Map, Map]]:
    """From the last sublayer to the first: how gradients, many at once, get through it and past it."""
    functions = sublayers(model)
    for k in reversed(range(len(functions))):
        branch, norm = functions[k]
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be differentiated in batches
            write, back_branch = _pull_back(branch, states[k])
            _, back_norm = _pull_back(norm, states[k] + write)
            yield _ways(back_branch, back_norm)


def _pull_back(f: Map, x: Tensor) -> tuple[Tensor, Map]:
    """The value of `f` at `x`, and the map from a gradient at the output to that at the input."""
    result: tuple[Any, ...] = vjp(f, x)
    value, back = result[0], result[1]
    return value, lambda gradient: back(gradient)[0]


def _ways(back_branch: Map, back_norm: Map) -> tuple[Map, Map]:
    def straight(above: Tensor) -> Tensor:
        return vmap(back_norm)(above)

    def through(above: Tensor) -> Tensor:
        return vmap(lambda g: back_branch(back_norm(g)))(above)

    return through, straight


def shares(parts: Float[Tensor, "part batch position d_model"]) -> Float[np.ndarray, "part"]:
    r"""Each part's share of the sum: its projection on the sum, divided by the sum's length.

    $\langle p, s \rangle / \langle s, s \rangle$ over all entries: the shares add up to one, and a part
    that works against the sum has a negative one.
    """
    total = parts.sum(0)
    share = (parts * total).flatten(1).sum(1) / total.square().sum()
    return share.double().cpu().numpy()


def share_by_length(model: Decoder | Encoder, batch: Batch) -> Float[np.ndarray, "length"]:
    """Share of the loss gradient at the embedding by the number of branches that its paths go through."""
    states = ledger(model, batch.inputs).states
    return shares(by_length(model, states, last_gradient(model, states[-1], batch)))


def branch_gains(
    model: Decoder | Encoder,
    states: Float[Tensor, "state batch position d_model"],
    gradient: Float[Tensor, "batch position d_model"],
) -> Float[np.ndarray, "sublayer"]:
    """For each sublayer how much longer or shorter its branch alone makes this gradient.

    The length of g J over the length of g, over all entries, J being the branch's Jacobian at the state.
    """
    gains = []
    for k, (branch, _) in enumerate(sublayers(model)):
        _, back = _pull_back(branch, states[k])
        gains.append(float(back(gradient).detach().norm() / gradient.norm()))
    return np.array(gains)


# One connection of a trained model ----------------------------------------------------------------


@contextmanager
def deleted(model: Stack, sublayer: str, what: Literal["branch", "skip"]) -> Iterator[None]:
    """Take one branch or one skip connection out of a pre-norm model while the `with` block runs.

    Without the branch the stream passes the sublayer unchanged; without the skip connection the sublayer's
    write replaces the stream. Nothing is retrained.

    Args:
        model: a pre-norm (or norm-free) model with residual connections.
        sublayer: `blocks.{i}.attention` or `blocks.{i}.feedforward`.
        what: which of the two to delete.

    Raises:
        ValueError: when the model has norms on the stream or no skip connections.
        KeyError: when there is no such sublayer.
    """
    if model.config.placement == "post" and model.config.norm != "none":
        raise ValueError("expected a pre-norm model: after a norm the write cannot be told apart")
    if not model.config.residual:
        raise ValueError("expected a model with residual connections, this one has none to delete")
    if what == "branch":
        with intervene(model, {f"{sublayer}.out": 0.0}):
            yield
        return
    block, part = sublayer.rsplit(".", 1)
    after = f"{block}.residual_mid" if part == "attention" else f"{block}.residual_post"
    write: dict[str, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        write["last"] = value
        return value

    with intervene(model, {f"{sublayer}.out": keep, after: lambda _: write["last"]}):
        yield


# Identities ---------------------------------------------------------------------------------------

DRAWS = 20
CHECKS = (
    "parameters",
    "parameters by differences",
    "input",
    "input by differences",
    "skip without norm",
    "skip in pre-norm",
    "skip in post-norm",
    "paths",
    "highway in pre-norm",
    "highway in post-norm",
)
PLACES = ("none", "pre", "post")


@measurement(
    seeds=1,
    coords={"check": CHECKS, "draw": tuple(range(DRAWS)), "place": PLACES},
    tolerance={"error": 1e-6, "control": 1e-6, "cosine": 1e-6},
)
def algebra(seed: int) -> dict[str, Any]:
    """Gradients of drawn attention layers and models by the chain rule, with controls that must fail."""
    del seed
    found, cosines = [], []
    for draw in range(DRAWS):
        after, cosine = _after_a_skip(draw)
        found.append(_chain_rule(draw) | after | _highways(draw))
        cosines.append(cosine)
    return {
        "error": (("check", "draw"), [[each[check][0] for each in found] for check in CHECKS]),
        "control": (("check", "draw"), [[each[check][1] for each in found] for check in CHECKS]),
        "cosine": (("draw", "place"), cosines),
        "operations": operations(),
    }


def operations() -> int:
    """Attentions, networks and norms in the blocks of a post-norm encoder of twelve blocks."""
    kinds = ("Attention", "FeedForward", "Norm")
    modules = fresh(0, placement="post").blocks.modules()
    return sum(type(each).__name__.endswith(kinds) for each in modules)


def drawn_layer(seed: int) -> tuple[MultiHeadAttention, LayerNorm, Tensor, Tensor]:
    """Attention and a norm with random weights, three tokens of width eight, and a gradient; in float64."""
    with seeded(seed):
        attention, norm = MultiHeadAttention(8, 2).double(), LayerNorm(8).double()
        h, g = torch.randn(2, 1, 3, 8, dtype=torch.float64)
    return attention, norm, h, g


def _chain_rule(draw: int) -> dict[str, tuple[float, float]]:
    """Received gradient times Jacobian, by the values' weights and by the input, against two oracles."""
    attention, _, h, g = drawn_layer(draw)

    def by_values(weight: Tensor) -> Tensor:
        found: Tensor = functional_call(attention, {"value.weight": weight}, (h,))
        return found

    cases: dict[str, tuple[Map, Tensor]] = {
        "parameters": (by_values, attention.value.weight.detach()),
        "input": (attention, h),
    }
    found = {}
    for name, (f, x) in cases.items():
        matrix, true = jacobian(f, x), by_autograd(f, x, g).flatten()
        ours = g.flatten() @ matrix
        exchanged = ours.unflatten(0, tuple(x.shape)).T if name == "parameters" else None
        wrong = matrix @ g.flatten() if exchanged is None else exchanged.flatten()
        control = _off(wrong, true)
        found[name] = (_off(ours, true), control)
        found[f"{name} by differences"] = (
            _off(ours, finite_difference(f, x, g).flatten()),
            control,
        )
    return found


def _off(found: Tensor, true: Tensor) -> float:
    return float((found - true).abs().max())


def _after_a_skip(draw: int) -> tuple[dict[str, tuple[float, float]], list[float]]:
    """The formula g + g J against the true gradient without a norm, in pre-norm and in post-norm; cosines."""
    attention, norm, h, g = drawn_layer(draw)

    def first_norm(x: Tensor) -> Tensor:
        found: Tensor = attention(norm(x))
        return found

    layers: dict[str, tuple[Map, Map]] = {
        "without norm": (lambda x: attention(x) + x, attention),
        "in pre-norm": (lambda x: first_norm(x) + x, first_norm),
        "in post-norm": (lambda x: norm(attention(x) + x), attention),
    }
    found, cosines = {}, []
    for name, (layer, branch) in layers.items():
        alone = g.flatten() @ jacobian(branch, h)
        formula, true = g.flatten() + alone, by_autograd(layer, h, g).flatten()
        found[f"skip {name}"] = (_off(formula, true), _off(alone, true))
        cosines.append(float(torch.cosine_similarity(formula, true, dim=0)))
    return found, cosines


def _highways(draw: int) -> dict[str, tuple[float, float]]:
    """All 64 paths of three blocks against the gradient, and the one that takes no branch against g."""
    found = {}
    for where in ("pre", "post"):
        model, tokens = random_model(draw, n_layers=3, placement=where)
        states = ledger(model, tokens).states
        with seeded(draw):
            g = torch.randn_like(states[-1])
        terms = every_path(model, states, g)
        true = by_autograd(nn.Sequential(*model.blocks), states[0], g)
        found[f"highway in {where}-norm"] = (_off(terms[0], g), _off(true, g))
        if where == "pre":
            found["paths"] = (_off(terms.sum(0), true), _off(terms[1:].sum(0), true))
    return found


# One sublayer, and tokens that differ by little ---------------------------------------------------

SIZES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
KINDS = ("attention", "network", "attention and network", "attention and skip")
WIDTH, LENGTH = 32, 12


@measurement(
    seeds=20,
    coords={"kind": KINDS, "size": SIZES},
    tolerance={"after": 1e-9, "bound": 1e-6},
)
@torch.no_grad()
def cube(seed: int) -> dict[str, Any]:
    """How far apart twelve tokens are before and after one sublayer with fresh weights, in double precision."""
    with seeded(seed):
        attention = MultiHeadAttention(WIDTH, 1, bias=False).double()
        network = FeedForward(WIDTH, 4 * WIDTH, activation="relu", bias=False).double()
        for matrix in (*attention.parameters(), *network.parameters()):
            nn.init.xavier_uniform_(matrix)
        common, apart = torch.randn(1, WIDTH).double(), torch.randn(LENGTH, WIDTH).double()
    apart = apart / farthest(apart)
    maps: dict[str, Callable[[Tensor], Tensor]] = {
        "attention": attention,
        "network": network,
        "attention and network": lambda x: network(attention(x)),
        "attention and skip": lambda x: x + attention(x),
    }
    weights = {name: matrix.T for name, matrix in attention.named_parameters()}
    qk = torch.linalg.matrix_norm(weights["query.weight"] @ weights["key.weight"].T, 2)
    ov = torch.linalg.matrix_norm(weights["value.weight"] @ weights["output.weight"], 2)
    return {
        "after": (
            ("kind", "size"),
            [
                [farthest(maps[kind]((common + size * apart)[None])[0]) for size in SIZES]
                for kind in KINDS
            ],
        ),
        "bound": ("size", [cubic_bound(size, float(qk), float(ov), WIDTH) for size in SIZES]),
    }


# Twelve blocks before training --------------------------------------------------------------------

TASK = Reversal(vocab=12, length=12)
SMALL = Config(vocab=12, d_model=32, n_layers=12, activation="relu")
NORMS: Mapping[str, Mapping[str, Any]] = {
    "none": {"norm": "none"},
    "pre": {"placement": "pre"},
    "post": {"placement": "post"},
}
SKIPS = ("with", "without")
PATH_DEPTHS = (1, 2, 4, 6, 12)
AROUND: Mapping[str, Around] = {"attention": "attention", "network": "feedforward"}
"""The sublayer that keeps its skip connection when the other one loses it."""


@measurement(
    seeds=24,
    coords={
        "norm": tuple(NORMS),
        "skip": SKIPS,
        "around": tuple(AROUND),
        "state": tuple(range(25)),
        "length": tuple(range(25)),
        "depth": PATH_DEPTHS,
        "gain": ("attention, no norm", "network, no norm", "attention, pre", "network, pre"),
    },
    tolerance={"gradient": 1e-3, "spread": 1e-3, "one_skip": 1e-3},
)
def untrained(seed: int) -> dict[str, Any]:
    """Twelve fresh blocks: gradients and what tells tokens apart, with and without skips; paths; branches."""
    looks = [[_fresh_look(seed, norm, skip) for skip in SKIPS] for norm in NORMS]
    paths = {
        depth: share_by_length(fresh(seed, n_layers=depth), batch_of(seed, 8))
        for depth in PATH_DEPTHS
    }
    gains = [gain for norm in ("none", "pre") for gain in _gains(seed, norm)]
    axes = ("norm", "skip", "state")
    return {
        "gradient": (axes, [[each[0] for each in row] for row in looks]),
        "spread": (axes, [[each[1] for each in row] for row in looks]),
        "one_skip": (("around", "state"), [_spread_with_one(seed, each) for each in AROUND]),
        "share": ("length", paths[12].tolist()),
        "straight": ("depth", [float(paths[depth][0]) for depth in PATH_DEPTHS]),
        "gains": ("gain", gains),
    }


def fresh(seed: int, **changes: Any) -> Encoder:
    """An untrained encoder, by default of twelve pre-norm blocks."""
    model: Any = make_model(SMALL.replace(**changes), causal=False, seed=seed)
    found: Encoder = model.eval()
    return found


def batch_of(seed: int, size: int) -> Batch:
    """Sequences that nothing is trained on."""
    return TASK.batch(make_generator(seed, "evaluation"), size)


def _fresh_look(seed: int, norm: str, skip: str) -> tuple[list[float], list[float]]:
    """By state: the gradient's length relative to the last state, and what tells tokens apart."""
    model = fresh(seed, residual=skip == "with", **NORMS[norm]).double()
    batch = batch_of(seed, 32)
    gradient = stream_gradients(model, batch)
    spread = token_spread(ledger(model, batch.inputs).states)
    return (gradient / gradient[-1]).tolist(), spread.tolist()


def _spread_with_one(seed: int, around: str) -> list[float]:
    """What tells tokens apart, by state, when one sublayer of each pre-norm block has a skip connection."""
    model = fresh(seed).double()
    OneSkip(AROUND[around])(model)
    spread = token_spread(ledger(model, batch_of(seed, 32).inputs).states)
    return [float(each) for each in spread]


def _gains(seed: int, norm: str) -> list[float]:
    """Geometric mean over blocks of what attention and the network make of a random gradient's length."""
    model = fresh(seed, **NORMS[norm])
    states = ledger(model, batch_of(seed, 16).inputs).states
    with seeded(seed):
        logs = np.log(branch_gains(model, states, torch.randn_like(states[0])))
    return [float(np.exp(logs[::2].mean())), float(np.exp(logs[1::2].mean()))]


# What the weights get -----------------------------------------------------------------------------

MATRICES = ("query", "key", "value", "up", "down")
SMALLEST = 1e-20
"""Lengths below it count as this, so that they have a logarithm."""


def weight_gradients(model: Decoder | Encoder, batch: Batch) -> Float[np.ndarray, "matrix block"]:
    """Logarithm to base ten of the length of the loss gradient of each matrix of `MATRICES` in each block."""
    with torch.enable_grad():
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        weights = [
            block.get_submodule(_part_of(matrix)).get_parameter("weight")
            for matrix in MATRICES
            for block in model.blocks
        ]
        gradients = torch.autograd.grad(loss, weights)
    lengths = np.array([max(float(each.norm()), SMALLEST) for each in gradients])
    return np.log10(lengths).reshape(len(MATRICES), -1)


def _part_of(matrix: str) -> str:
    return f"{'feedforward' if matrix in ('up', 'down') else 'attention'}.{matrix}"


def bare_gains(seed: int, norm: str) -> list[float]:
    """As `_gains`, but in stacks without skip connections, where each state is the last sublayer's write."""
    model = fresh(seed, residual=False, **NORMS[norm]).double()
    account = ledger(model, batch_of(seed, 16).inputs)
    with seeded(seed):
        gradient = torch.randn_like(account.states[0])
    logs = []
    for k, name in enumerate(account.names):
        place, part = name.removeprefix("blocks.").split(".")
        block: Any = model.blocks[int(place)]
        before = block.get_submodule(f"{part}_norm")
        sublayer = block.get_submodule(part)
        _, back = _pull_back(lambda x, f=sublayer, n=before: f(n(x)), account.states[k])  # type: ignore[misc]
        logs.append(math.log(float(back(gradient).detach().norm() / gradient.norm())))
    return [math.exp(float(np.mean(logs[::2]))), math.exp(float(np.mean(logs[1::2])))]


@measurement(
    seeds=34,
    coords={
        "norm": tuple(NORMS),
        "skip": SKIPS,
        "arm": ("both", "attention", "network", "none"),
        "matrix": MATRICES,
        "block": tuple(range(1, 13)),
        "shallow": tuple(range(1, 7)),
        "gain": ("attention, no norm", "network, no norm", "attention, pre", "network, pre"),
    },
    tolerance={"twelve": 4.0, "six": 4.0, "gains": 1e-3},
)
def weights(seed: int) -> dict[str, Any]:
    """Twelve and six untrained blocks: gradients of the weights with and without skips; branches without."""
    batch = batch_of(seed, 32)
    twelve = [
        [
            weight_gradients(fresh(seed, residual=skip == "with", **norm).double(), batch).tolist()
            for skip in SKIPS
        ]
        for norm in NORMS.values()
    ]
    six = []
    for arm in ARMS:
        model = fresh(seed, n_layers=6, residual=arm != "none").double()
        if arm in AROUND:
            OneSkip(AROUND[arm])(model)
        six.append(weight_gradients(model, batch).tolist())
    return {
        "twelve": (("norm", "skip", "matrix", "block"), twelve),
        "six": (("arm", "matrix", "shallow"), six),
        "gains": ("gain", [gain for norm in ("none", "pre") for gain in bare_gains(seed, norm)]),
    }


# Six blocks, trained with and without -------------------------------------------------------------

ARMS = ("both", "attention", "network", "none")
"""Which sublayers have their skip connection."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
SIX_STEPS = 300


def six_trainings(seed: int) -> dict[str, Job]:
    """Six pre-norm blocks with each set of skip connections, each at the learning rate that suits it."""
    jobs = {}
    for arm in ARMS:
        config = SMALL.replace(n_layers=6, residual=arm != "none")
        options: dict[str, Any] = {"batch_size": 16, "schedule": Constant(warmup=20)}
        if arm in AROUND:
            options["prepare"] = OneSkip(AROUND[arm])
        search = Search(
            f"without-skips-{arm}", config, TASK, RATES, tuning_seeds(2), SIX_STEPS, options
        )
        rate = tuned(search)
        jobs[arm] = job(config, TASK, seed, steps=SIX_STEPS, learning_rate=rate, **options)
    return jobs


@measurement(
    seeds=10,
    coords={"arm": ARMS},
    trainings=six_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.1, "loss": 0.3, "rate": 0.0, "fall": 1e-3},
)
def six(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Six blocks with all skips, one of two, or none: accuracy, loss; the gradient without, before training."""
    scores = [evaluate(runs[arm].model, TASK, seed=seed) for arm in ARMS]
    jobs = six_trainings(seed)
    before = stream_gradients(fresh(seed, n_layers=6, residual=False).double(), batch_of(seed, 32))
    return {
        "fall": float(np.log10(before[0] / before[-1])),
        "accuracy": ("arm", [score.accuracy for score in scores]),
        "loss": ("arm", [score.loss for score in scores]),
        "rate": ("arm", [jobs[arm].settings["learning_rate"] for arm in ARMS]),
    }


# One connection cut -------------------------------------------------------------------------------

TWO = Config(vocab=12, placement="pre", activation="relu")
DEEP = Config(vocab=12, d_model=32, max_length=12, n_layers=12)
TWO_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
LATER = 500
"""What is added to the seeds of the trainings of twelve blocks, as in other chapters that look at them."""
CUTS = ("branch", "skip")
PLACES_IN_TWO = ("fetching", "other")


def two_trainings(seed: int) -> dict[str, Job]:
    """Two blocks of width 64, the case study's design, at the learning rate that suits them."""
    options = {"batch_size": 16}
    search = Search("norm-two-blocks-pre-6", TWO, TASK, TWO_RATES, tuning_seeds(2), 300, options)
    return {"two": job(TWO, TASK, seed, steps=300, learning_rate=tuned(search), **options)}


def twelve_trainings(seed: int) -> dict[str, Job]:
    """Twelve blocks of width 32 at the learning rate that suits them."""
    options: dict[str, Any] = {"batch_size": 16, "schedule": Constant(warmup=20)}
    search = Search("surviving-pre-norm", DEEP, TASK, TWO_RATES, tuning_seeds(2), 400, options)
    run = job(DEEP, TASK, seed + LATER, steps=400, learning_rate=tuned(search), **options)
    return {"twelve": run}


def after_cuts(model: Any, batch: Batch) -> Float[np.ndarray, "cut sublayer"]:
    """Accuracy after each single cut: without a sublayer's branch, and without its skip connection."""
    names = ledger(model, batch.inputs[:1]).names
    found = np.zeros((len(CUTS), len(names)))
    for i, what in enumerate(CUTS):
        for k, name in enumerate(names):
            with deleted(model, name, what):  # type: ignore[arg-type]
                found[i, k] = right(model, batch)
    return found


@torch.no_grad()
def right(model: Any, batch: Batch) -> float:
    """Share of the scored positions at which the model is right."""
    answers = model(batch.inputs).argmax(-1)
    return float((answers == batch.targets)[batch.scored].double().mean())


@measurement(
    seeds=20,
    coords={"cut": CUTS, "sublayer": tuple(range(4)), "where": PLACES_IN_TWO},
    trainings=two_trainings,
    repeat="opening",
    tolerance={"accuracy": 1.0, "by_role": 1.0, "straight": 0.5, "uncut": 0.05},
)
def cut_two(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two trained blocks with one connection cut: accuracy by sublayer, by role; the straight path's share."""
    model: Any = runs["two"].model
    batch = batch_of(seed, 128)
    found = after_cuts(model, batch)
    fetches = 2 * int(mirror_attention(model, batch.inputs).argmax())
    at = found[:, fetches]
    return {
        "accuracy": (("cut", "sublayer"), found.tolist()),
        "by_role": (("cut", "where"), np.stack([at, (found.sum(1) - at) / 3], axis=1).tolist()),
        "straight": float(share_by_length(model, batch_of(seed, 8))[0]),
        "uncut": right(model, batch),
    }


@measurement(
    seeds=10,
    coords={"cut": CUTS, "sublayer": tuple(range(24))},
    trainings=twelve_trainings,
    repeat="opening",
    tolerance={"accuracy": 1.0, "straight": 0.5, "uncut": 0.3},
)
def cut_twelve(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twelve trained blocks with one connection cut: accuracy by sublayer; the straight path's share."""
    model: Any = runs["twelve"].model
    batch = batch_of(seed, 64)
    return {
        "accuracy": (("cut", "sublayer"), after_cuts(model, batch).tolist()),
        "straight": float(share_by_length(model, batch_of(seed, 8))[0]),
        "uncut": right(model, batch),
    }


STAGES = ("untrained", "trained")


def straight_shares(model: Decoder | Encoder, batch: Batch) -> Float[np.ndarray, "state"]:
    """The straight path's share of the loss gradient at each state of a pre-norm model's stream.

    That path carries the gradient of the last state down unchanged; see `shares`.
    """
    names = ["embedding"]
    for i in range(model.config.n_layers):
        names += [f"blocks.{i}.residual_mid", f"blocks.{i}.residual_post"]
    with torch.enable_grad(), capture(model, *names, gradients=True) as seen:
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
        gradients = torch.autograd.grad(loss, [seen[name] for name in names])
    top = gradients[-1]
    return np.array([float((top * g).sum() / g.square().sum()) for g in gradients])


@measurement(
    seeds=10,
    coords={"stage": STAGES, "state": tuple(range(25))},
    trainings=twelve_trainings,
    repeat="opening",
    tolerance={"straight": 1.0},
)
def highway(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twelve blocks before and after training: the straight path's share of the gradient at every state."""
    before: Any = make_model(DEEP, causal=False, seed=seed + LATER).eval()
    after: Any = runs["twelve"].model
    batch = batch_of(seed, 8)
    found = [straight_shares(model, batch).tolist() for model in (before, after)]
    return {"straight": (("stage", "state"), found)}
