"""Numbers of the prose that a room declares, and those that take arguments from the prose."""

import pytest
from demo_room import MEASURE, Inline, Room
from measured_transformer.measuring.judging import judge_room, results_of, value_of
from measured_transformer.measuring.measurement import readings_of
from measured_transformer.measuring.scheduler import measure_all

ASKED = """

@number
def loss_of(losses, *, arm: str):
    return losses.loss.sel(arm=arm).mean()


@number
def quantile(losses, *, arm: str, share: float):
    return losses.loss.sel(arm=arm).quantile(share)


@number
def nth(draws, *, seed: int):
    return draws.error.isel(seed=seed)
"""


@pytest.fixture
def judged(room: Room, inline: Inline):
    room.write(MEASURE + ASKED)
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    return judge_room("demo")


def test_a_number_gets_what_the_prose_says_in_parentheses(judged) -> None:
    losses = judged.results["losses"].dataset.loss
    assert value_of(judged, "loss_of(pre):.6f") == f"{float(losses.sel(arm='pre').mean()):.6f}"
    assert value_of(judged, "loss_of( post ):.6f") == f"{float(losses.sel(arm='post').mean()):.6f}"
    lowest = float(losses.sel(arm="pre").min())
    assert value_of(judged, "quantile(pre, 0):.6f") == f"{lowest:.6f}"
    assert value_of(judged, "nth(1):.1e") == value_of(judged, "draws.error|max:.1e")
    assert results_of(judged, "loss_of(pre):.2f") == ("losses",)
    assert results_of(judged, "nth(0)") == ("draws",)


def test_numbers_without_arguments_stay_as_they_are(judged) -> None:
    assert (
        value_of(judged, "best:.6f") == f"{float(judged.results['losses'].dataset.loss.min()):.6f}"
    )
    assert set(judged.values) == {"best"}
    asks = {one.name: (one.reads, one.asks) for one in readings_of("demo") if not one.is_claim}
    assert asks["quantile"] == (("losses",), ("arm", "share"))
    assert asks["best"] == (("losses",), ())


@pytest.mark.parametrize(
    ("expression", "error", "words"),
    [
        ("loss_of():.2f", ValueError, r"expected loss_of\(arm\), got 0 arguments"),
        ("loss_of(pre, post)", ValueError, r"expected loss_of\(arm\), got 2 arguments: pre, post"),
        ("nth(one)", ValueError, r"nth\(seed\): expected int for seed, got 'one'"),
        ("best(pre)", KeyError, r"takes arguments \(loss_of, quantile, nth\), got 'best'"),
        ("unknown(pre)", KeyError, "got 'unknown'"),
        ("loss_of:.2f", KeyError, "loss_of"),
    ],
)
def test_bad_calls_say_what_was_expected(judged, expression, error, words) -> None:
    with pytest.raises(error, match=words):
        value_of(judged, expression)


def test_a_number_of_a_missing_result_says_which(room: Room) -> None:
    room.write(MEASURE + ASKED)
    with pytest.raises(ValueError, match="losses"):
        value_of(judge_room("demo"), "loss_of(pre):.2f")
