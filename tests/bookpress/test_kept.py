"""What the repository keeps of executed chapters: a clone prints from it, as long as it is of the same code."""

from __future__ import annotations

import base64
import io
import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
from bookpress import kept
from bookpress.drawings import pack, unpack
from PIL import Image
from small_book import SmallBook

FIGURE = """\
import base64, io
from IPython.display import display
from PIL import Image

def drawn(shade):
    stream = io.BytesIO()
    Image.new("RGBA", (40, 30), (shade, 0, 0, 200)).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()

html = '<img src="data:image/png;base64,' + drawn(9) + '">'
display({"image/png": drawn(9), "text/html": html}, raw=True, metadata={"measured": {"dark": drawn(90)}})
"""


@pytest.fixture
def kept_book(book: SmallBook) -> SmallBook:
    """A small book that keeps what its chapters gave; nothing has run since."""
    done = book.press("keep")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("book/_executed/one.xz (")
    book.runs()
    return book


def clone(book: SmallBook, folder: Path) -> SmallBook:
    """The book as somebody else gets it: its files, and nothing that was built."""
    shutil.copytree(book.root, folder, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    return SmallBook(folder)


def test_a_clone_prints_without_executing_anything(kept_book: SmallBook, tmp_path: Path) -> None:
    fresh = clone(kept_book, tmp_path / "elsewhere" / "deeper")
    done = fresh.press("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fresh.runs() == []
    assert "one sees 2" in fresh.page("book/one")
    assert "two sees 20" in fresh.page("book/part/two")
    for name in ("one", "two"):
        told, before = (
            json.loads(b.read(f"_build/records/quick/{name}.json")) for b in (fresh, kept_book)
        )
        assert told.pop("notebook") != ""
        assert told == {key: value for key, value in before.items() if key != "notebook"}


def test_jupyter_book_alone_prints_from_it_too(kept_book: SmallBook, tmp_path: Path) -> None:
    fresh = clone(kept_book, tmp_path / "elsewhere")
    done = fresh.jupyter_book()
    assert done.returncode == 0, done.stdout + done.stderr
    assert fresh.runs() == []
    assert "one sees 2" in fresh.page("book/one")


@pytest.mark.parametrize(
    ("path", "old", "new", "stale"),
    [
        ("lib/tiny/glass.py", "return 1", "return 41", ["one"]),
        ("lib/tiny/mirror.py", "20", "21", ["two"]),
        ("data/numbers.csv", "1,2,3", "1,2,4", ["two"]),
        ("requirements.txt", "numpy==2.0", "numpy==2.1", ["one", "two"]),
        ("requirements.txt", "numpy==2.0", "numpy==2.0+cpu", []),
        ("book/one.md", "one sees", "one saw", ["one"]),
        ("book/one.md", "Prose of", "Other prose of", []),
        ("lib/tiny/glass.py", "return 1", '"""Say."""\n    return 1  # one', []),
    ],
)
def test_a_clone_executes_what_is_not_as_it_was(
    kept_book: SmallBook, tmp_path: Path, path: str, old: str, new: str, stale: list[str]
) -> None:
    fresh = clone(kept_book, tmp_path / "elsewhere")
    fresh.replace(path, old, new)
    done = fresh.press("execute")
    assert done.returncode == 0, done.stderr
    assert fresh.runs() == stale
    assert done.stdout.count("(it is not what its kept outputs were made with)") == len(stale)


@pytest.mark.parametrize("how", ["cut", "changed", "written by hand", "of another form"])
def test_a_damaged_file_is_named_and_its_chapter_executed(
    kept_book: SmallBook, tmp_path: Path, how: str
) -> None:
    fresh = clone(kept_book, tmp_path / "elsewhere")
    path = fresh.root / "book/_executed/one.xz"
    content = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "changed":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    elif how == "written by hand":
        path.write_bytes(lzma.compress(lzma.decompress(content).replace(b"sees 2", b"sees 3")))
    else:
        told = lzma.decompress(content).partition(b"\n")[2].replace(b'"form": 1', b'"form": 9')
        import hashlib

        path.write_bytes(lzma.compress(hashlib.sha256(told).hexdigest().encode() + b"\n" + told))
    done = fresh.press("execute")
    assert done.returncode == 0
    [said] = [line for line in done.stderr.splitlines() if "one.xz" in line]
    assert "book/one.md will be executed, and python -m bookpress keep mends it" in said
    assert fresh.runs() == ["one"]
    assert fresh.press("keep").stdout.startswith("book/_executed/one.xz")
    assert clone(fresh, tmp_path / "third").press("execute").returncode == 0
    assert fresh.runs() == []


def test_what_is_kept_already_is_not_written_again(kept_book: SmallBook, tmp_path: Path) -> None:
    assert kept_book.press("keep").stdout == ""
    fresh = clone(kept_book, tmp_path / "elsewhere")
    assert fresh.press("execute").returncode == 0
    assert fresh.press("keep").stdout == ""
    assert fresh.press("execute", "--force", "book/one.md").returncode == 0
    assert fresh.press("keep").stdout.startswith("book/_executed/one.xz")


def test_chapters_with_a_room_and_chapters_that_left_keep_nothing(kept_book: SmallBook) -> None:
    kept_book.replace("book/one.md", "kernelspec:", "measured: {room: one}\nkernelspec:")
    kept_book.write("book/_executed/gone.xz", "anything")
    assert kept_book.press("execute").returncode == 0
    done = kept_book.press("keep")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "book/_executed/gone.xz (removed)",
        "book/_executed/one.xz (removed)",
    ]


def test_what_is_stale_is_not_kept_and_another_profile_never(kept_book: SmallBook) -> None:
    kept_book.replace("lib/tiny/mirror.py", "20", "22")
    before = (kept_book.root / "book/_executed/two.xz").read_bytes()
    done = kept_book.press("keep")
    assert done.returncode == 1
    assert "1 not kept, because they are stale: book/part/two.md" in done.stderr
    assert (kept_book.root / "book/_executed/two.xz").read_bytes() == before
    for variables in ({"MEASURED_PROFILE": "full"}, {"MEASURED_SEED_OFFSET": "7"}):
        refused = kept_book.press("keep", **variables)
        assert refused.returncode == 2
        assert "expected profile quick with seed offset 0" in refused.stderr


def test_figures_come_back_where_they_were(book: SmallBook, tmp_path: Path) -> None:
    book.replace("book/one.md", "from tiny.lens", f"{FIGURE}\nfrom tiny.lens")
    for command in ("execute", "keep"):
        assert book.press(command).returncode == 0
    whole = kept.read(book.root / "book/_executed/one.xz")
    assert len(whole.told["drawings"]) == 1
    assert "base64,@@" in json.dumps(whole.told["cells"])
    fresh = clone(book, tmp_path / "elsewhere")
    assert fresh.press("execute").returncode == 0
    shown = json.loads(fresh.stored_notebook("one").read_text("utf-8"))
    [output] = [o for c in shown["cells"] for o in c["outputs"] if "image/png" in o.get("data", {})]
    light = "".join(output["data"]["image/png"]).strip()
    assert f"base64,{light}" in "".join(output["data"]["text/html"])
    for text, shade in ((light, 9), (output["metadata"]["measured"]["dark"], 90)):
        image = Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA")
        assert image.size == (40, 30)
        assert image.getpixel((20, 20)) == (shade, 0, 0, 200)


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", dpi=(200, 200))
    return stream.getvalue()


def pixels_of(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGBA")).astype(int)


def test_few_colours_are_kept_exactly_and_many_as_the_eye_sees_them() -> None:
    generator = np.random.default_rng(0)
    few = generator.integers(0, 256, (15, 4), dtype=np.uint8)
    few[:, 3] = 255
    light = few[generator.integers(0, 15, (30, 40))]
    dark = np.where(light[..., :1] > 99, [[[0, 0, 0, 0]]], 255 - light // 2).astype(np.uint8)
    dark[..., 3] = np.where(light[..., 0] > 99, 0, 255)
    files = unpack(pack([png(light), png(dark)]))
    for file, before in zip(files, (light, dark), strict=True):
        assert (pixels_of(file) == before).all()
        assert Image.open(io.BytesIO(file)).info["dpi"] == pytest.approx((200, 200), abs=0.1)
    ramp = np.zeros((60, 400, 4), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.linspace(0, 255, 400), np.linspace(0, 255, 60)[:, None]
    ramp[..., 3] = 255
    [file] = unpack(pack([png(ramp)]))
    assert np.abs(pixels_of(file) - ramp).max() < 24
    assert np.abs(pixels_of(file) - ramp).mean() < 4
    [again] = unpack(pack([file]))
    assert (pixels_of(again) == pixels_of(file)).all(), "packed again, it stays"


def test_a_figure_takes_a_fraction_of_its_two_files() -> None:
    from measured_transformer.figures.plots import subplots
    from measured_transformer.figures.style import themed

    @themed
    def waves():
        figure, axes = subplots()
        for shift in range(6):
            axes.plot(np.arange(200), np.sin(np.arange(200) / 20 + shift))
        return figure

    shown = waves()
    packed = pack([shown.light, shown.dark])
    assert len(lzma.compress(packed.grid)) < (len(shown.light) + len(shown.dark)) / 4
    for file, before in zip(unpack(packed), (shown.light, shown.dark), strict=True):
        weak = [p[..., :3] * p[..., 3:] / 255 for p in (pixels_of(file), pixels_of(before))]
        assert np.abs(weak[0] - weak[1]).mean() < 0.2
        assert np.abs(weak[0] - weak[1]).max() < 50


def test_drawings_of_two_sizes_and_what_is_no_drawing_are_refused() -> None:
    with pytest.raises(ValueError, match="one size, got"):
        pack([png(np.zeros((3, 4, 4), np.uint8)), png(np.zeros((4, 3, 4), np.uint8))])
    with pytest.raises(ValueError, match="expected PNG files"):
        pack([b"no drawing"])
