"""The palette by the definitions of contrast and colour vision, the drawings by their pixels."""

import base64
import io
import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from measured_book.figures.plots import (
    heat_map,
    legend_above,
    mean_and_interval,
    panel_letters,
    seed_lines,
    seed_strip,
    subplots,
)
from measured_transformer.viewer import style
from measured_transformer.viewer._palette import png
from measured_transformer.viewer.style import (
    COLOURS,
    DARK,
    LIGHT,
    ThemedFigure,
    look,
    theme,
    themed,
    tint,
)
from PIL import Image
from scipy import stats

COMPONENTS = ("residual", "attention", "ffn", "norm")
SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "none", "random")
VISION = {  # Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour):
    channels = np.array(to_rgb(colour))
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted((float(linear(one) @ weights), float(linear(other) @ weights)))
    return (high + 0.05) / (low + 0.05)


def lab(colour, vision):
    rgb = np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ rgb / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_contrast_is_that_of_the_definition():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("concept", COLOURS)
@pytest.mark.parametrize("page", [LIGHT, DARK], ids=lambda page: page.name)
def test_every_colour_stands_out_on_both_pages(concept, page):
    # "random" is a light grey on purpose; 3:1 is what graphical objects need (WCAG 1.4.11)
    assert contrast(COLOURS[concept], page.paper) >= 3.0


@pytest.mark.parametrize("page", [LIGHT, DARK], ids=lambda page: page.name)
def test_text_reads_on_both_pages(page):
    assert contrast(page.ink, page.paper) >= 7


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("family", [COMPONENTS, SCHEMES], ids=["components", "schemes"])
def test_concepts_that_meet_in_one_figure_look_different_to_everybody(family, vision):
    for one, other in itertools.combinations(family, 2):
        distance = np.linalg.norm(lab(COLOURS[one], vision) - lab(COLOURS[other], vision))
        assert distance > 12, (one, other, vision)


@pytest.mark.parametrize("family", [COMPONENTS, SCHEMES], ids=["components", "schemes"])
def test_colour_is_never_the_only_sign(family):
    markers = [look(concept)["marker"] for concept in family]
    lines = [str(look(concept)["linestyle"]) for concept in family]
    assert len(set(markers)) == len(set(lines)) == len(family)


def test_unknown_concept_names_the_palette():
    with pytest.raises(ValueError, match=r"residual, attention.*'attentoin'"):
        look("attentoin")
    with pytest.raises(ValueError, match="'relative'"):
        tint("relative")


def test_tint_lies_between_page_and_colour():
    assert to_hex(tint("rotary", 1.0)) == COLOURS["rotary"]
    assert to_hex(tint("rotary", 0.0)) == LIGHT.paper


@themed
def plain_map(values):
    figure, axes = subplots(height=2.0)
    axes.imshow(values)
    return figure


@themed
def plain_line(values):
    figure, axes = subplots(height=2.0)
    axes.plot(values, color=theme().ink)
    axes.set_xlabel("step")
    return figure


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int)


def test_a_figure_is_drawn_once_for_each_page():
    seen = []

    @themed
    def draw():
        seen.append(theme())
        return subplots()[0]

    draw()
    assert seen == [LIGHT, DARK]
    assert theme() is LIGHT


def test_light_lies_on_white_and_dark_lets_the_page_through():
    drawn = plain_line([0, 1])
    light, dark = pixels(drawn.light), pixels(drawn.dark)
    assert light.shape == dark.shape
    assert tuple(light[0, 0]) == (255, 255, 255, 255)
    assert dark[0, 0, 3] == 0
    opaque = dark[dark[..., 3] == 255][:, :3]
    assert (opaque.sum(axis=1) > 600).any()  # light ink


def test_images_are_crisp_on_dense_screens():
    drawn = plain_line([0, 1])
    assert pixels(drawn.light).shape[1] == 2 * drawn.width == 1280


def drawn_in(colours):
    """Stripes of these many colours."""
    random = np.random.default_rng(0)
    stripes = np.full((400, 640, 4), 255, np.uint8)
    shown = random.permutation(256**2)[:colours]
    stripes[:, :, 0] = np.repeat(shown // 256, 640 // colours + 1)[:640]
    stripes[:, :, 1] = np.repeat(shown % 256, 640 // colours + 1)[:640]
    return stripes


def test_few_colours_become_a_palette_and_stay_what_they_are():
    stripes = drawn_in(200)
    small = png(stripes)
    assert Image.open(io.BytesIO(small)).mode == "P"
    assert (pixels(small) == stripes).all()


def test_colours_that_fill_an_area_stay_exact_and_blends_move_little():
    stripes = drawn_in(100)
    stripes[-2:, :, :3] = np.linspace(0, 255, 640)[:, None]  # two rows of blends, a few pixels each
    stripes[-1, :, 3] = 180
    back = pixels(png(stripes))
    on_black, meant = (p[..., :3] * (p[..., 3:] / 255) for p in (back, stripes))
    moved = np.maximum(np.abs(on_black - meant).max(-1), np.abs(back - stripes)[..., 3])
    assert Image.open(io.BytesIO(png(stripes))).mode == "P"
    assert (moved[:-2] == 0).all()
    assert 0 < moved[-2:].max() <= 49  # a value is rounded on the way
    assert (moved > 17).mean() < 1 / 100


def test_a_drawing_with_more_colours_than_a_palette_holds_keeps_them_all():
    stripes = drawn_in(640)
    whole = png(stripes)
    assert Image.open(io.BytesIO(whole)).mode == "RGBA"
    assert (pixels(whole) == stripes).all()


def test_what_is_transparent_stays_so():
    dark = pixels(plain_line([0, 1]).dark)
    assert set(np.unique(dark[..., 3])) >= {0, 255}
    assert (dark[..., 3] == 0).mean() > 0.5


def test_equal_drawings_are_equal_bytes():
    assert plain_line([0, 1]).light == plain_line([0, 1]).light


def test_drawing_leaves_matplotlib_as_it_was():
    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    plain_line([0, 1])
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_before


def test_settings_come_back_after_an_error():
    before = dict(mpl.rcParams)

    @themed
    def broken():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        broken()
    assert dict(mpl.rcParams) == before
    assert theme() is LIGHT


def test_a_drawing_that_fails_leaves_no_figure_open():
    @themed
    def broken():
        plt.subplots()
        raise RuntimeError("no data")

    open_before = plt.get_fignums()
    with pytest.raises(RuntimeError, match="no data"):
        broken()
    assert plt.get_fignums() == open_before


def test_a_reader_s_own_settings_do_not_reach_the_book():
    expected = plain_line([0, 1]).light
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert plain_line([0, 1]).light == expected


def test_a_function_that_returns_no_figure_is_told_so():
    @themed
    def forgetful():
        subplots()

    with pytest.raises(ValueError, match=r"forgetful.*Figure, got NoneType.*return figure"):
        forgetful()
    plt.close("all")


def test_what_a_notebook_gets():
    drawn = plain_line([0, 1])
    data, metadata = drawn._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == drawn.light
    assert metadata["measured"] == {"kind": "figure", "vector": drawn.vector}
    assert metadata["image/png"] == {"width": 640}
    assert "ThemedFigure" in data["text/plain"]


def test_what_a_notebook_gets_of_pixels():
    drawn = plain_map(np.eye(3))
    data, metadata = drawn._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == drawn.light
    assert base64.b64decode(metadata["measured"]["dark"]) == drawn.dark
    assert metadata["measured"]["kind"] == "figure"


def test_saving_in_a_plain_script(tmp_path):
    drawn = plain_line([0, 1])
    assert drawn.save(tmp_path / "line.png").read_bytes() == drawn.light
    assert drawn.save(tmp_path / "dark.png", dark=True).read_bytes() == drawn.dark
    assert isinstance(drawn, ThemedFigure)
    assert isinstance(drawn.figure, Figure)
    with pytest.raises(ValueError, match=r"\.png, got 'line\.svg'"):
        drawn.save(tmp_path / "line.svg")


def test_interval_is_scipy_s():
    sample = np.random.default_rng(0).normal(3, 1, 7)
    interval = stats.ttest_1samp(sample, 0).confidence_interval(0.9)
    assert mean_and_interval(sample, 0.9) == pytest.approx((sample.mean(), *interval))
    assert mean_and_interval([2.0]) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("values", "confidence", "match"),
    [
        ([], 0.95, r"shape \(0,\)"),
        ([[1.0, 2.0]], 0.95, r"shape \(1, 2\)"),
        ([1.0, 2.0], 95.0, "between 0 and 1, got 95"),
    ],
)
def test_interval_of_the_wrong_thing(values, confidence, match):
    with pytest.raises(ValueError, match=match):
        mean_and_interval(values, confidence)


@pytest.fixture
def axes():
    figure, axes = subplots()
    yield axes
    plt.close(figure)


def test_strip_shows_every_seed_its_mean_and_interval(axes):
    groups = {"rotary": [1.0, 2.0, 4.0], "ours": [3.0, 3.5, 3.7]}
    seed_strip(axes, groups, label="loss", concepts={"ours": "alibi"}, reference=2.5)
    reference, *lines = axes.get_lines()
    assert list(reference.get_xdata()) == [2.5, 2.5]
    for row, (name, values) in enumerate(groups.items()):
        dots, bar, mean = lines[3 * row : 3 * row + 3]
        assert list(dots.get_xdata()) == values
        middle, low, high = mean_and_interval(values)
        assert list(bar.get_xdata()) == pytest.approx([low, high])
        assert list(mean.get_xdata()) == pytest.approx([middle])
        assert mean.get_color() == COLOURS["alibi" if name == "ours" else name]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["rotary", "ours"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first row stands on top


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_two_seeds_have_a_mean_and_no_bar(axes, seeds):
    values = [1.0, 2.0, 4.0, 8.0][:seeds]
    seed_strip(axes, {"none": values}, label="loss")
    dots, bar, mean = axes.get_lines()
    assert list(dots.get_xdata()) == values
    assert list(mean.get_xdata()) == pytest.approx([np.mean(values)])
    assert (np.ptp(bar.get_xdata()) > 0) == (seeds >= 3)


def test_equal_seeds_do_not_hide_each_other(axes):
    seed_strip(axes, {"none": [1.0] * 5}, label="loss")
    assert len(set(axes.get_lines()[0].get_ydata())) == 5


def test_strip_of_the_wrong_thing(axes):
    with pytest.raises(ValueError, match="at least one group"):
        seed_strip(axes, {}, label="loss")
    with pytest.raises(ValueError, match="'ours'"):
        seed_strip(axes, {"ours": [1.0]}, label="loss")


def test_lines_show_every_seed_and_the_mean(axes):
    values = np.array([[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]])
    seed_lines(axes, [0, 1, 2], values, concept="ffn")
    *seeds, mean = axes.get_lines()
    assert [list(line.get_ydata()) for line in seeds] == values.tolist()
    assert list(mean.get_ydata()) == [1.0, 2.0, 3.0]
    assert all(line.get_alpha() < 0.5 for line in seeds)
    assert axes.get_legend_handles_labels()[1] == ["ffn"]


def test_an_exact_curve_is_one_line_and_can_stay_out_of_the_legend(axes):
    seed_lines(axes, [0, 1], [5.0, 6.0], concept="ffn", label="")
    assert len(axes.get_lines()) == 1
    assert axes.get_legend_handles_labels()[1] == []


def test_lines_that_do_not_fit_say_both_shapes(axes):
    with pytest.raises(ValueError, match=r"\(seed, 3\) for 3 positions, got \(2, 2\)"):
        seed_lines(axes, [0, 1, 2], np.zeros((2, 2)), concept="ffn")


def test_heat_map_says_what_its_colours_mean(axes):
    bar = heat_map(axes, np.eye(3), label="weight", x_label="key", y_label="query")
    assert bar.ax.get_ylabel() == "weight"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
    assert bar.mappable.get_clim() == (0.0, 1.0)
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_diverging_colours_part_at_zero(axes):
    bar = heat_map(axes, [[-1.0, 0.0, 4.0]], label="w", x_label="k", y_label="q", diverging=True)
    assert bar.mappable.get_clim() == (-4.0, 4.0)
    assert to_hex(bar.mappable.to_rgba(0.0)) == LIGHT.paper


def test_heat_map_limits_can_be_shared(axes):
    bar = heat_map(axes, np.eye(2), label="w", x_label="k", y_label="q", limits=(-2.0, 2.0))
    assert bar.mappable.get_clim() == (-2.0, 2.0)
    with pytest.raises(ValueError, match=r"two axes, got shape \(3,\)"):
        heat_map(axes, [1.0, 2.0, 3.0], label="w", x_label="k", y_label="q")


def test_panels_are_lettered_in_reading_order():
    figure, panels = subplots(2, 2)
    panel_letters(panels)
    letters = [panel.get_title(loc="left") for panel in np.ravel(panels)]
    assert letters == ["(a)", "(b)", "(c)", "(d)"]
    plt.close(figure)


def test_the_legend_stands_above_the_data(axes):
    axes.plot([0, 1], label="a line")
    legend_above(axes)
    axes.figure.canvas.draw()
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1


def test_fonts_stay_legible_on_a_telephone():
    """At a width of 350 CSS pixels no text of a figure is smaller than 8 pixels."""
    settings = style._settings(LIGHT)
    for name in ("font.size", "axes.labelsize", "xtick.labelsize", "legend.fontsize"):
        assert settings[name] / 72 * 350 / style.WIDTH >= 8
