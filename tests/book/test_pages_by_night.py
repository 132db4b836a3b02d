"""The printed pages by night: in the dark theme on a desk. (Nothing depends on width and theme at once.)"""

from __future__ import annotations

from visiting import Visit, Visits, look_at, none


class TestByNight(Visits):
    LOOKS = (("desk", "dark"),)


def test_pages_behind_a_server_ask_only_this_server(server, pages, browser):
    problems = []
    context = browser.new_context()
    for name in [*pages, "search.html", "index.html"]:
        visit = Visit(name, "desk", "light")
        page = context.new_page()
        look_at(page, f"{server}/{name}", visit, None)
        page.close()
        problems += [f"{name}: {what}" for what in visit.requests + visit.complaints]
    context.close()
    none(problems)
