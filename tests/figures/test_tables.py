"""Tables of texts: as HTML on a page, as text elsewhere."""

from measured_book.figures.tables import Table


def test_texts_are_escaped_and_say_their_language():
    table = Table(("English", "German"), (("a < b", "Männer & Hunde"),), languages=("", "de"))
    page = table._repr_html_()
    assert "<td>a &lt; b</td>" in page
    assert '<td lang="de">Männer &amp; Hunde</td>' in page
    assert page.count('<th scope="col">') == 2
    assert repr(table) == "English | German\na < b | Männer & Hunde"


def test_long_names_may_go_on_in_the_next_line():
    assert "max_<wbr>length" in Table(("name",), (("max_length",),))._repr_html_()
