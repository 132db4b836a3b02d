"""Every measurement of every chapter once, and every live cell, on a machine that seems to have a GPU.

Trainings are cut to a few steps: values mean nothing here. What mixes devices fails.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib as mpl
import pytest
import torch
from bookpress.chapters import front_matter, is_chapter, read_notebook
from fake_captions import fake_captions
from fake_cuda import fake_cuda, fakes_in
from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.jobs import Search, wanted_searches
from measured_book.measuring.measurement import (
    Measurement,
    Variables,
    measurements_of,
    rooms,
)
from measured_book.rooms.workbench import abilities
from measured_transformer.analysis import early_stopping, solving
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch
from measured_transformer.training import loop, stacked
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run
from measured_transformer.training.stacked import CannotStackError, train_stacked

STEPS = 4
BOOK = Path(__file__).parents[2] / "book"


def all_right(model: Any, task: Any, question: str, chosen: Any = None) -> torch.Tensor:
    """As if the model of people knew every answer: after a few steps it knows too few to edit them."""
    return torch.ones(len(task.ask(question, chosen).inputs), dtype=torch.bool)


def few_translations() -> tuple[Batch, Batch]:
    """Sentences to score on, a handful."""
    world = NoisyTranslation(symbols=8, length=6, pad_share=0.2, noise=0.1)
    batch = world.batch(torch.Generator().manual_seed(0), 8)
    return batch, batch


def few_abilities(reader: Any, seed: int, texts: dict[str, bytes]) -> dict[str, Any]:
    """What a small language model is asked, a handful of each kind."""
    few = {name: text[:2000] for name, text in texts.items()}
    with mock.patch.multiple(abilities, QUESTIONS=2, SENTENCES=2, ROWS=2):
        return abilities.of_model(reader, seed, few)


# Rooms whose measurements train, write or look step by step themselves, and what shortens that.
SHORTER = {
    "activations_and_widths": {"PRODUCT_STEPS": 20},
    "allocation": {"STEPS": 24, "EVERY": 2},
    "attribution": {
        "DEPTHS": {"recall": (1, 2), "induction": (2,), "two hops": (2,)},
        "MODELS": (("recall", 2), ("induction", 2), ("two hops", 2)),
        "NAMES": ("recall 2", "induction 2", "two hops 2"),
        "SIZE": 2,
        "POINTS": (1, 2, 3),
        "FURTHER": 2,
    },
    "depth_and_heads": {"sentences": few_translations},
    "encoder_decoder": {"BEAMS": (1, 2), "CAPTIONS_SHOWN": 2, "TRANSLATED": 3},
    "facts": {"EDITS": 1, "answered_right": all_right},
    "language_models": {
        "DRAWS": 2,
        "DURATIONS": (60,),
        "SIZES": {"16 x 1": (16, 1, 2)},
        "TEXTS": 2,
        "WRITTEN": 64,
    },
    "induction": {"STEPS": 20, "REGRESSION_STEPS": 60},
    "layers": {"LOOKED_AT": 16},
    "learning_rate": {"DESCENT_STEPS": 20},
    "neurons": {"ASKED": 2, "READ": 60},
    "norm_gradients": {"MOMENTS": (0, 1, 2, 3), "EARLY": (0, 1, 2, 3)},
    "one_sitting": {"WRITTEN": 20},
    "pieces": {"BINS": STEPS},
    "probes_and_lenses": {"KNOWN": 240, "ASKED": 160, "ROWS": 60},
    "real_model": {
        "LOOKED_AT": 2,
        "READ": 20,
        "REMOVED_ON": 2,
        "WINDOWS": 4,
        "PARAGRAPHS": 60,
        "FEATURE_STEPS": 3,
    },
    "regularisation": {"TURNING_STEPS": 20, "TURNING_LAST": 5},
    "schedules": {
        "ACROSS": (0.0, 1.0),
        "ALONG": (0.0, 1.0),
        "AT": tuple(range(1, 11)),
        "CUSTOMARY_STEPS": 4000,
        "DRAWS": 2,
        "LOOKED_ON": 4,
        "SCORED_ON": 16,
    },
    "spikes": {"STEPS": 20, "ANEW": 20, "AT": 40, "AFTER": 10},
    "superposition": {
        "PHASE_STEPS": 4,
        "POLYGON_STEPS": 4,
        "SHARE_STEPS": 4,
        "WORLD_STEPS": 4,
        "SAE_STEPS": 4,
    },
    "training_attention": {
        "INDUCTION_STEPS": 20,
        "INDUCTION_AT": (0, 10, 20),
        "LOOK_AT": 20,
        "WATCHED_STEPS": 20,
    },
    "transformer_or_recurrent": {"EPOCHS": 1, "EPOCH": STEPS},
    "workbench": {
        "WINDOWS": 4,
        "LENS": {"steps": 2, "size": 16},
        "LENS_ROWS": 4,
        "of_model": few_abilities,
    },
}

# Rooms that cut what was trained into stretches of ten steps, or leave out the first ones.
LONGER = {"schedules": 10, "training_attention": 10}


def taken(measurement: Measurement) -> Variables:
    """What a measurement gives for its first seed, trained in a few steps on the fake device.

    Raises:
        AssertionError: when a tensor of that device is among what training gave or among the values.
    """
    seed, settings = seeds_of(1)[0], measurement.settings()
    with fake_cuda():
        with wanted_searches(), mock.patch.object(Search, "known", return_value=None):
            # an arm's rate is any of its grid: to look it up takes as long as to train
            jobs = measurement.jobs(seed, **settings)
        trained = {arm(job): job for job in jobs.values()}  # a rate more meets no other device
        by_arm = {
            what: replace(job, settings=shortened(job.settings)).train()
            for what, job in trained.items()
        }
        runs = {name: by_arm[arm(job)] for name, job in jobs.items()}
        assert not fakes_in(runs)
        assert not fakes_in(stacks(trained.values()))
        arguments = [seed] if measurement.trainings is None else [seed, runs]
        given = measurement.function(*arguments, **settings)
        assert not fakes_in(given)
        return replace(measurement, coords={}).variables(given)  # shorter curves have fewer points


def stacks(jobs: Iterable[Job]) -> list[Run]:
    """What an accelerator makes of such trainings: two seeds in a stack, where that is possible."""
    found: list[Run] = []
    for job in jobs:
        settings = {**shortened(job.settings), "steps": 2}
        try:
            found += train_stacked(job.config, job.task, [job.seed, job.seed + 10], **settings)
        except CannotStackError:
            continue
    return found


def arm(job: Job) -> str:
    """What is trained, but for its seed and learning rate."""
    settings = {name: value for name, value in job.settings.items() if name != "learning_rate"}
    return repr((job.config, job.task, settings))


def shortened(settings: Mapping[str, Any]) -> dict[str, Any]:
    every = settings["evaluate_every"]
    return {**settings, "steps": STEPS, "evaluate_every": None if every is None else 1}


def live_pages() -> list[Path]:
    """The pages in whose front matter a room is named that declares measurements."""
    known, found = rooms(), []
    for path in sorted(BOOK.rglob("*.md")):
        about = front_matter(path.read_text("utf-8")).get("measured")
        if isinstance(about, dict) and about.get("room") in known and is_chapter(path):
            found.append(path)
    return found


def run_cells(text: str, path: Path) -> dict[str, Any]:
    """Run the code cells of a page one after another in a module of their own; gives its names.

    Raises:
        AssertionError: when a cell leaves a tensor of the fake device under a name.
    """
    names: dict[str, Any] = {"__name__": "__main__", "display": lambda *things: None}
    with fake_cuda(), mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(read_notebook(text, path).cells):
            if cell.cell_type == "code" and "raises-exception" not in cell.metadata.get("tags", ()):
                exec(compile(cell.source, f"{path.name}, cell {number}", "exec"), names)
    left = [
        name for name, value in names.items() if isinstance(value, torch.Tensor) and fakes_in(value)
    ]
    assert not left, left
    return names


@pytest.fixture(autouse=True)
def few_sentences():
    """Captions are few."""
    with fake_captions():
        yield


@pytest.fixture(autouse=True)
def soon_solved(monkeypatch):
    """As few steps as are trained here tell whether a run has solved its task."""
    for module in (early_stopping, solving):
        monkeypatch.setattr(module, "WINDOW", STEPS)


@pytest.mark.parametrize("chapter", [name for name in rooms() if measurements_of(name)])
def test_every_measurement_of_every_chapter(chapter, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "STEPS", LONGER.get(chapter, STEPS))
    for name, value in SHORTER.get(chapter, {}).items():
        monkeypatch.setattr(f"measured_book.rooms.{chapter}.measure.{name}", value)
    failed = []
    for one in measurements_of(chapter).values():
        try:
            assert taken(one), one.label
        except Exception as error:
            failed.append(f"{one.label} fails on a CUDA device: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("page", live_pages(), ids=lambda page: page.stem)
def test_every_live_cell_of_every_page_that_prints_results(page):
    try:
        run_cells(page.read_text("utf-8"), page)
    except Exception as error:
        raise AssertionError(f"{page.name} fails on a CUDA device: {error}") from error


def test_a_room_is_looked_at(room):
    for one in measurements_of("demo").values():
        assert taken(one)


PAGE = """\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A page

```{code-cell} ipython3
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import predict, train
from measured_transformer.training.seeding import make_generator

task = Reversal(vocab=4, length=4)
run = train(Config(vocab=4, d_model=8, n_layers=1, n_heads=2), task, seed=0, steps=2, learning_rate=0.01)
```

```{code-cell} ipython3
logits = predict(run.model, task.batch(make_generator(0, "evaluation"), 2)).detach().numpy()
```
"""


def test_cells_run_in_their_order(tmp_path):
    assert run_cells(PAGE, tmp_path / "page.md")["logits"].shape == (2, 4, 4)


def test_what_stayed_on_the_device_fails(room, monkeypatch, tmp_path):
    """As `train` gave models before: measurements, and cells that look at a trained model, fail."""
    kept = loop.finished

    def stays(model, history, seed):
        run = kept(model, history, seed)
        run.model.to("cuda")
        return run

    for module in (loop, stacked):
        monkeypatch.setattr(module, "finished", stays)
    with pytest.raises(AssertionError):
        taken(measurements_of("demo")["losses"])
    jobs = measurements_of("demo")["losses"].jobs(0).values()
    with fake_cuda():
        assert fakes_in(stacks(jobs))
    with pytest.raises(RuntimeError, match="to be on the same device"):
        run_cells(PAGE, tmp_path / "page.md")
