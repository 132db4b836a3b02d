"""The printed book, and a browser to look at it with."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import Tag
from tiers import is_in_turn, is_quick
from visiting import ALIKE_AT_MOST, WIDTHS, Visit, asked_of_axe, covering, kinds, look_at, soup_of

ROOT = Path(__file__).parents[2]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the printed pages: `MEASURED_BUILT`, or the book's own, printed now if need be."""
    given = os.environ.get("MEASURED_BUILT")
    if given:
        return Path(given).resolve()
    command = [sys.executable, "-m", "bookpress", "build"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the book could not be printed:\n{done.stdout}\n{done.stderr}"
    return ROOT / "_build" / "html"


@pytest.fixture(scope="session")
def browser():
    """A Chromium. Where there is none, what looks at pages is skipped, but never on CI."""
    from playwright.sync_api import Error, sync_playwright

    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    with sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        except Error as error:
            reason = (
                "no Chromium to look at the pages with: install it with the system's packages, "
                f"or run `python -m playwright install chromium` ({str(error).splitlines()[0]})"
            )
            if os.environ.get("CI", "").lower() == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        yield found
        found.close()


@pytest.fixture(scope="session")
def server(built: Path) -> Iterator[str]:
    """The printed pages behind a web server of this machine; its address."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    class Patient(http.server.ThreadingHTTPServer):
        request_queue_size = (
            128  # a browser asks for dozens of files at once; five may wait by default
        )

    handler = functools.partial(Silent, directory=str(built))
    with Patient(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.fixture(scope="session")
def pages(built: Path) -> list[str]:
    """Names of the printed pages, those of the theme (search) and those that only lead on left out."""
    names = [path.relative_to(built).as_posix() for path in built.rglob("*.html")]
    found = sorted(
        name
        for name in names
        if not name.startswith(("_", "reports/", "claims/"))
        and name != "search.html"
        and 'http-equiv="refresh"' not in (built / name).read_text("utf-8")[:1000]
    )
    assert found, f"no page in {built}"
    return found


@pytest.fixture(scope="session")
def articles(built: Path, pages: list[str]) -> dict[str, Tag]:
    """Page -> its article."""
    found = {page: soup_of(built / page).select_one("article.bd-article") for page in pages}
    assert all(found.values()), [page for page, article in found.items() if article is None]
    return {page: article for page, article in found.items() if article is not None}


@pytest.fixture(scope="session")
def covered(articles: dict[str, Tag]) -> set[str]:
    """A few pages that have every kind of text between them.

    In a run of `make test` every kind by its own mark-up alone, whatever stands around it.
    """
    found = {page: kinds(article) for page, article in articles.items()}
    if not is_quick():
        return covering(found)
    marked = {page: {own[:2] for own, _ in those} for page, those in found.items()}
    return covering(marked)


@pytest.fixture(scope="session")
def in_turn(articles: dict[str, Tag]) -> set[str]:
    """The pages whose turn it is in a run of `make test`: ten commits look at all."""
    return {page for page in articles if is_in_turn(page)} if is_quick() else set()


@pytest.fixture(scope="class")
def visits(
    request: pytest.FixtureRequest,
    built: Path,
    pages: list[str],
    covered: set[str],
    in_turn: set[str],
    browser,
) -> list[Visit]:
    """Every page from its file, at the widths and in the themes of the class's `LOOKS`.

    In a run of `make test`, those of `covered`, and those whose turn it is.
    """
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    found, looked_at = [], sorted(covered | in_turn) if is_quick() else pages
    at_most = ALIKE_AT_MOST if is_quick() else None
    for width, theme in request.cls.LOOKS:
        x, y = WIDTHS[width]
        context = browser.new_context(viewport={"width": x, "height": y}, color_scheme=theme)
        for name in looked_at:
            visit = Visit(name, width, theme)
            page = context.new_page()
            asked = asked_of_axe(visit, covered, in_turn)
            look_at(page, (built / name).as_uri(), visit, axe, asked, at_most)
            page.close()
            found.append(visit)
        context.close()
    return found
