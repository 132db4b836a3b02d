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


RIGHT: dict[str, Any] = {
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
