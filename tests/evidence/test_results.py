"""Results: what is written is what is read, and a file that cannot be trusted says so and what to do."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from measured_book.evidence.results import (
    LISTED,
    DamagedResultError,
    Result,
    load_result,
    pack,
    read_result,
    remove_parts,
    to_csv,
    unpack,
    write_result,
)


def a_result(values: np.ndarray | None = None, **changed: object) -> Result:
    found = np.arange(6.0).reshape(3, 2) if values is None else values
    given = {
        "room": "depth",
        "name": "map",
        "what": "How often a model learns.",
        "variables": {"share": (("seed", "arm"), found)},
        "coords": {"seed": [0, 10, 20], "arm": ["pre", "post"]},
        "provenance": {"digest": "abc", "date": "2026-11-24"},
        "openings": {"pre": {"0": [1.25, float("nan")]}},
        **changed,
    }
    return Result(**given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "depth" / "results" / "map.json"


numbers = st.one_of(
    arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=3, max_side=12)),
    arrays.arrays(np.int64, arrays.array_shapes(min_dims=0, max_dims=3, max_side=12)),
    arrays.arrays(np.bool_, arrays.array_shapes(min_dims=0, max_dims=2)),
)


@given(numbers)
def test_arrays_come_back_to_the_last_bit(values: np.ndarray) -> None:
    back = unpack(json.loads(json.dumps(pack(values))))
    assert (back.dtype, back.shape) == (values.dtype, values.shape)
    np.testing.assert_array_equal(back, values)


def test_long_arrays_are_packed_and_come_back_too() -> None:
    values = np.random.default_rng(0).normal(size=(LISTED + 1, 2))
    values[3, 1] = np.nan
    told = pack(values)
    assert "packed" in told
    np.testing.assert_array_equal(unpack(told), values)


def test_what_is_written_is_what_is_read(path: Path) -> None:
    write_result(a_result(), path)
    back = read_result(path)
    assert back.seeds == [0, 10, 20]
    assert back.provenance["digest"] == "abc"
    assert back.openings["pre"]["0"][0] == 1.25
    assert np.isnan(back.openings["pre"]["0"][1])
    data = back.dataset
    assert isinstance(data, xarray.Dataset)
    assert float(data.share.sel(seed=10, arm="post")) == 3.0
    assert data.attrs["what"] == "How often a model learns."


def test_a_dataset_says_where_it_comes_from(path: Path) -> None:
    told = {
        "commit": "abc",
        "device": "a CPU",
        "versions": {"torch": "2.13.0"},
        "attested": {"exact": True, "date": "2026-11-25"},
    }
    write_result(a_result(provenance=told), path)
    attributes = read_result(path).dataset.attrs
    assert attributes["commit"] == "abc"
    assert attributes["versions.torch"] == "2.13.0"
    assert attributes["attested.exact"] == 1
    assert attributes["measurement"] == "depth.map"
    read_result(path).dataset.to_dict()  # plain values: what other formats can hold


def test_a_short_result_can_be_read_by_eye(path: Path) -> None:
    write_result(a_result(), path)
    assert '"values": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]' in path.read_text()


def test_a_table_has_a_line_for_each_value() -> None:
    lines = to_csv(a_result()).splitlines()
    assert lines[0] == "variable,seed,arm,value"
    assert lines[4] == "share,10,post,3.0"
    assert len(lines) == 7
    with pytest.raises(ValueError, match=r"expected variables of map .*share.*, got shares"):
        to_csv(a_result(), ["shares"])


def test_a_table_rounds_to_eight_digits_and_never_a_whole_number() -> None:
    values = np.array([[1 / 3, 1e-12 / 7], [math.nan, 2.0]])
    counts = np.array([[270752564720306689, 1], [2, 3]])
    own = a_result()
    axes = ("seed", "arm")
    told = replace(
        own,
        variables={"share": (axes, values), "count": (axes, counts)},
        coords={"seed": [0, 10], "arm": ["a", "b"]},
    )
    found = [line.rpartition(",")[2] for line in to_csv(told).splitlines()[1:]]
    assert found == [
        "0.33333333",
        "1.4285714e-13",
        "nan",
        "2.0",
        "270752564720306689",
        "1",
        "2",
        "3",
    ]


def change(path: Path, name: str, value: object) -> None:
    told = json.loads(path.read_text())
    told[name] = value
    path.write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda p: p.write_text(p.read_text()[:-40]), "got damage"),
        (lambda p: p.write_bytes(b"\xff\xfe\x00"), "got damage"),
        (lambda p: p.write_text("[1, 2]"), "JSON that is none"),
        (lambda p: change(p, "format", 0), "form 0"),
        (lambda p: p.write_text(p.read_text().replace("4.0", "4.5")), "changed after"),
        (lambda p: change(p, "checksum", "0"), "changed after"),
        (lambda p: p.write_text(p.read_text().replace("4.0", "NaN")), "changed after"),
        (lambda p: p.write_text(p.read_text().replace("4.0", "1e999")), "changed after"),
        (lambda p: p.write_text(p.read_text().replace("4.0", "7" * 5000)), "got damage"),
        (lambda p: p.write_text("[" * 100_000), "got damage"),
    ],
)
def test_a_file_that_cannot_be_trusted_names_itself_and_the_command(
    path: Path, harm: object, words: str
) -> None:
    write_result(a_result(), path)
    harm(path)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(DamagedResultError, match=words) as caught:
        read_result(path)
    said = str(caught.value)
    assert str(path) in said
    assert "make measure CHAPTER=depth" in said
    assert path.read_bytes() == before


def test_a_folder_in_its_place_names_itself_and_the_command(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(DamagedResultError, match="make measure CHAPTER=depth") as caught:
        read_result(path)
    assert str(path) in str(caught.value)


def test_a_file_from_another_measurement_is_refused(path: Path) -> None:
    write_result(a_result(), path)
    other = path.with_name("curves.json")
    path.rename(other)
    with pytest.raises(DamagedResultError, match=r"holds depth\.map, not depth\.curves"):
        read_result(other)


@pytest.mark.parametrize(
    "changed",
    [
        {"variables": {"part": (("seed", "arm"), np.zeros((3, 2)))}},
        {"variables": {"share": (("seed",), np.zeros(3))}},
        {"variables": {"share": (("seed", "arm"), np.zeros((3, 2), dtype=np.int64))}},
        {
            "variables": {"share": (("seed", "arm"), np.zeros((3, 1)))},
            "coords": {"seed": [0, 10, 20], "arm": ["pre"]},
        },
    ],
)
def test_other_names_or_shapes_are_refused_and_the_old_result_stays(
    path: Path, changed: dict[str, object]
) -> None:
    write_result(a_result(), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="gives other names or shapes"):
        write_result(a_result(**changed), path)
    assert path.read_bytes() == before


def test_more_seeds_are_no_other_form(path: Path) -> None:
    write_result(a_result(), path)
    write_result(a_result(np.zeros((4, 2)), coords={"seed": [0, 1, 2, 3], "arm": ["a", "b"]}), path)
    assert len(read_result(path).seeds) == 4


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"variables": {}}, "at least one variable"),
        ({"variables": {"share": (("arm", "seed"), np.zeros((2, 3)))}}, "seed as the first axis"),
        ({"variables": {"share": (("seed", "arm"), np.zeros((3, 5)))}}, r"got \(3, 5\)"),
        ({"variables": {"share": (("seed",), np.array(["a", "b", "c"]))}}, "expected numbers"),
    ],
)
def test_what_does_not_fit_is_refused(path: Path, changed: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_result(a_result(**changed), path)
    assert not path.exists()


def test_a_full_disk_leaves_the_old_result(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(a_result(), path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_result(a_result(np.ones((3, 2))), path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["map.json"]


def test_another_form_may_be_meant(path: Path) -> None:
    write_result(a_result(), path)
    other = a_result(variables={"part": (("seed", "arm"), np.zeros((3, 2)))})
    with pytest.raises(ValueError, match=r"\(share, part\).*RENEW=1"):
        write_result(other, path)
    write_result(other, path, renew=True)
    assert list(read_result(path).variables) == ["part"]
    path.write_text(path.read_text()[:-40])
    with pytest.raises(DamagedResultError):
        write_result(other, path, renew=True)


def test_what_a_killed_process_left_is_removed_and_nothing_else(path: Path) -> None:
    write_result(a_result(), path)
    left, others = path.with_name(".map.json.x7.part"), path.with_name(".maps.json.x7.part")
    for file in (left, others):
        file.touch()
    remove_parts(path)
    assert (left.exists(), others.exists(), path.exists()) == (False, True, True)


def test_unknown_rooms_and_names_say_what_there_is() -> None:
    with pytest.raises(ValueError, match="expected one of the rooms"):
        load_result("no_such_chapter", "map")
