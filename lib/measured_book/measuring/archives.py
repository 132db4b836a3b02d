"""What is done of a set of results as one file, so that another machine goes on from there.

An archive is a tar file. It holds the results of the set, the trials of measurements that are begun, the
learning rates that were chosen, and, of the stored runs that unfinished measurements still need, as many as its
size allows. Its last member, `about.json`, has a checksum of each of the others.

What is in it counts for no more than if it had been measured here: a result is taken where it is valid for the
code as it is now, a trial and a run where code, versions and kind of machine are those of here.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured_transformer.training import tuned_table
from measured_transformer.training.device import circumstances, find_device
from measured_transformer.training.folders import build_folder, write_whole
from measured_transformer.training.store import Store, contents, found_store

from measured_book.evidence.results import chapters_folder, result_files
from measured_book.evidence.seeds import seed_offset
from measured_book.measuring.measurement import Measurement
from measured_book.measuring.scheduler import (
    Report,
    all_code,
    chosen_table,
    locked,
    trials_folder,
)
from measured_book.measuring.state import DAMAGED, environment, folder_for, status
from measured_book.measuring.trials import read_trial

Say = Callable[[str], None]
FORM = 1
ABOUT, TUNED = "about.json", "tuned.jsonl"
_NAMES = re.compile(
    r"results/[a-z_0-9]+/results/[A-Za-z_0-9]+\.json"
    r"|trials/[A-Za-z_0-9]+\.[A-Za-z_0-9]+/[A-Za-z_0-9-]+/[0-9]+\.json"
    rf"|runs/[0-9a-f]{{64}}\.safetensors|{re.escape(TUNED)}|{re.escape(ABOUT)}"
)


@dataclass(frozen=True)
class Archive:
    """An archive of what a command measures.

    Attributes:
        file: where it lies.
        megabytes: its size, as far as runs decide about it: results and trials are always in it.
        say: takes a line on what was taken out of it or put into it.
    """

    file: Path
    megabytes: float
    say: Say = field(default_factory=lambda: print)

    # Taking out -----------------------------------------------------------------------------------

    def unpack(self, measurements: Iterable[Measurement]) -> None:
        """Take out what holds here and is not here yet; nothing where there is no archive.

        Raises:
            ValueError: it is damaged, or no archive of this set; it is left as it is.
        """
        if not self.file.exists():
            return
        with self._opened() as folder:
            known, rates = list(measurements), self._took_rates(folder)
            results = sum(_took_result(one, folder) for one in known)
            trials = sum(_took_trials(one, folder) for one in known)
            runs = _took_runs(folder)
        self.say(
            f"{self.file}: {results} results, {trials} trials, {runs} runs and {rates} learning rates taken out"
        )

    @contextmanager
    def _opened(self) -> Iterator[Path]:
        """A temporary folder with the files of the archive, all of them checked."""
        build = _build()
        build.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=build, prefix="unpacked-") as name:
            folder = Path(name)
            try:
                names = _extract(self.file, folder)
                about = json.loads((folder / ABOUT).read_text("utf-8"))
                sums, told = dict(about["files"]), (about["form"], about["set"], about["code"])
            except (
                tarfile.TarError,
                EOFError,
                FileNotFoundError,
                ValueError,
                KeyError,
                TypeError,
            ) as error:
                raise self._refused("an archive that measuring wrote", str(error)) from None
            if {one: _sum((folder / one).read_bytes()) for one in names if one != ABOUT} != sums:
                raise self._refused("the files that it lists", "others: it is damaged")
            if told[:2] != (FORM, _set()):
                raise self._refused(f"form {FORM} of {_set()}", f"form {told[0]} of {told[1]}")
            yield folder

    def _refused(self, expected: str, got: str) -> ValueError:
        return ValueError(
            f"{self.file}: expected {expected}, got {got}; it is left as it is: name another file, or remove it"
        )

    def _took_rates(self, folder: Path) -> int:
        """Add the learning rates that this very code chose elsewhere to the library's table."""
        about = json.loads((folder / ABOUT).read_text("utf-8"))
        lines, noted = tuned_table.lines_of(folder / TUNED), chosen_table()
        if about["code"] != all_code() or noted is None:
            return 0
        known = tuned_table.lines_of(tuned_table.PACKAGED)
        new = [line for line in lines if line not in known]
        if new:
            tuned_table.add_lines(new, tuned_table.PACKAGED)
            tuned_table.add_lines(new, noted)
        return len(new)

    # Putting in -----------------------------------------------------------------------------------

    def pack(self, measurements: Iterable[Measurement], report: Report) -> None:
        """Write what is done into the archive, in one piece.

        Args:
            measurements: what was measured.
            report: what came of it.

        Raises:
            OSError: it cannot be written; the one that is there is as it was.
            ValueError: there is no book around the working directory.
        """
        if report.needed is None and self.file.exists():
            self.say(f"{self.file}: left as it is, since this slice did not come to measuring")
            return
        done = {*report.written, *report.held}
        files = {
            f"results/{path.parent.parent.name}/results/{path.name}": path for path in _results()
        }
        here = environment()
        for one in measurements:
            folder = None if one.label in done else _trials(one, here)
            if folder is not None:
                found = sorted(folder.glob("[0-9]*.json"))
                files |= {f"trials/{one.label}/{folder.name}/{path.name}": path for path in found}
        noted = chosen_table()
        if noted is not None and noted.exists():
            files[TUNED] = noted
        size = sum(path.stat().st_size for path in files.values())
        runs, left_out = _runs(report.needed or {}, 1e6 * self.megabytes - size)
        _write(self.file, {**files, **runs})
        counts = [sum(name.startswith(what) for name in files) for what in ("results/", "trials/")]
        told = f"{counts[0]} results, {counts[1]} trials and {len(runs)} runs"
        if left_out:
            told += f"; {left_out} more are too much for {self.megabytes:g} MB and are trained again elsewhere"
        self.say(f"{self.file}: {told}")


def _set() -> str:
    """Which set of results this is, in words: what trains, and the seeds."""
    return f"{find_device().type} with seed offset {seed_offset()}"


def _build() -> Path:
    build = build_folder()
    if build is None:
        raise ValueError(
            "expected a book around the working directory, to keep in what an archive holds"
        )
    return build


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _extract(file: Path, folder: Path) -> list[str]:
    """Extract an archive into an empty folder; gives the names of its files.

    Raises:
        ValueError: it holds something that no archive of measuring holds: a link, or a file elsewhere.
        tarfile.TarError: it is damaged.
    """
    names = []
    with tarfile.open(file, "r:") as archive:
        for member in archive:
            if not member.isfile() or not _NAMES.fullmatch(member.name) or member.name in names:
                raise ValueError(f"one with {member.name!r} in it")
            archive.extract(member, folder, filter="data")
            names.append(member.name)
    return names


def _took_result(one: Measurement, folder: Path) -> bool:
    """Take a result that is valid, where the one here is missing or not valid."""
    path = folder / "results" / one.room / "results" / f"{one.name}.json"
    if not path.is_file():
        return False
    with locked(one, wait=False) as held:
        try:
            there, here = status(one, path.parent), status(one)
        except (OSError, ValueError):  # it cannot be measured here either, which says why
            return False
        if not (held and there.is_valid) or here.is_valid or here.state == DAMAGED:
            return False
        write_whole(folder_for(one.room) / path.name, path.read_text("utf-8"))
    return True


def _took_trials(one: Measurement, folder: Path) -> int:
    """Take the trials that were made with this code and versions on this kind of machine."""
    own = _trials(one, environment())
    there = None if own is None else folder / "trials" / one.label / own.name
    if own is None or there is None or not there.is_dir():
        return 0
    found = [path for path in there.iterdir() if read_trial(own / path.name) is None]
    found = [path for path in found if read_trial(path) is not None]
    for path in found:
        write_whole(own / path.name, path.read_text("utf-8"))
    return len(found)


def _trials(one: Measurement, here: Mapping[str, Any]) -> Path | None:
    """The folder of a measurement's trials; None where it cannot be measured here, for want of data say."""
    try:
        return trials_folder(one, here)
    except (OSError, ValueError):
        return None


def _took_runs(folder: Path) -> int:
    """Take the runs that the store lacks, of this kind of machine."""
    store, count = found_store(), 0
    for path in sorted((folder / "runs").glob("*.safetensors")):
        data = path.read_bytes()
        try:
            _, about = contents(data)
        except ValueError:
            continue
        asked = about.get("asked")
        own = isinstance(asked, dict) and asked.get("device") == circumstances()["kind"]
        if (
            store is not None
            and own
            and about.get("key") == path.stem
            and store.read(path.stem) is None
        ):
            count += store.write(path.stem, data)
    return count


def _results() -> list[Path]:
    """The files of the set of results."""
    rooms = [path.name for path in sorted(chapters_folder().iterdir()) if path.is_dir()]
    return [
        file for room in rooms if room.isidentifier() for file in result_files(folder_for(room))
    ]


def _runs(needed: Mapping[str, Iterable[str]], room: float) -> tuple[dict[str, Path], int]:
    """The runs that there is room for, the smallest and most shared first; and how many there is none for.

    Args:
        needed: key -> the measurements that need the run.
        room: bytes.
    """
    store = found_store() or Store(_build() / "runs")
    there = {key: store.file(key) for key in needed if store.file(key).is_file()}
    sizes = {key: path.stat().st_size for key, path in there.items()}
    taken: dict[str, Path] = {}
    for key in sorted(there, key=lambda key: (sizes[key] / len(list(needed[key])), key)):
        if sizes[key] <= room:
            room -= sizes[key]
            taken[f"runs/{there[key].name}"] = there[key]
    return taken, len(there) - len(taken)


def _write(file: Path, files: Mapping[str, Path]) -> None:
    """Write an archive under another name, and then put it in its place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part, sums = file.with_name(f".{file.name}.part"), dict[str, str]()
    try:
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
            for name, path in files.items():
                try:
                    data = path.read_bytes()
                except FileNotFoundError:  # another process needs it no more
                    continue
                sums[name] = _sum(data)
                _add(archive, name, data)
            about = {"form": FORM, "set": _set(), "code": all_code(), "files": sums}
            _add(archive, ABOUT, json.dumps(about, indent=1).encode())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
