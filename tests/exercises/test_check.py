"""What `check` makes of answers of every kind, on exercises made here."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from measured_book.exercises import check
from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    first,
    in_words,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Exercise, exercise, exercises, find
from measured_book.exercises.results import Result
from torch import nn


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch):
    """Make exercises that are forgotten after the test."""
    from measured_book.exercises import registry

    registry.exercises()  # all rooms: what is loaded while the table is another one would be lost
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))

    def make(checker):
        checker.__doc__ = "Write `double(x)`."
        checker.__module__ = "tests.made"
        return exercise("book/made")(checker)

    return make


@pytest.fixture
def double(made):
    """An exercise: `double(x, *, by=2)`."""

    @made
    def double(answer: Answer) -> None:
        for shape in ((3,), (2, 3)):
            x = normal(*shape, seed=1)
            found = tensor(answer(x, by=2), shape)
            demand(not close(found, x), "nothing changes")
            demand(close(found, 2 * x), "an entry is not doubled")

    return "made.double"


def test_a_right_answer_passes(double):
    result = check(double, lambda x, by: x * by)
    assert result.passed
    assert result
    assert str(result) == "passed: made.double, on 2 inputs"
    assert repr(result) == "<passed: made.double>"
    assert result.input == ""


def test_the_first_fault_is_told_with_its_input(double):
    result = check(double, lambda x, by: x)
    assert not result
    assert result.message == "nothing changes"
    assert result.input.startswith("x = [")
    assert result.input.endswith("(float64), by = 2")
    assert str(result).splitlines()[:2] == ["not yet: made.double", "    nothing changes"]
    assert str(result).splitlines()[2].startswith("    input: x = [")


def raises(x, by):
    return x @ x.new_ones(5)


def not_written(x, by):
    raise NotImplementedError


def nothing_returned(x, by):
    x * by


def in_place(x, by):
    x *= by
    return x


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "nothing to check yet. Asked for: Write `double(x)`."),
        (..., "nothing to check yet"),
        (not_written, "nothing to check yet: the function raises NotImplementedError"),
        (lambda x, by: ..., "returns Ellipsis: is it still to be written"),
        (nothing_returned, "returns None: is it still to be written, or is a `return` missing?"),
        (4, "expected a function, got 4: pass its name, without calling it"),
        (torch.ones(9), "expected a function, got tensor of shape (9,), float32"),
        (nn.Linear, "expected a module, got its class Linear"),
        (lambda x: x, "can be called with ([0.6614, 0.2669, 0.06168] (float64), by=...), yours"),
        (raises, "the function raises RuntimeError: "),
        (raises, "in its line `return x @ x.new_ones(5)`"),
        (in_place, "writes into its argument `x`"),
        (lambda x, by: "two", "shall be a tensor, got 'two'"),
        (lambda x, by: {}, "shall be a tensor, got {}"),
        (lambda x, by: x[None], "shape (3,), got (1, 3)"),
        (lambda x, by: x / 0, "is infinite at (0,)"),
        (lambda x, by: x * float("nan"), "is NaN at (0,)"),
    ],
)
def test_what_goes_wrong_with_functions(double, answer, words):
    result = check(double, answer)
    assert not result
    assert words in result.message


def test_arrays_lists_and_modules_are_as_good_as_tensors_and_functions(double):
    class Double(nn.Module):
        def forward(self, x, by):
            return nn.Parameter(x) * by

    assert check(double, Double())
    assert check(double, lambda x, by: (x * by).tolist())
    assert check(double, lambda x, by: (x * by).numpy())
    assert check(double, lambda *args, **kwargs: args[0] * kwargs["by"])


def test_inputs_of_all_kinds_are_watched(made):
    @made
    def watched(answer: Answer) -> None:
        answer([torch.ones(2)], {"a": np.array([1.0, np.nan])}, torch.tensor([True]), "word", 3)

    def change(key):
        def answer(tensors, arrays, flags, word, count):
            {"tensors": tensors[0], "arrays": arrays["a"], "flags": flags}[key][0] = 0
            return 1

        return answer

    for key in ("tensors", "arrays", "flags"):
        assert f"writes into its argument `{key}`" in check("made.watched", change(key)).message
    assert "`tensors`" in check("made.watched", lambda tensors, *_: tensors.clear() or 1).message
    assert check("made.watched", lambda *_: 1)


def test_random_answers_are_repeatable_and_leave_the_program_alone(made, monkeypatch):
    drawn, restored = [], []

    @made
    def drawing(answer: Answer) -> None:
        drawn.append([answer(), answer()])

    def draw():
        return [float(torch.rand(())), np.random.rand()]

    # the checks of types that tests have draw from Python's generator too, so its state is only watched
    monkeypatch.setattr(random, "setstate", restored.append)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert check("made.drawing", draw)
    torch.rand(3)
    torch.set_rng_state(states[0])
    assert check("made.drawing", draw)
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1], "one call after the other draws other numbers"
    assert torch.equal(states[0], torch.get_rng_state())
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert len(restored) == 2


def test_a_checker_that_is_surprised_says_so_and_what_is_asked(made):
    @made
    def surprised(answer: Answer) -> None:
        answer().no_such_name  # noqa: B018

    result = check("made.surprised", lambda: 1)
    assert not result
    assert "cannot be checked (AttributeError" in result.message
    assert "Asked for: Write `double(x)`." in result.message


# Names ------------------------------------------------------------------------------------------


def test_an_unknown_name_gets_the_nearest_ones():
    with pytest.raises(
        ValueError, match=r"'learning_rate.halflife'; near it: learning_rate.half_life"
    ):
        check("learning_rate.halflife", 1)
    with pytest.raises(ValueError, match=r"near it: .*learning_rate.edge"):
        check("learning_rate.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1)
    with pytest.raises(ValueError, match=r"near it: .*learning_rate\.…"):
        check("qqqq", 1)


def test_names_docstrings_and_chapters_are_those_of_the_checker(double):
    known = find(double)
    assert isinstance(known, Exercise)
    assert (known.chapter, known.asked) == ("book/made", "Write `double(x)`.")
    names = [one.name for one in exercises()]
    assert names == sorted(names)
    assert double in names


def test_a_checker_needs_words_and_a_new_name(double):
    def silent(answer: Answer) -> None: ...

    def double(answer: Answer) -> None:
        """Take the name of another."""

    double.__module__ = "tests.made"
    with pytest.raises(ValueError, match="say in its docstring what is asked"):
        exercise("book/made")(silent)
    with pytest.raises(ValueError, match=r"expected a new name, got made\.double"):
        exercise("book/made")(double)


# Numbers, tensors, words ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2), torch.tensor([[2.0]])])
def test_numbers_of_every_kind(value):
    assert number(value) == 2.0
    assert Answer(value).number() == 2.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("2", "shall be a number, got '2'"),
        (True, "shall be a number, got True"),
        (torch.ones(2), "shall be one number, got 2 of them"),
        (float("inf"), "is inf, no finite number"),
        (float("nan"), "is nan, no finite number"),
        ([1.0], "shall be a number, got [1.0]"),
    ],
)
def test_what_is_no_number(value, words):
    with pytest.raises(Fault) as fault:
        number(value)
    assert words in str(fault.value)


def test_several_numbers():
    for value in ((1, 2), [1, 2], {"x": 1, "y": 2}, np.array([1, 2]), torch.tensor([1.0, 2.0])):
        assert Answer(value).numbers("a", "b") == [1.0, 2.0]
    for value, words in [
        (3, r"expected 2 numbers \(a, b\), got 3"),
        ((1, 2, 3), r"2 numbers \(a, b\), got 3"),
        ((1, ...), "nothing to check yet for b"),
        ((1, "x"), "b shall be a number"),
    ]:
        with pytest.raises(Fault, match=words):
            Answer(value).numbers("a", "b")


def test_options():
    assert Answer(" Rows ").option("rows", "columns") == "rows"
    for value in ("row", 1):
        with pytest.raises(Fault, match="expected one of 'rows', 'columns', got"):
            Answer(value).option("rows", "columns")


def test_boolean_tensors():
    assert tensor([[True, False]], (1, 2), boolean=True).dtype == torch.bool
    with pytest.raises(Fault, match="shall be Boolean, True or False, got float32"):
        tensor(torch.ones(2), boolean=True)
    assert tensor([1, float("inf")], finite=False)[1] == float("inf")
    assert tensor(torch.ones(2, requires_grad=True)).requires_grad is False


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (0.25, None),
        (0.2524, None),
        (0.27, "near it: round later"),
        (-0.25, "sign"),
        (25.0, "hundred times too large"),
        (0.5, "a root is missing"),
        (7.0, "think of the way"),
    ],
)
def test_numbers_get_a_hint_by_their_mistake(found, words):
    ask = {"way": "think of the way", "slips": {0.5: "a root is missing"}}
    if words is None:
        demand_number(found, 0.25, **ask)
    else:
        with pytest.raises(Fault, match=words):
            demand_number(found, 0.25, **ask)


def test_a_number_that_is_zero_is_met_absolutely():
    demand_number(0.005, 0.0, way="way")
    with pytest.raises(Fault, match="way"):
        demand_number(0.02, 0.0, way="way")


def test_closeness_is_relative_to_the_largest_entry_and_sees_shapes():
    assert close(torch.tensor([1e6, 0.5]), torch.tensor([1e6, 0.0]))
    assert not close(1.0 + 1e-5, 1.0)
    assert not close(float("nan"), 1.0)
    assert close(torch.ones(0), torch.ones(0))


def test_first_finds_the_first():
    assert first(torch.tensor([[False, False], [True, True]])) == (1, 0)
    assert first(torch.zeros(3, dtype=torch.bool)) == ()


def test_values_in_words():
    assert in_words(torch.tensor([1.0, 2.5])) == "[1, 2.5] (float32)"
    assert in_words(np.ones((3, 4))) == "array of shape (3, 4), float64"
    assert in_words((torch.ones(9), 1)) == "(tensor of shape (9,), float32, 1)"
    assert in_words(nn.ReLU()) == "a module ReLU"
    assert in_words(raises) == "the function raises"
    assert len(in_words("x" * 500)) < 80


# The text of a result ---------------------------------------------------------------------------


def test_the_html_says_in_words_what_its_colour_says_and_escapes():
    html = Result("a.b", False, "row 1 < row 2\nin line `x`", "x = [1] (float64)")._repr_html_()
    assert "not yet" in html
    assert "Row 1 &lt; row 2<br>in line <code>x</code>." in html
    assert "Input: <code>x = [1] (float64)</code>" in html
    passed = Result("a.b", True, "")._repr_html_()
    assert "passed" in passed
    assert "<br>" not in passed
