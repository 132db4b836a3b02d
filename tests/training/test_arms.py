"""Arms: each with its own rate and its own options, from seeds that tuning never saw."""

import pytest
from measured_transformer.evidence.profile import Profile
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.arms import train_arms, tune_arms
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.positions import RandomTable

TINY = Config(vocab=8, d_model=16, n_layers=1, n_heads=2)


def test_arms_are_tuned_and_trained_from_the_profiles_seeds(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no book around: nothing is stored
    profile = Profile("quick", 0)
    runs = train_arms(
        "test",
        {
            "sinusoidal": TINY,
            "frozen": Arm(TINY.replace(positions="learned"), {"prepare": RandomTable()}),
        },
        Reversal(vocab=8, length=6),
        steps=2,
        profile=profile,
        rates=(1e-3, 1e-2),
        quick=2,
    )
    assert {arm: [run.seed for run in each] for arm, each in runs.items()} == {
        "sinusoidal": profile.seeds(quick=2),
        "frozen": profile.seeds(quick=2),
    }
    assert not runs["frozen"][0].model.positions.table.requires_grad


@pytest.mark.parametrize(
    ("name", "trials", "expected"),
    [("quick", 2, 2), ("quick", 5, 5), ("full", 2, 2), ("full", 5, 5)],
)
def test_as_many_tuning_seeds_as_asked_for(
    name: str, trials: int, expected: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {"steps": 1, "profile": Profile(name, 0), "rates": (1e-3, 1e-2), "trials": trials}
    tuned = tune_arms("test", {"one": TINY}, Reversal(vocab=8, length=6), **asked)["one"]
    assert [len(losses) for losses in tuned.losses["one"].values()] == [expected] * 2
