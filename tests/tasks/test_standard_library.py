"""The standard library as a text: which files, which parts, and each window once a pass."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
import torch
from measured_transformer.tasks import standard_library
from measured_transformer.tasks.standard_library import (
    StandardLibrary,
    is_pinned,
    library_files,
    library_text,
    part_of,
    text_digest,
)
from measured_transformer.tasks.task import held_out

PARTS = ("train", "validation", "test")


def windows(task: StandardLibrary, seed: int, *sizes: int) -> list[bytes]:
    """The windows of one stream, in batches of these sizes."""
    generator = torch.Generator().manual_seed(seed)
    batches = [task.batch(generator, size) for size in sizes]
    return [bytes(row.tolist()) for batch in batches for row in batch.inputs]


def test_files_are_modules_without_tests_and_tables():
    files = library_files()
    assert {"json/decoder.py", "argparse.py", "encodings/utf_8.py"} <= files.keys()
    assert not [name for name in files if {"test", "tests", "site-packages"} & set(name.split("/"))]
    assert not {"encodings/cp1252.py", "encodings/koi8_t.py", "html/entities.py"} & files.keys()
    assert {name.split("/")[0].removesuffix(".py") for name in files} <= sys.stdlib_module_names
    root = Path(sysconfig.get_path("stdlib"))
    assert all(file == root / name for name, file in files.items())
    assert list(files) == sorted(files)


def test_a_folder_of_ones_own_is_read_by_the_same_rule(tmp_path):
    for name in (
        "json/tool.py",
        "json/tests/test_tool.py",
        "ast.py",
        "mine.py",
        "html/entities.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "encodings").mkdir()
    (tmp_path / "encodings/cp1.py").write_text("x = 1\ndecoding_table = (\n")
    (tmp_path / "encodings/ascii.py").write_text("# no decoding_table = here\n")
    assert list(library_files(tmp_path)) == ["ast.py", "encodings/ascii.py", "json/tool.py"]


def test_parts_are_whole_files_and_share_none():
    names = Counter(part_of(name) for name in library_files())
    sizes = {part: len(library_text(part)) for part in PARTS}
    assert set(names) == set(PARTS)
    assert 0.85 < sizes["train"] / sum(sizes.values()) < 0.95
    decoder = library_files()["json/decoder.py"].read_bytes().replace(b"\r\n", b"\n")
    assert [part for part in PARTS if decoder in library_text(part)] == [part_of("json/decoder.py")]


@pytest.mark.parametrize("sizes", [(60,), (7, 13, 40), (1,) * 60])
def test_each_window_comes_once_a_pass_however_it_is_batched(sizes):
    task = StandardLibrary(length=16, windows=20, passes=3)
    found = windows(task, 5, *sizes)
    assert found == windows(task, 5, 60)
    for start in (0, 20, 40):
        assert set(found[start : start + 20]) == set(found[:20])
    assert len(set(found[:20])) >= 19  # a window may have a twin elsewhere in the text
    assert found[:20] != found[20:40]


def test_a_stream_that_is_over_says_so_and_another_generator_is_refused():
    task = StandardLibrary(length=16, windows=8)
    generator = torch.Generator().manual_seed(1)
    task.batch(generator, 8)
    with pytest.raises(ValueError, match=r"at most 8 windows 1 times .* got more: train for fewer"):
        task.batch(generator, 1)
    other = torch.Generator().manual_seed(1)
    torch.rand(3, generator=other)
    with pytest.raises(ValueError, match="a generator that gives nothing else"):
        task.batch(other, 8)


def test_a_stream_goes_on_where_its_generator_was_kept():
    task = StandardLibrary(length=16)
    generator = torch.Generator().manual_seed(2**32 - 5)
    task.batch(generator, 10)
    kept = generator.get_state()
    then = task.batch(generator, 10).inputs
    again = torch.Generator()
    again.set_state(kept)
    assert torch.equal(task.batch(again, 10).inputs, then)


def test_seeds_have_orders_and_choices_of_their_own():
    few = StandardLibrary(length=16, windows=30)
    assert set(windows(few, 1, 30)) != set(windows(few, 2, 30))
    whole = StandardLibrary(length=4000, part="test")
    there = (len(library_text("test")) - 1) // 4000
    assert set(windows(whole, 1, there)) == set(windows(whole, 2, there))
    assert windows(whole, 1, there) != windows(whole, 2, there)


def test_a_window_is_a_piece_of_the_text_and_its_targets_follow():
    task = StandardLibrary(length=40, windows=50, passes=2)
    batch = task.batch(torch.Generator().manual_seed(0), 4)
    assert batch.scored.all()
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        piece = bytes(inputs.tolist()) + bytes(targets[-1:].tolist())
        assert piece in library_text("train")
        assert piece[1:] == bytes(targets.tolist())
    other = held_out(task)
    held = other.batch(torch.Generator().manual_seed(0), 100)  # the limit is for training alone
    assert all(bytes(row.tolist()) in library_text("validation") for row in held.inputs)


def test_guessing_by_frequencies_costs_what_entropy_says():
    counts = Counter(library_text("train"))
    total = sum(counts.values())
    entropy = -sum(
        n / total * torch.tensor(n / total).double().log().item() for n in counts.values()
    )
    assert StandardLibrary().unigram_loss() == pytest.approx(entropy, abs=1e-4)
    assert StandardLibrary(part="validation").text(torch.tensor([105, 102, 255])) == "if\ufffd"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"length": 0}, "length must be a positive"),
        ({"passes": 0}, "passes must be a positive"),
        ({"windows": 0}, "windows must be a positive"),
        ({"part": "all"}, "part must be one of train"),
    ],
)
def test_what_is_asked_wrongly_is_refused(asked, words):
    with pytest.raises(ValueError, match=words):
        StandardLibrary(**asked)


def test_more_windows_than_there_are_are_refused():
    with pytest.raises(
        ValueError, match=r"the train part has \d+ windows of length=64, got windows=10+"
    ):
        StandardLibrary(windows=10**9).batch(torch.Generator(), 1)


def test_the_text_is_pinned_by_release_and_digest(monkeypatch):
    monkeypatch.setattr(standard_library, "SHA256", text_digest())
    monkeypatch.setattr(
        standard_library.platform, "python_version", lambda: standard_library.RELEASE
    )
    assert is_pinned()
    monkeypatch.setattr(standard_library.platform, "python_version", lambda: "3.11.99")
    assert not is_pinned()
    monkeypatch.setattr(
        standard_library.platform, "python_version", lambda: standard_library.RELEASE
    )
    monkeypatch.setattr(standard_library, "SHA256", "0" * 64)
    assert not is_pinned()
