"""The store: the same bits come out, nothing is trained twice, nothing stale or damaged is taken."""

import dataclasses
import errno
import functools
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from disturbed import Watched, steps_by_process, trainings
from measured_transformer.models.config import Config
from measured_transformer.provenance import digest, reach
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import jobs, store
from measured_transformer.training.ensemble import train_ensemble
from measured_transformer.training.jobs import make_jobs, perform
from measured_transformer.training.loop import train
from measured_transformer.training.schedules import Constant
from measured_transformer.training.store import Store, contents, found_store, pack, unpack
from safetensors.torch import save_file

TASK = Reversal(vocab=5, length=4)
CONFIG = Config(vocab=5, d_model=16, n_layers=1, n_heads=2, d_ff=16)
ASK = {"steps": 12, "learning_rate": 3e-3, "batch_size": 8, "evaluate_every": 5}


def ends_after_one(step):
    return True


def freeze_embedding(model):
    with torch.no_grad():
        model.token_embedding.weight.mul_(2)
    model.token_embedding.weight.requires_grad_(False)


def equal(a, b):
    """Return whether two runs are the same, bit for bit."""
    states = [run.model.state_dict() for run in (a, b)]
    return (
        states[0].keys() == states[1].keys()
        and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        and all(
            np.array_equal(getattr(a, n), getattr(b, n), equal_nan=n != "evaluated")
            for n in store.ARRAYS
        )
        and (a.seed, a.diverged) == (b.seed, b.diverged)
    )


def key_of(config=CONFIG, task=TASK, *, seed=0, stacked=False, **options):
    (job,) = make_jobs(config, task, [seed], {**ASK, **options})
    return job.key(stacked=stacked)


# --- what comes out ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "task", "prepare"),
    [
        (CONFIG, TASK, None),
        (CONFIG, Lag(vocab=5, length=6, lag=2), freeze_embedding),
        (
            CONFIG.replace(vocab=8, tie_embeddings=True, dropout=0.2),
            NoisyTranslation(symbols=5, length=6, pad_share=0.4),
            None,
        ),
    ],
)
def test_a_run_comes_back_bit_for_bit(config, task, prepare):
    run = train(config, task, seed=3, prepare=prepare, **ASK)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    back = unpack(pack(run, {}), config, task, prepare)
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(run, back)
    assert type(back.model) is type(run.model)
    assert not any(part.training for part in back.model.modules())
    flags = [[p.requires_grad for p in r.model.parameters()] for r in (run, back)]
    assert flags[0] == flags[1]
    assert all(flags[1]) == (prepare is None)
    assert all(getattr(back, n).dtype == getattr(run, n).dtype for n in store.ARRAYS)
    batch = task.batch(torch.Generator().manual_seed(0), 4)
    if batch.source is None:
        assert torch.equal(back.model(batch.inputs), run.model(batch.inputs))


def test_a_run_that_diverged_comes_back_too(tmp_path):
    options = {**ASK, "learning_rate": 1e20, "clip": None}
    config = CONFIG.replace(norm="none")
    first, again = (train_ensemble(config, TASK, [0], store=tmp_path, **options) for _ in "12")
    assert first[0].diverged
    assert len(first[0].losses) < ASK["steps"]
    assert equal(first[0], again[0])
    assert trained_now(tmp_path) == 1


def trained_now(folder: Path) -> int:
    return len(list(folder.glob("*.safetensors")))


def test_the_header_says_what_the_run_is(tmp_path):
    train_ensemble(CONFIG, TASK, [7], store=tmp_path, **ASK)
    (file,) = tmp_path.glob("*.safetensors")
    _, about = contents(file.read_bytes())
    assert about["key"] == file.stem == key_of(seed=7)
    assert about["asked"]["config"]["d_model"] == 16
    assert about["asked"]["settings"]["learning_rate"] == 3e-3
    assert about["asked"]["seed"] == about["seed"] == 7
    assert "measured_transformer.training.loop:train" in about["roots"]
    assert about["code"] == digest(*about["roots"])


# --- keys -------------------------------------------------------------------------------------------


def test_a_key_is_the_same_for_the_same_and_defaults_need_no_naming():
    assert key_of() == key_of()
    assert key_of() == key_of(betas=(0.9, 0.98), schedule=Constant(), optimiser="AdamW")
    assert key_of() == key_of(progress=True, checkpoint_every=3)  # these change no result
    assert key_of(threads=None) == key_of(threads=torch.get_num_threads())


def test_everything_that_changes_a_run_changes_its_key():
    changes = [
        {"config": CONFIG.replace(d_ff=8)},
        {"task": Reversal(vocab=5, length=5)},
        {"seed": 1},
        {"stacked": True},
        {"steps": 13},
        {"learning_rate": 4e-3},
        {"schedule": Constant(warmup=4)},
        {"batch_size": 9},
        {"optimiser": "SGD"},
        {"betas": (0.9, 0.99)},
        {"eps": 1e-7},
        {"weight_decay": 0.1},
        {"clip": None},
        {"label_smoothing": 0.1},
        {"evaluate_every": 6},
        {"prepare": freeze_embedding},
        {"after_step": freeze_embedding},
        {"threads": 2},
    ]
    keys = [key_of(), *(key_of(**change) for change in changes)]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    (job,) = make_jobs(CONFIG, TASK, [0], ASK)
    changed = {name for change in changes for name in change} - {"config", "task", "seed"}
    assert set(job.settings) == changed - {"stacked"}


def test_device_and_precision_and_version_change_the_key(monkeypatch):
    keys = {key_of()}
    monkeypatch.setattr(jobs, "circumstances", lambda: {"kind": "another"})
    keys.add(key_of())
    monkeypatch.setattr(torch, "__version__", "2.99")
    keys.add(key_of())
    torch.set_default_dtype(torch.float64)
    try:
        keys.add(key_of())
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(keys) == 4


def test_what_has_no_fingerprint_has_no_key_and_is_never_stored(tmp_path):
    def inner(model): ...

    class Local:
        def __call__(self, model): ...

    for prepare in (lambda model: None, inner, functools.partial(inner), Local()):
        assert key_of(prepare=prepare) is None
    notebook = dataclasses.make_dataclass("Own", [], bases=(Reversal,), frozen=True)
    notebook.__module__ = "__main__"
    assert key_of(task=notebook(vocab=5, length=4)) is None
    train_ensemble(CONFIG, TASK, [0], store=tmp_path, prepare=inner, **ASK)
    assert trained_now(tmp_path) == 0


def test_code_that_a_task_imports_counts_and_must_not_be_newer_than_the_process(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    helper, task = tmp_path / "a_helper_of_it.py", tmp_path / "a_task_of_ours.py"
    helper.write_text("LENGTH = 4\n")
    task.write_text(
        "from dataclasses import dataclass\n"
        "from measured_transformer.tasks.reversal import Reversal\n"
        "@dataclass(frozen=True)\n"
        "class Ours(Reversal):\n"
        "    def batch(self, generator, size, *, length=None):\n"
        "        from a_helper_of_it import LENGTH\n"
        "        return super().batch(generator, size, length=LENGTH)\n"
    )
    importlib.import_module("a_helper_of_it")
    ours = importlib.import_module("a_task_of_ours").Ours(vocab=5, length=4)

    def key(when: float) -> str | None:
        for file in (helper, task):
            os.utime(file, (when, when))
        return key_of(task=ours)

    before = time.time() - 1e6
    first = key(before)
    assert first is not None
    assert key(before) == first
    assert key(time.time() + 60) is None
    helper.write_text("LENGTH = 3 + 1\n")
    assert key(before) not in (None, first)


def test_the_code_of_a_run_is_what_trains_and_what_its_task_is_made_of():
    task = NoisyTranslation(symbols=5, length=6, pad_share=0.1)
    (job,) = make_jobs(CONFIG.replace(vocab=8), task, [0], ASK)
    names = {name.partition(":")[0].rpartition(".")[2] for name in reach(*job.things())}
    assert {"noisy_translation", "task", "loop", "losses", "attention"} <= names
    assert "stacked" not in names
    assert not {"reversal", "sweep", "store"} & names
    stacked = reach(*job.things(stacked=True))
    assert "measured_transformer.training.stacked:train_stacked" in stacked


# --- damage and trouble -----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "renamed"])
def test_a_damaged_file_is_trained_anew(tmp_path, damage):
    first, other = train_ensemble(CONFIG, TASK, [0, 1], store=tmp_path, **ASK)
    place = Store(tmp_path)
    file = place.file(key_of(seed=0))
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        data[-40] ^= 1
    cut = {"cut": bytes(data[:-3]), "flipped": bytes(data), "empty": b""}
    file.write_bytes(cut.get(damage) or place.file(key_of(seed=1)).read_bytes())
    if damage == "empty":
        file.write_bytes(b"")
    assert place.read(file.stem) is None
    (again,) = train_ensemble(CONFIG, TASK, [0], store=tmp_path, **ASK)
    assert equal(again, first)
    assert place.read(file.stem) is not None
    assert not equal(first, other)


def test_a_folder_that_cannot_be_made_costs_the_storing_and_one_warning(tmp_path):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "runs"
    with pytest.warns(UserWarning, match="not stored") as told:
        runs = train_ensemble(CONFIG, TASK, [0, 1], store=place, **ASK)
    assert len([one for one in told if "not stored" in str(one.message)]) == 1
    assert equal(runs[1], train(CONFIG, TASK, seed=1, **ASK))


def test_a_full_disk_costs_the_storing_only(tmp_path, monkeypatch):
    def full(self, data):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(UserWarning, match="No space left"):
        (run,) = train_ensemble(CONFIG, TASK, [0], store=tmp_path, **ASK)
    assert equal(run, train(CONFIG, TASK, seed=0, **ASK))
    assert [file.name for file in tmp_path.iterdir()] == ["locks"]


def test_where_a_store_lies(tmp_path, monkeypatch):
    monkeypatch.delenv("MEASURED_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert found_store() is None
    (tmp_path / "book" / "part").mkdir(parents=True)
    (tmp_path / "_config.yml").touch()
    monkeypatch.chdir(tmp_path / "book" / "part")
    assert found_store() == Store(tmp_path / "_build" / "runs")
    monkeypatch.setenv("MEASURED_RUNS_DIR", str(tmp_path / "elsewhere"))
    assert found_store() == Store(tmp_path / "elsewhere")


def test_pruning_leaves_what_the_code_of_today_would_give_and_what_others_put_there(tmp_path):
    place = Store(tmp_path)
    (run,) = train_ensemble(CONFIG, TASK, [0], store=place, **ASK)
    (job,) = make_jobs(CONFIG, TASK, [0], ASK)
    about, old, moved, damaged = job.about(job.key()), "0" * 64, "1" * 64, "2" * 64
    place.write(old, pack(run, {**about, "key": old, "code": "another digest"}))
    place.write(moved, pack(run, {**about, "key": moved, "roots": ["measured_transformer.a:b"]}))
    whole = pack(run, {**about, "key": damaged})
    place.file(damaged).write_bytes(whole[: len(whole) // 2])
    (tmp_path / f".{old}.{'a' * 32}").write_bytes(pack(run, {**about, "key": old})[:5000])
    (tmp_path / f"{old}.checkpoint").touch()
    (tmp_path / f".{old}.checkpoint.123").touch()
    (tmp_path / "locks" / old).touch()
    mine = "f" * 64  # names like those of a store are not enough
    names = (
        "my_model.safetensors", ".bashrc", "locks/mine", "mine.checkpoint", ".my.checkpoint.1",
        f"{mine}.safetensors", f"{mine}.checkpoint", f"locks/{mine}", f".{mine}.{'b' * 32}",
    )  # fmt: skip
    foreign = [tmp_path / name for name in names]
    for file in foreign:
        file.write_bytes(b"somebody else's")
    other = "e" * 64
    save_file({"x": torch.zeros(2)}, place.file(other), metadata={"author": "somebody else"})
    assert place.prune() == 2
    left = {file.stem for file in tmp_path.glob("*.safetensors")}
    assert left == {key_of(), moved, "my_model", mine, other}
    assert all(file.read_bytes() == b"somebody else's" for file in foreign)
    assert not list(tmp_path.glob(f".{old}*")) + list(tmp_path.glob(f"**/{old}*"))
    assert place.read(key_of()) is not None
    assert place.read(moved) is not None


# --- several at once --------------------------------------------------------------------------------


def test_a_key_is_locked_and_others_are_not(tmp_path):
    place = Store(tmp_path)
    with (
        place.locked("a", wait=False) as first,
        place.locked("a", wait=False) as second,
        place.locked("b", wait=False) as other,
    ):
        assert (first, second, other) == (True, False, True)
    with place.locked("a", wait=False) as again:
        assert again


def in_a_process(folder: Path, traces: Path, *, seconds: float, seeds: list[int], steps: int = 12):
    script = textwrap.dedent(f"""
        import torch
        from disturbed import Watched
        from measured_transformer.models.config import Config
        from measured_transformer.parts.attention_schemes import MultiHead
        from measured_transformer.parts.networks import Plain
        from measured_transformer.tasks.reversal import Reversal
        from measured_transformer.training.ensemble import train_ensemble
        train_ensemble({CONFIG!r}, {TASK!r}, {seeds}, store={str(folder)!r},
                       schedule=Watched({str(traces)!r}, seconds={seconds}),
                       **{ ({**ASK, "steps": steps})!r})
    """)
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", script], env=environment)


def test_two_processes_at_once_train_each_run_once_and_share_the_work(tmp_path):
    folder, traces = tmp_path / "runs", tmp_path / "traces"
    two = [in_a_process(folder, traces, seconds=0.1, seeds=[0, 1, 2, 3]) for _ in "12"]
    assert [process.wait(timeout=100) for process in two] == [0, 0]
    assert trainings(traces) == 4
    assert len(list(folder.glob("*.safetensors"))) == 4
    options = {**ASK, "schedule": Watched(str(traces), seconds=0.1)}
    runs = train_ensemble(CONFIG, TASK, [0, 1, 2, 3], store=folder, **options)
    assert trainings(traces) == 4
    assert all(equal(run, train(CONFIG, TASK, seed=run.seed, **ASK)) for run in runs)


def test_the_lock_of_a_killed_process_blocks_nobody(tmp_path):
    folder, traces = tmp_path / "runs", tmp_path / "traces"
    process = in_a_process(folder, traces, seconds=1.0, seeds=[0])
    deadline = time.monotonic() + 60
    while not any(steps_by_process(traces).values()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    (job,) = make_jobs(CONFIG, TASK, [0], {**ASK, "schedule": Watched(str(traces), seconds=1.0)})
    with Store(folder).locked(job.key(), wait=False) as free:
        assert not free
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Store(folder).locked(job.key(), wait=False) as free:
        assert free
    assert Store(folder).read(job.key()) is None


def test_no_warning_comes_from_what_works(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (job,) = make_jobs(CONFIG, TASK, [0], ASK)
        assert equal(job.unpacked(perform(job, Store(tmp_path))), job.train())
