"""Arms differ in positions alone, and the same bytes are scored at every length."""

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.ladder import LONG, SMALL, rung, speaker
from measured_book.measuring.grids import Trained
from measured_book.rooms.partly_rotary import figures, measure
from measured_book.rooms.partly_rotary.measure import ARMS, LENGTHS, LastBytes, config_of, longer
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.standard_library import StandardLibrary
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F

RESULT = load_result("partly_rotary", "longer")


@pytest.fixture(autouse=True)
def _rates_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])
    monkeypatch.setattr("measured_book.ladder.tuned", lambda search: search.rates[0])


def job_of(arm, seed=0):
    return longer.trainings.train(seed, arm=arm)


def test_rotary_throughout_is_the_straight_line_of_the_ladder():
    assert job_of("rotary").key() == rung(SMALL, LONG, "linear", 0).key()


@pytest.mark.parametrize("arm", ARMS)
def test_arms_differ_in_positions_alone(arm):
    job, plain = job_of(arm), job_of("rotary")
    assert job.settings == plain.settings
    assert job.task == plain.task
    same = {"positions": "rotary", "rotary_scaling": None, "layers": ()}
    assert job.config.replace(**same) == speaker(SMALL)


def test_blocks_see_and_turn_what_is_said():
    tokens = torch.randint(256, (1, 64), generator=torch.Generator().manual_seed(0))
    for arm in ("windows", "mix"):
        model = Decoder(config_of(arm)).eval()
        with capture(model, "*") as seen, torch.no_grad():
            model(tokens)
        reached = [
            int((seen[f"blocks.{b}.attention.pattern"][0, 0, -1] > 0).sum()) for b in range(3)
        ]
        assert reached == [32, 32, 64]
        queries, keys = (seen[f"blocks.2.attention.{name}"] for name in ("queries", "keys"))
        unturned = torch.einsum("bhqd,bhkd->bhqk", queries, keys) / 4
        scores = seen["blocks.2.attention.scores"]
        assert torch.allclose(scores, unturned, atol=1e-5) == (arm == "mix")


def test_the_same_bytes_are_scored_at_every_length():
    torch.manual_seed(0)
    model = Decoder(config_of("rotary")).eval()
    run = type("Run", (), {"model": model})
    one = Trained(run, 5, {"arm": "rotary"}, longer.trainings.train)
    axes, losses = LastBytes(lengths=(8, 16), scored=4, windows=3)(one)["loss"]
    task = StandardLibrary(length=16, part="validation")
    batch = task.batch(make_generator(5, "evaluation"), 3)
    for length, loss in zip((8, 16), losses, strict=True):
        with torch.no_grad():
            logits = model(batch.inputs[:, 16 - length :])[:, length - 4 :]
        wanted = F.cross_entropy(logits.flatten(0, 1), batch.targets[:, 12:].flatten())
        assert loss == pytest.approx(float(wanted), rel=1e-5)
    assert axes == "length"


def test_the_figure_has_a_curve_for_every_seed_and_arm():
    assert set(RESULT.arm.values) == set(ARMS)
    assert RESULT.length.values.tolist() == list(LENGTHS)
    (axes,) = figures.plot_longer(RESULT).figure.axes
    assert len(axes.lines) == len(ARMS) * (RESULT.sizes["seed"] + 1)
