r"""What the chapter on activations and widths measures: products, text and facts by networks of equal size.

Networks that differ in their activation learn to multiply two numbers, by themselves, and to predict text, in
a decoder. Networks that differ in their width do so at the same stream and at the same number of parameters.

Sources: Shazeer (2020), "GLU Variants Improve Transformer", for gates and their two thirds of the width; So et
al. (2021), "Primer", for the square of ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_parameters
from measured_transformer.parts.feedforward import Activation, FeedForward, is_gated
from measured_transformer.tasks.facts import Facts
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.feedforward import squared_relu, with_squared_relu
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

Kind = Literal["relu", "gelu", "squared", "swiglu", "geglu"]
"""The activations that the chapter compares; 'squared' is the square of ReLU, the last two stand on a gate."""
KINDS: tuple[Kind, ...] = ("relu", "gelu", "squared", "swiglu", "geglu")


# Arms ---------------------------------------------------------------------------------------------


def activation_arms(config: Config) -> dict[Kind, Arm]:
    """Five models that differ in the activation of their networks, with as many parameters.

    Gated ones have two thirds of the neurons, to the nearest whole number, so that their three matrices have
    as many weights as the two of the others.

    >>> arms = activation_arms(Config(vocab=10, d_model=32, activation="relu"))
    >>> {name: arm.config.neurons for name, arm in arms.items()}
    {'relu': 128, 'gelu': 128, 'squared': 128, 'swiglu': 85, 'geglu': 85}

    Raises:
        ValueError: when the activation of `config` has a gate.
    """
    if is_gated(config.activation):
        raise ValueError(f"expected a network without a gate, got {config.activation!r}")
    relu, fewer = config.replace(activation="relu"), two_thirds(config.neurons)
    return {
        "relu": Arm(relu),
        "gelu": Arm(config.replace(activation="gelu")),
        "squared": Arm(relu, {"prepare": with_squared_relu}),
        "swiglu": Arm(config.replace(activation="swiglu", d_ff=fewer)),
        "geglu": Arm(config.replace(activation="geglu", d_ff=fewer)),
    }


def two_thirds(neurons: int) -> int:
    """How many neurons a gated network has in the place of so many without a gate."""
    return round(2 * neurons / 3)


def at_width(config: Config, ratio: float | int) -> Config:
    """The same decoder with a hidden layer `ratio` times as wide as its stream.

    >>> at_width(Config(vocab=10, d_model=32), 0.5).neurons
    16

    Raises:
        ValueError: when that makes no whole number of neurons.
    """
    neurons = ratio * config.d_model
    if neurons < 1 or neurons != int(neurons):
        raise ValueError(
            f"expected a ratio that makes a whole number of neurons, got {ratio} times {config.d_model}"
        )
    return config.replace(d_ff=int(neurons))


def at_equal_parameters(config: Config, ratio: float | int) -> Config:
    """The decoder with that ratio of hidden to model width whose parameters come nearest to those of `config`.

    The stream becomes wider for a smaller ratio and narrower for a larger one; heads keep their number and
    change their width with it. All parameters count, the tables of tokens among them.

    >>> config = Config(vocab=256, d_model=32)
    >>> at_equal_parameters(config, 1).d_model, at_equal_parameters(config, 4) == at_width(config, 4)
    (40, True)

    Raises:
        ValueError: when the ratio is not positive.
    """
    if not ratio > 0:
        raise ValueError(f"expected a positive ratio, got {ratio}")
    wanted = count_parameters(config, "decoder").total
    # Widths that the heads divide and that positions by sines can have; a whole number of neurons for halves.
    step = math.lcm(2, config.n_heads)

    def made(d_model: int) -> Config:
        return at_width(config.replace(d_model=d_model, d_head=None, d_ff=None), ratio)

    widths = [d for d in range(step, 4 * config.d_model + 1, step) if float(ratio * d).is_integer()]
    found = [made(d) for d in widths]
    return min(found, key=lambda one: abs(count_parameters(one, "decoder").total - wanted))


# A product by hand --------------------------------------------------------------------------------


@torch.no_grad()
def product_network(kind: Literal["relu", "gelu", "squared", "swiglu"]) -> FeedForward:
    r"""A network in float64 on a stream of two numbers $(a, b)$, its weights written down to multiply them.

    It writes the product to the first number and nothing to the second. With the square of ReLU, four neurons
    do it exactly, since $\max(0, s)^2 + \max(0, -s)^2 = s^2$ and $((a + b)^2 - (a - b)^2)/4 = ab$. With a
    gate of SiLU two do, since $\text{SiLU}(a) - \text{SiLU}(-a) = a$. The same four neurons with GELU are
    right near zero only, scaled by $\sqrt{\pi/2}$; with ReLU and a factor of one half they give
    $(|a + b| - |a - b|)/2$, which is the smaller of $|a|$ and $|b|$ with the sign of the product.

    >>> network = product_network("swiglu")
    >>> [round(x, 6) for x in network(torch.tensor([[[3.0, -2.0]]]).double()).flatten().tolist()]
    [-6.0, 0.0]

    Raises:
        ValueError: when the name is another one.
    """
    scales = {"relu": 0.5, "gelu": math.sqrt(math.pi / 2) / 4, "squared": 0.25, "swiglu": 1.0}
    if kind not in scales:
        raise ValueError(f"expected one of {', '.join(scales)}, got {kind!r}")
    activation: Activation = "relu" if kind == "squared" else kind
    gated = kind == "swiglu"
    network = FeedForward(2, 2 if gated else 4, activation=activation, bias=False).double()
    if gated:
        assert network.gate is not None
        network.gate.weight.copy_(_rows([1, 0], [-1, 0]))
        network.up.weight.copy_(_rows([0, 1], [0, -1]))
        signs = torch.ones(2)
    else:
        network.up.weight.copy_(_rows([1, 1], [-1, -1], [1, -1], [-1, 1]))
        signs = torch.tensor([1.0, 1.0, -1.0, -1.0])
    network.down.weight.zero_()
    network.down.weight[0] = scales[kind] * signs
    if kind == "squared":
        network.activate = squared_relu
    return network


def _rows(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()
def products(
    network: nn.Module, a: Float[Tensor, "x"], b: Float[Tensor, "y"]
) -> Float[Tensor, "y x"]:
    """What a network on two numbers writes to the first, for every pair of an a and a b."""
    first, second = torch.meshgrid(a, b, indexing="xy")
    written: Tensor = network(torch.stack([first, second], dim=-1))
    return written[..., 0]


HANDMADE = ("relu", "gelu", "squared", "swiglu")
REACH = 2.0
"""Both factors are between -2 and 2."""


@measurement(seeds=1, coords={"kind": HANDMADE}, tolerance={"off": 1e-12})
def by_hand(seed: int) -> dict[str, Any]:
    """How far the networks by hand are from the product, at most."""
    grid = torch.linspace(-REACH, REACH, 41, dtype=torch.float64)
    exact = grid[:, None] * grid
    off = [(products(product_network(kind), grid, grid) - exact).abs().max() for kind in HANDMADE]  # type: ignore[arg-type]
    return {"off": ("kind", [float(one) for one in off])}


# A product that is learned ------------------------------------------------------------------------

NEURONS = (4, 8, 16, 32)
PRODUCT_RATES = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
PRODUCT_STEPS = 1000
_SHAPES: Mapping[Kind, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "squared": squared_relu,
    "swiglu": F.silu,
    "geglu": F.gelu,
}


def learned_product(kind: Kind, neurons: int, seed: int, *, steps: int) -> Float[Tensor, "rate"]:
    r"""Train one network of two numbers to multiply, at every rate of the grid; its error over the square.

    A network with biases, $g(x W_1 + b_1) w_2 + b_2$ or with a gate, from Xavier weights, by Adam on the
    squared error of 128 new pairs a step, with a cosine over the rate. All rates see the same
    weights and pairs.

    Args:
        kind: of the activation; gated ones have two thirds of the neurons.
        neurons: of a network without a gate.
        seed: of weights and pairs.
        steps: of training.

    Returns:
        for each rate the root of the mean squared error over a grid of the square; infinite where it diverged.
    """
    draws = make_generator(seed, f"product {kind} {neurons}")
    gated, rates = is_gated(kind) if kind != "squared" else False, len(PRODUCT_RATES)
    width = two_thirds(neurons) if gated else neurons

    def fresh(rows: int, columns: int) -> Tensor:
        bound = math.sqrt(6 / (rows + columns))
        one = bound * (2 * torch.rand(rows, columns, generator=draws) - 1)
        return one.repeat(rates, 1, 1).requires_grad_()

    def zeros(columns: int) -> Tensor:
        return torch.zeros(rates, 1, columns, requires_grad=True)

    up, gate, down = fresh(2, width), fresh(2, width), fresh(width, 1)
    b_up, b_gate, b_down = zeros(width), zeros(width), zeros(1)
    weights = [up, b_up, down, b_down, *((gate, b_gate) if gated else ())]

    def written(x: Tensor) -> Tensor:
        each = x.expand(rates, *x.shape)
        inner, shape = torch.baddbmm(b_up, each, up), _SHAPES[kind]
        inner = shape(torch.baddbmm(b_gate, each, gate)) * inner if gated else shape(inner)
        return torch.baddbmm(b_down, inner, down)[..., 0]

    schedule = WarmupCosine(warmup=steps // 20, steps=steps)
    at = torch.tensor(PRODUCT_RATES).view(-1, 1, 1)
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    for step in range(steps):
        x = REACH * (2 * torch.rand(128, 2, generator=draws) - 1)
        loss = (written(x) - x.prod(1)).square().mean(1).sum()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.02)
                size = (v / (1 - 0.98 ** (step + 1))).sqrt() + 1e-8
                w -= at * schedule(step) * (m / (1 - 0.9 ** (step + 1))) / size
    grid = torch.linspace(-REACH, REACH, 41)
    pairs = torch.cartesian_prod(grid, grid)
    with torch.no_grad():
        error = (written(pairs) - pairs.prod(1)).square().mean(1).sqrt()
    return error.nan_to_num(math.inf)


@measurement(
    seeds=10,
    coords={"kind": KINDS, "neurons": NEURONS, "rate": PRODUCT_RATES},
    tolerance={"error": 0.3},
)
def multiplied(seed: int) -> dict[str, Any]:
    """Root mean square error of networks that were trained to multiply, at every learning rate."""
    found = [
        [learned_product(kind, m, seed, steps=PRODUCT_STEPS).tolist() for m in NEURONS]
        for kind in KINDS
    ]
    return {"error": (("kind", "neurons", "rate"), found)}


# Text ---------------------------------------------------------------------------------------------

TEXT = TextLM(corpus="python", length=32)
READER = Config(vocab=256, d_model=32, n_layers=2, n_heads=2, activation="relu")
TEXT_RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)
TEXT_STEPS = 300
TEXT_OPTIONS: Mapping[str, Any] = {
    "batch_size": 16,
    "schedule": WarmupCosine(warmup=15, steps=TEXT_STEPS),
}
WINDOWS = 1024


def on_text(name: str, config: Config, seed: int, **options: Any) -> Job:
    """One training on text, at the learning rate that suits the arm."""
    given = {**TEXT_OPTIONS, **options}
    search = Search(
        f"widths-text-{name}", config, TEXT, TEXT_RATES, tuning_seeds(1), TEXT_STEPS, given
    )
    return job(config, TEXT, seed, steps=TEXT_STEPS, learning_rate=tuned(search), **given)


def text_loss(run: Run) -> float:
    """Loss on windows that were not trained on, in nats a byte."""
    return evaluate(run.model, TEXT, seed=run.seed, size=WINDOWS).loss


READ: tuple[Kind, ...] = ("relu", "gelu", "squared", "swiglu")
"""The activations that are compared on text."""


def text_trainings(seed: int) -> dict[Kind, Job]:
    """One decoder for each activation."""
    arms = activation_arms(READER)
    return {kind: on_text(kind, arms[kind].config, seed, **arms[kind].options) for kind in READ}


@measurement(
    seeds=10,
    coords={"kind": READ},
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 0.1},
)
def text(seed: int, runs: Mapping[Kind, Run]) -> dict[str, Any]:
    """Loss on text and parameters of decoders that differ in their activation."""
    arms = activation_arms(READER)
    counts = [count_parameters(arms[kind].config, "decoder").total for kind in READ]
    return {
        "loss": ("kind", [text_loss(runs[kind]) for kind in READ]),
        "parameters": ("kind", counts),
    }


# Widths -------------------------------------------------------------------------------------------

RATIOS = (1, 4, 8)
SHALLOW = READER.replace(n_layers=1)
HELD = ("stream", "parameters")


def resized(config: Config, held: str, ratio: int) -> Config:
    """The model with that ratio of widths, the stream or the number of parameters held fixed."""
    return at_width(config, ratio) if held == "stream" else at_equal_parameters(config, ratio)


def widths_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Decoders of one block with ReLU, whose networks are once to eight times as wide as their streams."""
    jobs = {}
    for held in HELD:
        for ratio in RATIOS:
            name = "4" if ratio == 4 else f"{held}-{ratio}"
            jobs[held, ratio] = on_text(name, resized(SHALLOW, held, ratio), seed)
    return jobs


@measurement(
    seeds=10,
    coords={"held": HELD, "ratio": RATIOS},
    trainings=widths_trainings,
    repeat="opening",
    tolerance={"loss": 0.1},
)
def widths(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Loss on text by the width of the network, at the same stream and at the same parameters."""
    axes = ("held", "ratio")
    configs = [[resized(SHALLOW, held, ratio) for ratio in RATIOS] for held in HELD]
    return {
        "loss": (axes, [[text_loss(runs[held, ratio]) for ratio in RATIOS] for held in HELD]),
        "d_model": (axes, [[one.d_model for one in row] for row in configs]),
        "parameters": (
            axes,
            [[count_parameters(one, "decoder").total for one in row] for row in configs],
        ),
    }


# Facts --------------------------------------------------------------------------------------------

FACTS = Facts(count=1024, subjects=64, relations=32, objects=16)
KEEPER = Config(
    vocab=FACTS.vocab, d_model=16, n_layers=1, n_heads=2, positions="none", activation="relu"
)
FACT_STEPS = 400
FACT_RATES = (5e-3, 1e-2, 2e-2, 4e-2, 8e-2, 1.6e-1)
FACT_ARMS: Mapping[str, Config] = {
    "four": KEEPER,
    "once": at_width(KEEPER, 1),
    "wider": at_equal_parameters(KEEPER, 1),
}
"""Four times the width of the stream, once the width, and once the width on a stream that is wider for it."""


def facts_trainings(seed: int) -> dict[str, Job]:
    """Models that learn a table which none of them can keep whole."""
    options = {"batch_size": 256, "schedule": WarmupCosine(warmup=20, steps=FACT_STEPS)}
    jobs = {}
    for name, config in FACT_ARMS.items():
        search = Search(
            f"widths-facts-{name}", config, FACTS, FACT_RATES, tuning_seeds(2), FACT_STEPS, options
        )
        rate = tuned(search)
        jobs[name] = job(config, FACTS, seed, steps=FACT_STEPS, learning_rate=rate, **options)
    return jobs


@measurement(
    seeds=10,
    coords={"arm": tuple(FACT_ARMS)},
    trainings=facts_trainings,
    repeat="opening",
    tolerance={"bits": 400.0, "recalled": 0.1},
)
def facts(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How many bits of a random table of 1024 facts are kept, and the share of facts that is recalled."""
    scores = [evaluate(runs[name].model, FACTS, seed=seed, size=FACTS.count) for name in FACT_ARMS]
    gained = [FACTS.blind_loss() - score.loss for score in scores]
    counts = [count_parameters(config, "decoder").total for config in FACT_ARMS.values()]
    return {
        "bits": ("arm", [FACTS.count * one / math.log(2) for one in gained]),
        "recalled": ("arm", [score.accuracy for score in scores]),
        "parameters": ("arm", counts),
        "d_model": ("arm", [config.d_model for config in FACT_ARMS.values()]),
    }
