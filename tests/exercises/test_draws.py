"""Exercises with other numbers: the same key draws the same ones, and the checker knows their answers."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from exercise_pages import parts
from measured_book.exercises import check, draw
from measured_book.exercises.draws import can_be_drawn
from measured_book.exercises.registry import Drawing, exercises, find

ROOT = Path(__file__).parents[2]
DRAWN = [one.name for one in exercises() if one.drawing is not None]
FUNCTIONS = [one.name for one in exercises() if one.drawing is None and can_be_drawn(one)]
KEYS = ("Ada", "Ben", "Chloë", "Dan", "Eve")


def by_hand(entries):
    d, mean = len(entries), sum(entries) / len(entries)
    spread = math.sqrt(sum((one - mean) ** 2 for one in entries) / d)
    return (max(entries) - mean) / spread, math.sqrt(d), math.sqrt((d - 1) / d)


def cached(layers, heads, head, groups, latent, turned):
    return tuple(
        n * 2 * layers / 1024
        for n in (2 * heads * head, 2 * groups * head, 2 * head, latent + turned)
    )


def rectified(beta2):
    limit, t = 2 / (1 - beta2) - 1, 1
    while limit - 2 * t * beta2**t / (1 - beta2**t) <= 5:
        t += 1
    return limit, t


def padded(places):
    total = math.exp(2) + math.exp(1) + 1 + places
    return 3 * math.exp(2) / total, 3 * math.exp(1) / total


def sparse(highest, second, lowest):
    cut = (highest + second - 1) / 2
    return highest - cut, second - cut, 0.0, cut


def needed(weight, few, many, copies):
    margin = math.log(weight * (few - 1) / (1 - weight))
    among = [n / (n + (many - n) * math.exp(-margin)) for n in (1, copies)]
    return margin, among[0], math.log((many - 1) / (few - 1)), among[1]


def texts(layers, heads, width, length, weights, memory, groups):
    def fits(kv_heads):
        return int((memory - weights) * 1e9 // (2 * 2 * layers * kv_heads * width * length))

    return 4e-9 * layers * heads * width * length, fits(heads), fits(groups)


def crossings(gated, share, plain):
    """Projections, pairs and the network, in units of n d d: 4 of x are the pairs."""
    return (2 * 3 * gated - 8) / 4, (16 - (4 + 4 / share)) / 4, (2 * 2 * plain - 8) / 4


def taken(start, first, second, third, carried):
    def run(*parts):
        left = start
        for part in parts:
            left -= left / part
        return left

    slots = [carried, 0, 0, 0]
    for member in (0, 2, 1, 2):
        slots[member + 1] = slots[member + 1] or slots[member]
    return run(first, second, third), run(first, third), run(first, second, third, first), slots[3]


def idle(words, seen, chosen):
    row = [0.0] * (seen - chosen) + [1 / chosen] * chosen
    gini = sum((2 * i - seen - 1) * w for i, w in enumerate(row, 1)) / (seen - 1)
    distances = [sum(range(i + 1)) / (i + 1) for i in range(1, words)]
    return sum(distances) / len(distances), math.log(chosen) / math.log(seen), gini


def balance(first, second, third):
    mean = (first + second + third) / 3
    return 1 - third, 2 * (2 / 3 * mean + 1 / 3 * (1 - mean))


def spared(tokens, lead):
    def loss(logit):
        return -math.log(math.exp(logit) / (math.exp(logit) + tokens - 1))

    return (
        0.75 * (loss(lead) - loss(2 * lead)),
        0.75 * (loss(0) - loss(2 * lead)),
        0.25 * (loss(0) - loss(lead)),
    )


def spent(travel, peak, ramp):
    root = (travel - ramp * peak / 2) / peak / 2 / ramp**0.5 + ramp**0.5
    return travel / peak - 0.5, 1 - math.exp(-1), root**2


def rested(score, others, shorter):
    weight = 1 / (1 + others * math.exp(-score))
    return weight, weight / (weight + shorter * (1 - weight))


def four(a, b):
    inputs = (a + b, -a - b, a - b, b - a)
    signs = (1, 1, -1, -1)

    def summed(g):
        return sum(sign * g(x) for sign, x in zip(signs, inputs, strict=True))

    logistic = summed(lambda x: abs(x) * math.tanh(abs(x) / 2) / 2)
    return summed(lambda x: max(x, 0)) / 2, summed(lambda x: max(x, 0) ** 2) / 4, logistic / 2


def written(one, two, keys, biases, values):
    active = [max(0, one * k + two * m + b) for (k, m), b in zip(keys, biases, strict=True)]
    return tuple(sum(a * v[i] for a, v in zip(active, values, strict=True)) for i in range(2))


def nearest(back):
    heads = range(1, 9)
    return min(heads, key=lambda h: abs(math.exp(-back / 2**h) - 0.1)), 1 - math.exp(-0.5)


def quiet(rate, curvature, size):
    limit = 2 * 1.9 / 0.1  # with momentum 0.9
    root = rate * curvature / limit  # of v, where a step reaches it
    silent = [2 * math.log(root / size) / math.log(beta2) for beta2 in (0.98, 0.999)]
    return (*silent, math.log(0.5) / math.log(0.98))


def alike(base):
    s = {k: math.cos(k) + math.cos(k * base**-0.5) for k in range(1, 10)}
    return s[1], s[2], max(s, key=s.__getitem__)


RIGHT: dict[str, Any] = {
    "activations_and_widths.four_neurons": four,
    "allocation.needle": needed,
    "at_inference.memory": texts,
    "carry_over.chance": lambda even, lopsided: tuple(p * p + (1 - p) * (1 - p) for p in (even, lopsided)),
    "cost.equal": crossings,
    "encdec.counts": lambda source, target, heads: (heads * target * source, heads * source * source, 1),
    "feed_forward.by_hand": lambda one, two: written(
        one, two, ((1, -1), (1, 1), (-1, 0)), (0, -2, 0), ((1, 0), (-2, 1), (1, 3))
    ),
    "heads.virtual": lambda stay: (stay * stay, 2 * stay * (1 - stay), (1 - stay) * (1 - stay)),
    "ladder.rungs": lambda weights, tokens, taken: (
        weights * tokens / 1024, taken * 1024 / weights, 9.44e6 / tokens
    ),
    "layers.idle": idle,
    "layers_as_steps.teams": taken,
    "metrics.counted": lambda right, padding, printed, most: (
        padding + right * (1 - padding), (printed - most) / (1 - most)
    ),
    "many_streams.by_hand": lambda first, stay, cross, factor, layers, share: (
        stay * first + cross * first + 2 * factor * first / 2,
        (stay + cross) ** layers,
        ((1 - share) - share) ** layers,
    ),
    "mixture_of_experts.by_hand": balance,
    "neurons.by_hand": lambda one, two: written(
        one, two, ((2, 1), (1, -1), (-1, 0)), (0, 0, 0), ((2, 1), (3, 3), (5, -5))
    ),
    "one_head.spare": spared,
    "positions.diluted": lambda sublayers: (0.5 / sublayers, math.sqrt(0.5) ** sublayers),
    "positions.similarity": alike,
    "partly_rotary.new": lambda trained, read, window, pairs, turning: (
        read - trained, window - 1, 2 * math.pi / 10_000 ** (-(turning - 1) / pairs)
    ),
    "positions.slopes": nearest,
    "real_model.budget": lambda pieces, width, blocks: (pieces / (pieces + 12 * blocks * width), 8 / 12),
    "schedules.budget": spent,
    "shakespeare_words.epoch": lambda words, length, batch, vocabulary, higher, lower: (
        words / length / batch, vocabulary, math.log(higher) - math.log(lower)
    ),
    "sink.nothing_left": rested,
    "spikes.silence": quiet,
    "thirty_blocks.growth": lambda percent, blocks, write: (
        math.exp(blocks * math.log1p(percent / 100)), math.cos(math.atan(write))
    ),
    "training_attention.even": lambda rows, level, deviation: (
        4 / (rows + 1) ** 2, math.exp(2 / (rows + 1) ** 2 / (1 - level)), 2 / (rows + 1) / deviation**2
    ),
    "attention.padding": padded,
    "depth.luck": lambda models, order: (1 / models, 1 / math.gamma(order + 1)),
    "induction.weight": lambda score, keys, wanted: (
        1 / (1 + (keys - 1) * math.exp(-score)), math.log((keys - 1) / (1 / wanted - 1))
    ),
    "initialisation.uniform": lambda reach, layers: (reach**2 / 3, (reach**2 / 3) ** layers),
    "language.compared": lambda byte, token, length: (
        math.log(byte, 2), math.log(token, 2) / length
    ),
    "layer_norm.by_hand": by_hand,
    "learning_rate.edge": lambda least, middle, most: (2 / most, 2 / (least + most)),
    "norm_gradients.on_the_skip": lambda blocks: (math.sqrt(0.5) ** (2 * blocks), 1.0),
    "norm_gradients.rate_factors": lambda times: (times * times, times),
    "positions.gaps": lambda places, few, many: ((places + 1) / (few + 1), (places + 1) / (many + 1)),
    "positions.turned_pairs": lambda pairs, length, base: sum(
        2 * math.pi * base ** (2 * i / (2 * pairs)) <= length for i in range(pairs)
    ),
    "projections.cache": cached,
    "projections.knobs": lambda width, head: (
        2 * width * head - head**2, width * head - head * (head - 1) / 2
    ),
    "recurrent.forget": lambda bias, tokens: (
        math.log(2) / math.log1p(math.exp(-bias)), -math.log(math.exp(1 / tokens) - 1)
    ),
    "scale.sparsemax": sparse,
    "scale.variance": lambda query, key, width, stream, heads: (query * key * width, 2 * width, 1 / heads),
    "training_attention.rows": lambda keys: (
        math.log(2, keys), 0.0, -(0.5 * math.log(0.5, keys) + 0.5 * math.log(0.5 / (keys - 1), keys))
    ),
    "ways_to_write_nothing.quiet": lambda keys, sink, fitting: (
        1 / (1 + math.exp(sink) / keys), math.log(keys) - sink,
        1 / (1 + (keys - 1) * math.exp(-fitting) + math.exp(sink - fitting))
    ),
    "warm_up.rectified": rectified,
    "warm_up.uncorrected": lambda beta1, low, high: (
        (1 - beta1) / (1 - low) ** 0.5, (1 - beta1) / (1 - high) ** 0.5, (1 - high) ** -0.5
    ),
}  # fmt: skip
"""What every drawn exercise asks for, computed here anew from its numbers."""


def test_every_drawn_exercise_is_solved_here():
    assert set(RIGHT) == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_the_checker_knows_the_answer_to_each_draw_and_to_no_other(name):
    answers = {key: RIGHT[name](**draw(name, key).numbers) for key in KEYS}
    for key, answer in answers.items():
        drawn = draw(name, key)
        assert check(drawn, answer, show=False), drawn
        assert check(name, answer, draw=key, show=False)
        others = [other for other in KEYS if answers[other] != answer]
        for other in others:
            assert not check(name, answer, draw=other, show=False), (key, other)
    assert len({repr(draw(name, key).numbers) for key in KEYS}) > 1


@pytest.mark.parametrize("name", DRAWN)
def test_a_draw_states_its_numbers_and_is_the_same_for_the_same_key(name):
    one, again = draw(name, "Ada"), draw(name, "Ada")
    assert one == again
    assert "{" not in one.asked
    for number in one.numbers.values():
        assert str(number) in one.asked, "whoever is asked must see it"
    assert one.asked in repr(one)
    assert "Ada" in one._repr_html_()


@pytest.mark.parametrize("name", DRAWN)
def test_the_numbers_of_the_page_are_those_of_the_statement_without_a_draw(name):
    (solution,) = [p for p in parts(ROOT / "book") if p.kind == "solution" and name in p.names]
    assert solution.label
    defaults = (
        find(name).checker.__wrapped__
        if hasattr(find(name).checker, "__wrapped__")
        else find(name).checker
    )
    assert set(draw(name, "Ada").numbers) == set(defaults.__kwdefaults__ or defaults.__annotations__) - {
        "answer", "return",
    }  # fmt: skip


@pytest.fixture(scope="module")
def solved() -> dict[str, Any]:
    """Exercise -> the answer of its page's solution."""
    import measured_book.exercises as package

    found: dict[str, Any] = {}
    old = package.check
    package.check = lambda name, answer: found.setdefault(name, answer)
    try:
        for part in parts(ROOT / "book"):
            if part.kind == "solution":
                for code in part.code:
                    exec(compile(code, "<page>", "exec"), {"__name__": "__main__"})
    finally:
        package.check = old
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_right_is_right_on_the_inputs_of_every_draw(name, solved):
    for key in KEYS[:3]:
        result = check(name, solved[name], draw=key, show=False)
        assert result, result


def test_wrong_functions_are_wrong_on_other_inputs_as_well():
    passed = []
    for table in sorted((ROOT / "tests/rooms").glob("*/wrong_answers.py")):
        for name, slips in runpy.run_path(str(table))["WRONG"].items():
            if name in FUNCTIONS:
                passed += [
                    (name, slip)
                    for slip, (answer, _) in slips.items()
                    if check(name, answer, draw="Ada", show=False)
                ]
    assert not passed


def test_functions_are_tried_on_other_inputs(monkeypatch):
    from measured_book.exercises import registry
    from measured_book.exercises.answers import Answer, normal

    registry.exercises()
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    seen = []

    def made(answer: Answer) -> None:
        """Write `made(x)`."""
        seen.append(normal(2, seed=1).tolist())

    made.__module__ = "tests.drawn"
    registry.exercise("book/made")(made)
    for key in (None, "Ada", "Ada", "Ben", None):
        check("drawn.made", len, draw=key, show=False)
    assert seen[0] == seen[4]
    assert seen[1] == seen[2]
    assert len({tuple(one) for one in seen}) == 3


def test_an_exercise_that_cannot_be_drawn_says_which_can():
    with pytest.raises(
        ValueError, match=r"got initialisation.he_gains, which has .*: initialisation\."
    ):
        draw("initialisation.he_gains", "Ada")
    with pytest.raises(ValueError, match="which has the numbers of its page alone"):
        check("initialisation.he_gains", (1.0, 2.0), draw="Ada")


def test_a_verdict_names_the_draw():
    result = check(draw("learning_rate.edge", "Ada"), (1.0, 1.0), show=False)
    assert "learning_rate.edge (drawn for Ada)" in str(result)
    assert "drawn for Ada" in result._repr_html_()


def test_a_drawing_says_its_numbers_in_words():
    made = Drawing("Twice {n}.", lambda chance: {"n": chance.randint(1, 9)})
    assert made.asked.format(n=3) == "Twice 3."
