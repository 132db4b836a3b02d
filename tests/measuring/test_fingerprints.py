"""Fingerprints: the same on all processors, others for any change of what is computed."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_room import Inline, Room
from measured_book.measuring import fingerprints
from measured_book.measuring.attestations import attestations_of, file_of, keep_attestation
from measured_book.measuring.attesting import keep_fingerprints
from measured_book.measuring.fingerprints import (
    AGREES,
    Fingerprint,
    Nudged,
    as_plain,
    from_plain,
    in_double,
    opening,
    sums,
    take_fingerprint,
)
from measured_book.measuring.jobs import job
from measured_book.measuring.scheduler import measure_all
from measured_transformer.models.config import Config
from measured_transformer.parts.kernels.linear import chosen_kernel
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import seeding
from measured_transformer.training.loop import train

TASK = Reversal(vocab=5, length=5)
SMALL = Config(vocab=5, d_model=16, n_heads=2, n_layers=2)
DEEP = Config(vocab=5, d_model=32, n_heads=2, n_layers=12, norm="none", activation="relu")


def asked(config=SMALL, seed=0, **options):
    given = {"steps": 30, "learning_rate": 4e-3, "batch_size": 16, **options}
    return job(config, TASK, seed, **given)


def losses(*args, nudged=False, **options) -> Fingerprint:
    with in_double():
        run = opening(asked(*args, **options), nudged=nudged)
    return Fingerprint({"it": run.losses.tolist()})


# Losses -------------------------------------------------------------------------------------------


def test_they_are_those_of_the_training() -> None:
    with in_double():
        run = train(SMALL, TASK, seed=0, steps=10, learning_rate=4e-3, batch_size=16)
    np.testing.assert_allclose(losses().losses["it"], run.losses, rtol=1e-12)
    single = opening(asked(), 20).losses
    alone = train(SMALL, TASK, seed=0, steps=30, learning_rate=4e-3, batch_size=16)
    np.testing.assert_array_equal(single, alone.losses[:20])


def test_no_trace_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEASURED_DEVICE", raising=False)
    before = torch.get_rng_state()
    losses(nudged=True)
    assert torch.get_default_dtype() == torch.float32
    assert "MEASURED_DEVICE" not in os.environ
    assert torch.equal(torch.get_rng_state(), before)


def test_only_what_two_takings_agree_in_is_kept() -> None:
    """Twelve blocks without norms: rounding grows ten-thousandfold a step."""
    deep = losses(DEEP, learning_rate=5e-4)
    kept = deep.agreeing(losses(DEEP, learning_rate=5e-4, nudged=True))
    assert 1 <= len(kept.losses["it"]) < 5
    assert kept.differences(deep) == []
    assert len(losses().agreeing(losses(nudged=True)).losses["it"]) == fingerprints.STEPS


def test_a_short_training_has_no_more_than_its_steps() -> None:
    assert len(losses(steps=3).losses["it"]) == 3


CHANGES = {
    "epsilon of the norms": {"config": SMALL.replace(norm_eps=1.001e-5)},
    "no bias": {"config": SMALL.replace(bias=not SMALL.bias)},
    "seed": {"seed": 1},
    "betas": {"betas": (0.9, 0.981)},
    "epsilon of Adam": {"eps": 2e-8},
    "learning rate": {"learning_rate": 4.0001e-3},
    "clip": {"clip": 0.999},
    "decay": {"weight_decay": 1e-4},
    "smoothing": {"label_smoothing": 1e-6},
    "batch": {"batch_size": 17},
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_a_small_change_shows(changed: dict) -> None:
    kept = losses().agreeing(losses(nudged=True))
    assert kept.differences(losses()) == []
    assert kept.differences(losses(**changed))


def test_a_seed_off_by_one_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    before, kept = losses(), seeding.derived_seed
    monkeypatch.setattr(seeding, "derived_seed", lambda seed, purpose: kept(seed, purpose) + 1)
    assert before.differences(losses())


def test_the_difference_is_told_in_words_the_worst_first() -> None:
    kept = Fingerprint({"a": [1.0, 2.0], "b": [1.0], "c": [1.0]}, {"x": sums(np.ones(3))})
    other = Fingerprint(
        {"a": [1.0, 2.0 + 4 * AGREES], "b": [1.5], "c": [1.0]}, {"x": sums(np.zeros(3))}
    )
    assert [words.split(" differ")[0] for words in kept.differences(other)] == [
        "first losses of b",
        "values of x",
        "first losses of a",
    ]
    assert "other trainings: d" in kept.differences(
        Fingerprint({**kept.losses, "d": []}, kept.values)
    )
    assert "no variable x" in kept.differences(Fingerprint(kept.losses, {}))
    assert kept.differences(Fingerprint(kept.losses, {}, has_values=False)) == []
    fewer = Fingerprint({**kept.losses, "a": [1.0]}, kept.values)
    assert "training a: 1 first losses, 2 kept" in kept.differences(fewer)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        lambda x: x.__setitem__(5, -x[5]),
        lambda x: x.__setitem__(5, x[5] * 1.001),
        lambda x: x.__setitem__(5, np.nan),
        lambda x: x.__setitem__(5, np.inf),
        lambda x: x.__setitem__([4, 5], x[[5, 4]]),
        lambda x: x.__setitem__(slice(None), x * (1 + 1e-4)),
    ],
    ids=["sign", "digits", "nan", "infinite", "order", "scale"],
)
def test_any_changed_value_shows(changed) -> None:
    values = np.geomspace(1e-4, 1e9, 400)
    kept = Fingerprint({}, {"x": sums(values)})
    assert kept.differences(Fingerprint({}, {"x": sums(values * (1 + 1e-12))})) == []
    changed(values)
    assert kept.differences(Fingerprint({}, {"x": sums(values)})) == ["values of x differ"]


def test_what_is_rounding_itself_does_not_count() -> None:
    errors = np.random.default_rng(0).normal(size=1000) * 1e-15
    kept = Fingerprint({}, {"error": sums(errors)})
    assert kept.differences(Fingerprint({}, {"error": sums(-errors)})) == []


def test_they_are_read_from_models_of_the_first_steps_by_the_plain_product(room: Room) -> None:
    room.edit(
        '    return {"loss": ("arm", [runs[arm].losses[-1] for arm in ARMS])}',
        "    from measured_transformer.parts.kernels.linear import chosen_kernel\n"
        "    import torch\n"
        "    kind = float(torch.get_default_dtype() == torch.float64)\n"
        "    return {\"steps\": len(runs['pre'].losses), 'kind': kind, 'product': "
        "float(chosen_kernel() == 'product')}",
    )
    values = take_fingerprint(room.measurement("losses"), 0).fingerprint.values
    assert values["steps"] == pytest.approx(sums(np.array(4.0)))
    assert values["kind"] == values["product"] == pytest.approx(sums(np.array(1.0)))
    assert chosen_kernel() is None


def test_what_takes_too_long_to_read_is_left_out(room: Room) -> None:
    room.edit('"control": 1.0', '"control": max(float(k % 7) for k in range(30_000_000))')
    start = time.process_time()
    taken = take_fingerprint(room.measurement("draws"), 0, most=0.2)
    assert time.process_time() - start < 2.0
    assert not taken.fingerprint.has_values
    assert take_fingerprint(room.measurement("losses"), 0, most=60.0).fingerprint.has_values


def test_a_nudge_moves_every_weight_a_little() -> None:
    with in_double():
        model = train(SMALL, TASK, seed=0, steps=0, learning_rate=1e-3).model
        before = [weight.detach().clone() for weight in model.parameters()]
        Nudged(None)(model, seed=0)
    for old, new in zip(before, model.parameters(), strict=True):
        moved = (new.detach() - old).abs()
        assert (moved <= 2e-13 * old.abs()).all()
        assert (moved > 0).any() or not old.any()


# On disk ------------------------------------------------------------------------------------------


@pytest.fixture
def kept(room: Room, inline: Inline) -> Room:
    measure_all(room.all, executor=inline, progress="nothing", say=lambda _: None)
    assert keep_fingerprints(room.all, executor=inline, say=lambda _: None) == {}
    return room


def test_a_room_keeps_what_it_is_given(kept: Room) -> None:
    known = attestations_of("demo")
    assert list(known) == ["draws", "losses"]
    one = known["losses"]
    assert one.code == kept.measurement("losses").code()
    assert one.measured == one.code.whole
    assert one.fingerprint == from_plain(as_plain(one.fingerprint))
    assert len(one.fingerprint.losses["pre"]) == 4
    before = file_of("demo").read_bytes()
    keep_attestation("demo", "losses", one)
    assert file_of("demo").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "expected fingerprints in JSON"),
        ('{"format": 7, "measurements": {}}', "got form 7"),
        ('{"format": 1, "measurements": {"losses": {}}}', "expected fingerprints of form 1"),
        ("[]", "expected fingerprints of form 1, got a list"),
        ('{"format": 1, "measurements": {"losses": {"measu', "expected fingerprints in JSON"),
        ("{}", "expected fingerprints of form 1, got nothing under 'format'"),
    ],
)
def test_a_damaged_file_is_named_with_its_remedy(kept: Room, text: str, words: str) -> None:
    path: Path = file_of("demo")
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as told:
        attestations_of("demo")
    assert str(path) in str(told.value)
    assert "make attest CHAPTER=demo" in str(told.value)
    assert path.read_text() == text
