"""The printed pages by day: in the light theme on a telephone. (Nothing depends on width and theme at once.)"""

from __future__ import annotations

from visiting import KNOWN, Visits


class TestByDay(Visits):
    LOOKS = (("telephone", "light"),)

    def test_known_flaws_are_still_there(self, visits):
        """A flaw that the theme has mended need not be forgiven any longer."""
        seen = {violation["id"] for visit in visits for violation in visit.violations}
        # shown by a newer axe only
        assert KNOWN.keys() - seen <= {"label-content-name-mismatch"}
