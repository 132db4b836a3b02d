"""What the chapter on relative position measures: rotations, what rounding does to them, trained schemes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.curves import steps_until
from measured_transformer.analysis.extrapolation import excess_loss
from measured_transformer.analysis.positions import captured, position_r2_by_layer, probe_r2
from measured_transformer.analysis.sinusoids import explained_by_offset, shift_matrix
from measured_transformer.internals.capture import capture
from measured_transformer.interop.pairing import convert_pairing
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import Pairing, frequencies, rotation, sinusoidal_encoding
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.positions import PartialRotary, RotaryInBlocks
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

DOUBLE = torch.float64


# Identities, on drawn sizes -----------------------------------------------------------------------


@measurement(seeds=100, repeat=2)
def drawn(seed: int) -> dict[str, Any]:
    """Drawn tables, rotations and models against what is proved of them, each beside a control that differs."""
    rng, generator = np.random.default_rng(seed), make_generator(seed, "drawn rotations")
    return {
        **_moving(rng, generator),
        **_turning(rng, generator),
        **_in_models(rng, generator, seed),
        **_pairing(rng, generator, seed),
    }


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=DOUBLE)


def _moving(rng: Any, generator: torch.Generator) -> dict[str, Any]:
    """One matrix moves every row of a sinusoidal table; a random table's best linear map does not."""
    d, k = 2 * int(rng.integers(1, 17)), int(rng.integers(1, 60))
    table, noise = sinusoidal_encoding(200, d, dtype=DOUBLE), _normal(200, d, generator=generator)
    best = torch.linalg.lstsq(noise[:-k], noise[k:]).solution
    return {
        "moved": float((table[k:] - table[:-k] @ shift_matrix(k, d)).abs().max()),
        # The last digits of least squares depend on where its memory lies.
        "moved_control": round(float((noise[k:] - noise[:-k] @ best).abs().max()), 9),
    }


def _turning(rng: Any, generator: torch.Generator) -> dict[str, Any]:
    """The library's rotation against complex numbers; the other pairing, and adding, are the controls."""
    n, d = int(rng.integers(2, 100)), 2 * int(rng.integers(2, 33))
    x = _normal(1, 1, n, d, generator=generator)
    y = rotation(n, d, dtype=DOUBLE).apply(x)
    halves = rotation(n, d, pairing="halves", dtype=DOUBLE).apply(x)
    wanted = by_complex_numbers(x)
    added = x + sinusoidal_encoding(n, d, dtype=DOUBLE)
    return {
        "turned": float((y - wanted).abs().max()),
        "turned_control": float((halves - wanted).abs().max()),
        "lengths": float((y.norm(dim=-1) - x.norm(dim=-1)).abs().max()),
        "lengths_control": float((added.norm(dim=-1) - x.norm(dim=-1)).abs().max()),
    }


def by_complex_numbers(
    x: Float[Tensor, "*batch position d_head"],
) -> Float[Tensor, "*batch position d_head"]:
    """Each pair of neighbours as a complex number, times e^(i angle): another way to the same rotation."""
    n, d = x.shape[-2:]
    angles = torch.arange(n, dtype=DOUBLE)[:, None] * frequencies(d)
    turn = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)


def _in_models(rng: Any, generator: torch.Generator, seed: int) -> dict[str, Any]:
    """What enters the stream, and what the values are, by scheme, for the same weights."""
    base = Config(vocab=9, d_model=16, n_heads=2, n_layers=1, positions="none")
    tokens = torch.randint(9, (2, int(rng.integers(2, 50))), generator=generator)
    entering, value = {}, {}
    for name in ("none", "rotary", "sinusoidal"):
        model = make_model(base.replace(positions=name), causal=False, seed=seed).double()
        with capture(model, "embedding", "*.values") as seen, torch.no_grad():
            model(tokens)
        entering[name], value[name] = seen["embedding"], seen["blocks.0.attention.values"]
    rows = sinusoidal_encoding(tokens.shape[1], 16, dtype=DOUBLE)

    def added(name: str) -> float:
        return float((entering[name] - entering["none"] - rows).abs().max())

    def changed(name: str) -> float:
        return float((value[name] - value["none"]).abs().max())

    return {
        "stream": added("sinusoidal"),
        "stream_control": added("rotary"),
        "values": changed("rotary"),
        "values_control": changed("sinusoidal"),
    }


def _pairing(rng: Any, generator: torch.Generator, seed: int) -> dict[str, Any]:
    """Patterns of a layer whose weights were converted to the other pairing, and of one whose were not."""
    heads, n = int(rng.integers(1, 4)), int(rng.integers(8, 40))
    base = Config(vocab=9, d_model=16, n_heads=heads, d_head=8, n_layers=1, positions="rotary")
    tokens = torch.randint(9, (2, n), generator=generator)
    neighbours = pattern_of(base, seed, tokens)
    return {
        "converted": float(
            (pattern_of(base, seed, tokens, "halves", True) - neighbours).abs().max()
        ),
        "converted_control": float(
            (pattern_of(base, seed, tokens, "halves") - neighbours).abs().max()
        ),
    }


@torch.no_grad()
def pattern_of(
    config: Config,
    seed: int,
    tokens: Int[Tensor, "batch position"],
    pairing: Pairing = "interleaved",
    convert: bool = False,
) -> Float[Tensor, "batch head query key"]:
    """The attention pattern of a drawn layer, by code of one pairing, its weights converted for it or not."""
    model = make_model(config.replace(rotary_pairing=pairing), causal=False, seed=seed).double()
    attention: Any = model.blocks[0].attention
    if convert:
        for projection in (attention.query, attention.key):
            projection.weight.copy_(
                convert_pairing(projection.weight, config.head_width, to=pairing)
            )
    with capture(model, "*.pattern") as seen:
        model(tokens)
    return seen["blocks.0.attention.pattern"]


@measurement(seeds=20, repeat=2, tolerance={"rotary": 1e-3, "sinusoidal": 1e-3})
def values_probe(seed: int) -> dict[str, Any]:
    """How well the position can be read off the first layer's values of an untrained decoder, as R2."""
    return {name: r2_of_values(name, seed) for name in ("rotary", "sinusoidal")}


def r2_of_values(name: str, seed: int) -> float:
    """The R2 of a probe that reads the position off the values, for one scheme."""
    task = Lag(vocab=8)
    model = make_model(Config(vocab=8, d_model=32, positions=name), causal=True, seed=seed)
    tap = "blocks.0.attention.values"
    seen = captured(model, task, tap, seed=seed, size=256)
    return probe_r2(seen[tap].transpose(1, 2).flatten(2))


# What rounding does -------------------------------------------------------------------------------

SHIFTS = (1, 10, 100, 1000, 10_000, 100_000)
ROUTES: Mapping[str, tuple[torch.dtype, torch.dtype]] = {
    "float64": (torch.float64, torch.float64),
    "float32": (torch.float32, torch.float64),
    "float32, angles too": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.float64),
    "bfloat16, angles in float32": (torch.bfloat16, torch.float32),
    "bfloat16, angles too": (torch.bfloat16, torch.bfloat16),
}
"""The precision of vectors and that of angles, by name."""


@measurement(
    seeds=20,
    coords={"route": tuple(ROUTES), "shift": SHIFTS},
    repeat=2,
    tolerance={"error": 0.5, "control": 0.05},
)
def rounding(seed: int) -> dict[str, Any]:
    """Largest change of 200 rotary scores when query and key are shifted together; control: the query alone."""
    drifts = [
        rotary_drift(list(SHIFTS), dtype=dtype, angles=angles, seed=seed)
        for dtype, angles in ROUTES.values()
    ]
    axes = ("route", "shift")
    return {
        "error": (axes, [drift.error for drift in drifts]),
        "control": (axes, [drift.control for drift in drifts]),
    }


def rotary_scores(
    queries: Float[Tensor, "pair_of_positions d_head"],
    keys: Float[Tensor, "pair_of_positions d_head"],
    query_positions: Int[Tensor, "pair_of_positions"],
    key_positions: Int[Tensor, "pair_of_positions"],
    *,
    dtype: torch.dtype = torch.float64,
    angles: torch.dtype = torch.float64,
) -> Float[Tensor, "pair_of_positions"]:
    """Score q . k / sqrt(d_head) of each query with its key, both rotated, computed in `dtype`.

    Args:
        queries, keys: one row for each pair of positions, not yet rotated.
        query_positions, key_positions: where they stand.
        dtype: of vectors, cosines, sines and the sum.
        angles: the precision of positions, frequencies and angles; the library's is float64.

    Returns:
        float64 scores.
    """
    d_head = queries.shape[-1]
    turned = []
    for x, positions in ((queries, query_positions), (keys, key_positions)):
        angle = (positions.to(angles)[:, None] * frequencies(d_head).to(angles)).double()
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        even, odd = x.to(dtype)[:, 0::2], x.to(dtype)[:, 1::2]
        turned.append(torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1))
    return (turned[0] * turned[1]).sum(-1).double() / math.sqrt(d_head)


@dataclass(frozen=True)
class Drift:
    """What a common shift does to rotary scores.

    Attributes:
        error: at each shift, the largest change of a score, 0 if only the offset counts.
        control: at each shift above zero, the largest change when the query alone is shifted.
    """

    error: Float[ndarray, "shift"]
    control: Float[ndarray, "shift"]


def rotary_drift(
    shifts: list[int],
    *,
    dtype: torch.dtype,
    angles: torch.dtype = torch.float64,
    seed: int = 0,
    pairs: int = 200,
    d_head: int = 64,
) -> Drift:
    """Shift queries and keys at random places together and see how far their scores move.

    The entries of queries and keys are standard normal, so the scores have standard deviation one. Scores
    are compared with those at shift zero in the same precision.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, pairs, d_head, generator=generator, dtype=torch.float64)
    places = torch.randint(0, 128, (2, pairs), generator=generator)

    def score(query_shift: int, key_shift: int) -> Tensor:
        return rotary_scores(
            queries,
            keys,
            places[0] + query_shift,
            places[1] + key_shift,
            dtype=dtype,
            angles=angles,
        )

    unshifted = score(0, 0)
    error = [(score(k, k) - unshifted).abs().max().item() for k in shifts]
    control = [(score(k, 0) - unshifted).abs().max().item() for k in shifts if k]
    return Drift(np.array(error), np.array(control))


# What the base sets, and what distance does ---------------------------------------------------------

D_HEAD = 128
BASES = (10_000, 500_000)
DISTANCES = (0, *sorted({round(10**x) for x in np.linspace(0, 4.2, 240)}))
SPREAD_AT = (1, 10, 100, 1000, 10_000)


@measurement(
    seeds=1, coords={"base": BASES, "pair": tuple(range(D_HEAD // 2)), "distance": DISTANCES}
)
def turns(seed: int) -> dict[str, Any]:
    """Positions a turn of each pair, and the score of two equal vectors by distance, beside its upper bound."""
    del seed  # nothing is drawn
    alike, bound = zip(*(by_distance(float(base)) for base in BASES), strict=True)
    return {
        "period": (
            ("base", "pair"),
            [2 * math.pi / frequencies(D_HEAD, base=float(b)) for b in BASES],
        ),
        "alike": (("base", "distance"), list(alike)),
        "bound": (("base", "distance"), list(bound)),
    }


def by_distance(base: float) -> tuple[Float[ndarray, "distance"], Float[ndarray, "distance"]]:
    """The score of two equal vectors of ones over that at distance 0, and the bound of Su et al. on it.

    The bound is the mean over pairs of the length of the sum of the first pairs' turns (section 3.4.3).
    """
    turned = np.exp(1j * np.outer(DISTANCES, frequencies(D_HEAD, base=base).numpy()))
    return turned.real.mean(1), np.abs(np.cumsum(turned, axis=1)).mean(1)


@measurement(seeds=20, coords={"distance": SPREAD_AT}, repeat=2)
def spread(seed: int) -> dict[str, Any]:
    """Standard deviation of the scores of 2000 independent normal queries and keys by distance, rotary."""
    q, k = _normal(2, 2000, D_HEAD, generator=make_generator(seed, "spread"))
    zero = torch.zeros(len(q), dtype=torch.int64)
    scores = [rotary_scores(q, k, zero + distance, zero) for distance in SPREAD_AT]
    return {"deviation": ("distance", [float(each.std()) for each in scores])}


# The schemes side by side -------------------------------------------------------------------------

SCHEMES = (
    "none",
    "learned",
    "sinusoidal",
    "relative",
    "alibi",
    "rotary",
    "partial",
    "hybrid",
)


def scheme(config: Config, name: str) -> tuple[Config, dict[str, Any]]:
    """The config of a scheme, and what it changes in the training.

    'relative' is T5's bias; 'partial' is rotary on a quarter of each head; 'hybrid' is rotary in the first
    block and no positions in the others.
    """
    if name == "partial":
        return config.replace(positions="rotary"), {"prepare": PartialRotary(0.25)}
    if name == "hybrid":
        return config.replace(positions="rotary"), {"prepare": RotaryInBlocks((0,))}
    return config.replace(positions=name), {}


PLAIN = ("none", "learned", "sinusoidal", "relative", "alibi", "rotary")
PROBE = Config(vocab=2, d_model=32, n_heads=1, n_layers=1, max_length=64)


@measurement(seeds=10, coords={"scheme": PLAIN[1:]}, repeat=2, tolerance={"explained": 1e-3})
def maps(seed: int) -> dict[str, Any]:
    """How much of the variance of an untrained head's scores of equal tokens the offset explains."""
    shares = [
        explained_by_offset(score_map(PROBE.replace(positions=name), 64, seed=seed).double())
        for name in PLAIN[1:]
    ]
    return {"explained": ("scheme", shares)}


@torch.no_grad()
def score_map(config: Config, n: int, *, seed: int = 0) -> Float[Tensor, "query key"]:
    """Scores of the first head of an untrained encoder when the same token stands at all n positions.

    The tokens being equal, whatever differs between two scores comes from the positions.
    """
    with seeded(seed):
        model = Encoder(config).eval()
    tokens = torch.zeros(1, n, dtype=torch.long)
    with capture(model, "blocks.0.attention.scores") as seen:
        model(tokens)
    return seen["blocks.0.attention.scores"][0, 0]


# Three rules, eight schemes -----------------------------------------------------------------------

WIDE = Config(vocab=8, d_model=32, n_heads=2, max_length=256)
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
"""The grid of learning rates, the same for every scheme and rule."""


@dataclass(frozen=True)
class Rule:
    """A task, how long it is trained, and the best loss that is possible.

    Attributes:
        name: of the rule, for the table of tuned rates.
        task: what is learned.
        steps: of training.
        batch: sequences a step.
        best: nats a scored token.
        tuned_on: how many tuning seeds choose each scheme's learning rate.
    """

    name: str
    task: Task
    steps: int
    batch: int
    best: float
    tuned_on: int


NEAR = 0.05
"""Nats above the best possible loss at which a rule counts as learned."""


def training_of(rule: Rule, name: str, seed: int, steps: int) -> Job:
    """One scheme, at the learning rate that suits it for the rule's own number of steps."""
    config, options = scheme(WIDE, name)
    options = {**options, "batch_size": rule.batch}
    search = Search(
        f"relative-{rule.name}-{name}",
        config,
        rule.task,
        RATES,
        tuning_seeds(rule.tuned_on),
        rule.steps,
        options,
    )
    return job(config, rule.task, seed, steps=steps, learning_rate=tuned(search), **options)


def trainings_of(rule: Rule, seed: int) -> dict[str, Job]:
    """Every scheme on one rule."""
    return {name: training_of(rule, name, seed, rule.steps) for name in SCHEMES}


def outcomes(rule: Rule, seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Steps to within `NEAR` of the best possible loss (all of them where it is not reached), and accuracy."""
    models = [runs[name].model for name in SCHEMES]
    needed = [float(steps_until(runs[name].losses, rule.best + NEAR)) for name in SCHEMES]
    scores = [evaluate(model, rule.task, seed=seed, size=512) for model in models]
    return {"steps": ("scheme", needed), "accuracy": ("scheme", [s.accuracy for s in scores])}


BACK_TASK = Lag(vocab=8, length=32)
BACK = Rule("lag", BACK_TASK, 200, 16, BACK_TASK.bayes_loss(), 2)
COPY = Rule("copy", Induction(vocab=8, length=32, shortest=3, longest=6), 300, 16, 0.0, 1)
MIRROR = Rule("mirror", Reversal(vocab=8, length=12), 200, 16, 0.0, 1)
TOLERANCE = {"steps": 100.0, "accuracy": 0.2}


def three_back_trainings(seed: int) -> dict[str, Job]:
    """Every scheme on the rule 'three back'."""
    return trainings_of(BACK, seed)


@measurement(
    seeds=10,
    coords={"scheme": SCHEMES, "layer": (0, 1, 2)},
    trainings=three_back_trainings,
    tolerance={**TOLERANCE, "inside": 0.3, "moved": 0.3, "place": 0.2},
)
def three_back(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two-block decoders on the rule 'three back': steps to learn it, and what moving the sequence costs."""
    models: dict[str, Any] = {name: run.model for name, run in runs.items()}

    def excess(name: str, **where: int) -> float:
        lost = excess_loss(
            models[name], BACK_TASK, seed=seed, size=32, length=BACK_TASK.length, **where
        )
        return float(np.nanmean(lost))

    return {
        **outcomes(BACK, seed, runs),
        "inside": ("scheme", [excess(name) for name in SCHEMES]),
        "moved": ("scheme", [excess(name, shift=100) for name in SCHEMES]),
        "place": ("layer", position_r2_by_layer(models["none"], BACK_TASK, seed=seed)),
    }


def induction_trainings(seed: int) -> dict[str, Job]:
    """Every scheme on strings that repeat."""
    return trainings_of(COPY, seed)


@measurement(
    seeds=6,
    coords={"scheme": SCHEMES},
    trainings=induction_trainings,
    tolerance=TOLERANCE,
    repeat="opening",
)
def induction(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two-block decoders on strings that repeat: steps to learn that what followed a token follows it again."""
    return outcomes(COPY, seed, runs)


def reversal_trainings(seed: int) -> dict[str, Job]:
    """Every scheme on reversal."""
    return trainings_of(MIRROR, seed)


@measurement(
    seeds=6,
    coords={"scheme": SCHEMES},
    trainings=reversal_trainings,
    tolerance=TOLERANCE,
    repeat="opening",
)
def reversal(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Two-block encoders on reversal, a rule of places and not of offsets: steps to learn it."""
    return outcomes(MIRROR, seed, runs)


LATE = {
    "alibi_back": (BACK, "alibi"),
    "none_back": (BACK, "none"),
    "relative_mirror": (MIRROR, "relative"),
    "rotary_mirror": (MIRROR, "rotary"),
}
"""Schemes that do not learn a rule in the steps that it is given, and are given more."""
PATIENCE = 1000


def late_trainings(seed: int) -> dict[str, Job]:
    """Schemes that did not get there, with more steps at the same learning rate."""
    return {case: training_of(rule, name, seed, PATIENCE) for case, (rule, name) in LATE.items()}


@measurement(
    seeds=3,
    coords={"case": tuple(LATE)},
    trainings=late_trainings,
    repeat="opening",
    tolerance={"steps": 1000.0, "accuracy": 0.3},
)
def late(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Schemes that did not learn a rule in its steps, with 1000: steps to learn it, and the accuracy then."""
    cases = {case: (rule, runs[case]) for case, (rule, _) in LATE.items()}
    needed = [float(steps_until(run.losses, rule.best + NEAR)) for rule, run in cases.values()]
    accuracy = [
        evaluate(run.model, rule.task, seed=seed, size=512).accuracy for rule, run in cases.values()
    ]
    return {"steps": ("case", needed), "accuracy": ("case", accuracy)}
