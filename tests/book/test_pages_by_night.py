"""The printed pages by night: in the dark theme on a desk. (Nothing depends on width and theme at once.)"""

from __future__ import annotations

from tiers import is_in_turn, is_quick
from visiting import KNOWN, Visit, Visits, look_at, none


class TestByNight(Visits):
    LOOKS = (("desk", "dark"),)

    def test_known_flaws_are_still_there(self, visits):
        """A flaw that the theme has mended need not be forgiven any longer."""
        seen = {violation["id"] for visit in visits for violation in visit.violations}
        # shown by a newer axe only
        assert KNOWN.keys() - seen <= {"label-content-name-mismatch"}


def test_pages_behind_a_server_ask_only_this_server(server, pages, browser):
    """One page a folder: all of them are made alike, and looked at one by one from their files.

    In a run of `make test`, those of the folders whose turn it is.
    """
    problems = []
    sample = {page.rpartition("/")[0]: page for page in reversed(pages)}
    if is_quick():
        sample = {folder: page for folder, page in sample.items() if is_in_turn(folder)}
    context = browser.new_context()
    for name in [*sample.values(), "search.html", "index.html"]:
        visit = Visit(name, "desk", "light")
        page = context.new_page()
        look_at(page, f"{server}/{name}", visit)
        page.close()
        problems += [f"{name}: {what}" for what in visit.requests + visit.complaints]
    context.close()
    none(problems)
