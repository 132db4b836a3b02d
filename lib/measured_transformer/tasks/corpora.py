"""Real text: the reference of the Python language, which is always there, and corpora that are fetched once.

Fetched files are checked by their SHA-256 and kept in a folder: that named by `MEASURED_DATA_DIR`, where they
may already lie, or else the user's cache. Nothing is fetched as long as nobody asks for it;
``python -m measured_transformer.tasks.corpora`` fetches all of them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from measured_transformer.tasks.task import Part

Language = Literal["en", "de"]

_SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/"
    "d1d7aa34fdb3626174bce1d753e6cc6845ce7087/data/tinyshakespeare/input.txt"
)
_MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw/"
)
_MULTI30K_SHA256 = {
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
}
# By the name that a file has in the folder: where it is fetched from, and its SHA-256.
FILES = {
    "tinyshakespeare.txt": (
        _SHAKESPEARE,
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    **{
        f"multi30k-{name}.gz": (f"{_MULTI30K}{name}.gz", sha256)
        for name, sha256 in _MULTI30K_SHA256.items()
    },
}

MULTI30K = tuple(name for name in FILES if name.startswith("multi30k-"))
"""The files of Multi30k, by their names in the folder."""


def python_reference() -> str:
    """The reference of the Python language that comes with the running Python: the help topics of pydoc.

    Sections that several topics share are kept where they come first, so that nothing comes twice. It is the
    same text for everyone who runs the same release of Python, and differs a little between releases: records
    of runs on it name the Python version.

    Raises:
        ModuleNotFoundError: when this Python was installed without its help topics.
    """
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this Python was installed without pydoc_data, the text of its help topics: install the rest of "
            "its standard library, or use another Python"
        ) from error
    paragraphs = (
        paragraph.strip("\n")
        for name in sorted(topics)
        for paragraph in topics[name].replace("\r\n", "\n").split("\n\n")
    )
    first: dict[str, str] = {}
    for paragraph in paragraphs:
        first.setdefault(paragraph.strip(), paragraph)
    first.pop("", None)
    return "\n\n".join(first.values()) + "\n"


def shakespeare() -> str:
    """Tiny Shakespeare: 40,000 lines of his plays in one file, gathered by Karpathy (2015).

    Raises:
        ValueError: when what lies in the folder is another file.
        ConnectionError: when it neither lies there nor can be fetched.
        ModuleNotFoundError: when it must be fetched and the package pooch is not installed.
    """
    return corpus_file("tinyshakespeare.txt").read_text(encoding="utf-8")


def multi30k(part: Part, language: Language) -> list[str]:
    """Captions of pictures in English and German, one a line in the same order (Elliott et al., 2016).

    The parts are those of the data set: 29,000, 1,014 and 1,000 pairs; the test is that of 2016.

    Raises:
        ValueError: when there is no such part or language, or what lies in the folder is another file.
        ConnectionError: when it neither lies there nor can be fetched.
        ModuleNotFoundError: when it must be fetched and the package pooch is not installed.
    """
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    if part not in names or language not in ("en", "de"):
        raise ValueError(
            f"expected one of {', '.join(names)} in en or de, got {part!r} in {language!r}"
        )
    path = corpus_file(f"multi30k-{names[part]}.{language}.gz")
    return gzip.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")


def data_folder() -> Path:
    """Where fetched files lie: `MEASURED_DATA_DIR` when it is set, else the user's cache."""
    if named := os.environ.get("MEASURED_DATA_DIR"):
        return Path(named).expanduser()
    return Path(_pooch().os_cache("measured-transformer"))


def corpus_file(name: str) -> Path:
    """A file of `FILES`, fetched if it does not lie in the folder yet.

    Raises:
        ValueError: when there is no such file, or what lies in the folder is another one.
        ConnectionError: when it neither lies there nor can be fetched.
        ModuleNotFoundError: when it must be fetched and the package pooch is not installed.
    """
    if name not in FILES:
        raise ValueError(f"no such file; expected one of {', '.join(FILES)}, got {name!r}")
    url, expected = FILES[name]
    folder = data_folder()
    path = folder / name
    if path.is_file():
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise ValueError(
                f"{path} is not the file that this book measures: expected SHA-256 {expected}, got {found}; "
                "remove it, and it will be fetched again"
            )
        return path
    try:
        _pooch().retrieve(url, known_hash=f"sha256:{expected}", fname=name, path=folder)
    except OSError as error:
        raise ConnectionError(
            f"{name} does not lie in {folder} and cannot be fetched from {url} ({error}); either connect to "
            f"the network and try again, or put the file (SHA-256 {expected}) into a folder and set "
            "MEASURED_DATA_DIR to it"
        ) from error
    return path


def missing_files(names: Iterable[str]) -> list[str]:
    """Those of some files that do not lie in the folder. Nothing is fetched."""
    try:
        folder = data_folder()
    except ModuleNotFoundError:
        return list(names)
    return [name for name in names if not (folder / name).is_file()]


def _pooch() -> Any:
    """The package, imported when it is needed."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "corpora are fetched by the package pooch, which is not installed: pip install pooch, or set "
            "MEASURED_DATA_DIR to a folder where the files lie"
        ) from error
    return pooch


def _main() -> int:
    """Fetch every file that does not lie in the folder, and check those that do."""
    failed = 0
    for name in FILES:
        try:
            print(corpus_file(name))
        except (OSError, ValueError, ModuleNotFoundError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(_main())
