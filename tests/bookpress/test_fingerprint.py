"""The fingerprint names what it was taken from and changes with each of them."""

from __future__ import annotations

import pytest
from bookpress.fingerprint import FingerprintError, stamp
from small_book import SmallBook


def test_a_stamp_lists_its_ingredients(new_book: SmallBook) -> None:
    two = stamp(new_book.root, new_book.root / "book/part/two.md")
    files = ["data/numbers.csv", "lib/tiny/mirror.py", "requirements.txt"]
    assert [p.relative_to(new_book.root).as_posix() for p in two.dependencies] == files
    assert {"data/numbers.csv", "tiny.mirror:seen", "numpy", "seed offset"} <= set(two.parts)
    assert "tiny.glass:base" not in two.parts
    assert two.parts["seed offset"] == "0"


def test_the_same_content_elsewhere_has_the_same_stamp(
    new_book: SmallBook, book: SmallBook
) -> None:
    here, there = (stamp(b.root, b.root / "book/one.md") for b in (new_book, book))
    assert here.digest == there.digest


def test_another_set_of_seeds_changes_it(
    new_book: SmallBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_book.root / "book/one.md"
    before = stamp(new_book.root, path).digest
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "7")
    assert stamp(new_book.root, path).digest != before
    monkeypatch.setenv("MEASURED_SEED_OFFSET", "seven")
    with pytest.raises(ValueError, match="'seven'"):
        stamp(new_book.root, path)


def test_results_of_the_room_are_ingredients(new_book: SmallBook) -> None:
    name = "lib/measured_book/rooms/one/results/losses.json"
    path = new_book.root / "book/one.md"
    new_book.replace("book/one.md", "kernelspec:", "measured: {room: one}\nkernelspec:")
    digests = {stamp(new_book.root, path).digest}
    for content in ("8 seeds", "24 seeds"):
        new_book.write(name, content)
        new_book.write(name.replace("losses", ".losses"), content)
        found = stamp(new_book.root, path)
        digests.add(found.digest)
        assert [each for each in found.parts if "results" in each] == [name]
        assert new_book.root / name in found.dependencies
    assert len(digests) == 3


def test_scripts_and_styles_of_a_module_are_ingredients(new_book: SmallBook) -> None:
    one, two = new_book.root / "book/one.md", new_book.root / "book/part/two.md"
    before = [stamp(new_book.root, path).digest for path in (one, two)]
    new_book.write("lib/tiny/glass.js", "let a = 1;\n")
    new_book.write("lib/tiny/other.js", "let b = 1;\n")  # of no module that is imported
    after = stamp(new_book.root, one)
    assert "lib/tiny/glass.js" in after.parts
    assert "lib/tiny/other.js" not in after.parts
    assert after.digest != before[0]
    assert stamp(new_book.root, two).digest == before[1]
    new_book.write("lib/tiny/glass.js", "let a = 2;\n")
    assert stamp(new_book.root, one).digest != after.digest


def test_data_that_is_not_there_is_an_error(new_book: SmallBook) -> None:
    (new_book.root / "data/numbers.csv").unlink()
    with pytest.raises(FingerprintError, match=r"two.md declares data 'data/\*.csv'"):
        stamp(new_book.root, new_book.root / "book/part/two.md")
