"""Longer sequences: how far a model gets, what is measured, and that results are of this code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.extrapolation.measure import (
    BACK,
    CHARACTERS,
    KEPT,
    LATELY,
    METHODS,
    Opened,
    by_bucket,
    characters,
    clipped,
    fit_longer,
    keeping,
    longest_within,
    slowed,
    weight_on_start,
)
from measured_book.rooms.extrapolation.reading import more_training
from measured_transformer.analysis.extrapolation import attention_window
from measured_transformer.models.config import Config
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import make_model
from measured_transformer.training.seeding import make_generator

RESULTS = load_results("extrapolation")
TINY = Config(vocab=13, d_model=16, n_heads=2, n_layers=2, positions="rotary")


def test_every_result_is_of_this_code() -> None:
    for one in measurements_of("extrapolation").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_buckets_leave_out_what_is_not_scored() -> None:
    values = np.array([[np.nan, 1.0, 2.0, 4.0], [3.0, 1.0, np.nan, 0.0]])
    assert by_bucket(values, 2).tolist() == [[1.0, 3.0], [2.0, 0.0]]
    with pytest.raises(ValueError, match="divide"):
        by_bucket(values, 3)


def test_the_longest_length_ends_at_the_first_bad_bucket_beyond_training() -> None:
    excess = np.array([9.0, 0.1, 0.5, 0.1])
    assert longest_within(excess, 0.4, trained=2, bucket=2) == 4
    assert longest_within(excess, 0.4, trained=4, bucket=2) == 4
    assert longest_within(excess, 0.5, trained=2, bucket=2) == 8
    assert longest_within(np.full(4, np.nan), 1.0, trained=2, bucket=2) == 2
    with pytest.raises(ValueError, match="trained"):
        longest_within(excess, 1.0, trained=3, bucket=2)


@pytest.mark.parametrize("method", METHODS)
def test_methods_slow_the_slowest_pair_and_leave_the_model_as_it_was(method: str) -> None:
    model = make_model(TINY, causal=True, seed=0).double()
    x = torch.zeros(1, 1, 33, 8, dtype=torch.float64)
    x[..., 6] = 1.0  # of the slowest pair
    own = model.rotary
    before = model.rotary(33).apply(x)
    with slowed(model, method, 4.0, 16):
        after = model.rotary(33).apply(x)
    assert model.rotary is own
    length = after.norm(dim=-1)[0, 0, 0]
    wanted = before[:, :, 8] if method != "as trained" else before[:, :, 32]
    torch.testing.assert_close(after[:, :, 32] / length, wanted)
    assert (length > 1.1) == (method == "YaRN")


def test_a_method_or_a_thing_to_keep_must_be_known() -> None:
    model = make_model(TINY, causal=True, seed=0)
    with pytest.raises(ValueError, match="NTK-aware"), slowed(model, "faster", 2.0, 16):
        pass
    with pytest.raises(ValueError, match="window and start"), keeping(model, "nothing", 8):
        pass


def test_a_window_is_that_of_the_instrument_and_keeping_all_is_keeping_all() -> None:
    model = make_model(TINY, causal=True, seed=0).eval()
    tokens = LATELY.batch(make_generator(0, "evaluation"), 4, length=40).inputs
    with torch.no_grad():
        plain = model(tokens)
        with attention_window(model, 8):
            wanted = model(tokens)
        with keeping(model, KEPT[1], 8):
            torch.testing.assert_close(model(tokens), wanted)
        with keeping(model, KEPT[0], 8):
            torch.testing.assert_close(model(tokens), plain)
        with keeping(model, KEPT[2], 8):
            assert not torch.allclose(model(tokens), wanted, atol=1e-4)


def test_clipped_distances_are_those_of_positions_that_end_at_the_farthest() -> None:
    model = make_model(TINY.replace(n_layers=1), causal=True, seed=0).double().eval()
    tokens = LATELY.batch(make_generator(0, "evaluation"), 3, length=20).inputs
    with torch.no_grad():
        with clipped(model, 7):
            found = model(tokens)
        for query in range(20):  # each query sees keys at the positions that they seem to have
            places = (7 - query + torch.arange(query + 1)).clamp(min=0)
            wanted = model(tokens[:, : query + 1], positions=places.expand(3, -1))
            torch.testing.assert_close(found[:, query], wanted[:, -1])
        plain = model(tokens)
        with clipped(model, 19):
            torch.testing.assert_close(model(tokens), plain)
        assert not torch.allclose(found[:, 8:], plain[:, 8:], atol=1e-6)
    tables = make_model(TINY.replace(positions="learned", max_length=32), causal=True, seed=0)
    with pytest.raises(ValueError, match="rotary"), clipped(tables, 7):
        pass


def test_weight_on_the_start_of_even_attention() -> None:
    model = make_model(TINY, causal=True, seed=0)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.weight.zero_()
    batch = LATELY.batch(make_generator(0, "evaluation"), 50, length=16)
    new, seen = weight_on_start(model, batch)
    inverse = 1 / torch.arange(9, 17, dtype=torch.float64)
    known = batch.targets[:, 8:].bool()
    assert new == pytest.approx(float((inverse * ~known).sum() / (~known).sum()), abs=1e-5)
    assert seen == pytest.approx(float((inverse * known).sum() / known.sum()), abs=1e-5)


def test_windows_of_text_begin_with_the_start_token_and_are_of_their_part() -> None:
    parts = [characters(part) for part in ("train", "validation", "test")]
    assert int(torch.cat(parts).max()) == CHARACTERS - 1
    batch = Opened(12, "validation").batch(make_generator(0, "evaluation"), 5)
    assert isinstance(batch, Batch)
    assert (batch.inputs[:, 0] == CHARACTERS).all()
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    spread = parts[1].unfold(0, 12, 1)
    assert all(bool((spread == row).all(1).any()) for row in batch.targets)


def test_more_training_does_not_change_the_model_that_it_starts_from() -> None:
    config = TINY.replace(vocab=CHARACTERS + 1)
    model = make_model(config, causal=True, seed=0).eval()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    before = fit_longer(model, "NTK-aware", 1e-2, 3, steps=0)
    after = fit_longer(model, "NTK-aware", 1e-2, 3, steps=4)
    assert after.mean() < before.mean() - 0.1
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not model.training


def test_no_seed_chooses_its_own_learning_rate() -> None:
    again = RESULTS["again"]
    short = RESULTS["short"]
    before, after = more_training(again, short)
    far = again.loss.sel(bucket=slice(128, None)).mean("bucket")
    untouched = again.before.sel(bucket=slice(128, None)).mean("bucket")
    zero = again.limited.sel(bucket=slice(128, None)).mean("bucket")
    np.testing.assert_allclose(before, untouched - zero)
    for seed in again.seed.values:
        for method in again.method.values:
            others = far.sel({"method": method}).drop_sel(seed=seed).mean("seed")
            rate = int(others.argmin("rate"))
            windowed = int(short.loss.drop_sel(seed=seed).mean("seed").argmin("rate"))
            zero = short.loss.sel(seed=seed).isel(rate=windowed)
            wanted = far.sel({"method": method, "seed": seed}).isel(rate=rate) - zero
            assert float(after.sel({"method": method, "seed": seed})) == pytest.approx(
                float(wanted)
            )


def test_nothing_better_than_the_rule_is_measured() -> None:
    lag = RESULTS["lag"]
    assert float(lag.excess.min()) > -0.05
    assert float(lag.excess.sel(scheme="rotary", bucket=slice(8, 24)).max()) < 0.2
    np.testing.assert_allclose(
        lag.slowed.sel({"method": "as trained"}), lag.excess.sel(scheme="rotary"), atol=1e-4
    )
    assert BACK.length == 32
