"""The report in a real browser: it opens, sorts, searches, and can be used by keyboard, on a phone and in the dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_introspect as ki
from plots.synthetic import synthetic
from reporting.browser import requests, show, started
from reporting.test_report import HOSTILE, hostile_recording

pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sick run of six layers."""
    recording = synthetic(6, 12, sick=True, phases=True)
    recording.unobserved = {"head:1": "layer_outputs: an integer tensor"}
    recording.metadata = {"model": "net", "collectors": [{"collector": "Gradients", "every": 1}]}
    return ki.report(recording, tmp_path_factory.mktemp("report") / "run.html")


def rows(browser: Any) -> list[str]:
    """The names of the rows that are seen, from top to bottom."""
    script = "return [...document.querySelectorAll('#table tbody tr:not([hidden])')].map(r => r.cells[0].textContent)"
    return [name.strip().lstrip("■▲ ") for name in browser.execute_script(script)]


def column(browser: Any, title: str) -> list[str]:
    script = """
        const heads = [...document.querySelectorAll('#table thead th')];
        const index = heads.findIndex(head => head.textContent === arguments[0]);
        return [...document.querySelectorAll('#table tbody tr:not([hidden])')].map(r => r.cells[index].dataset.v || '')
    """
    return list(browser.execute_script(script, title))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def button(browser: Any, title: str) -> Any:
    heads = browser.find_elements("css selector", "#table thead button")
    return next(head for head in heads if head.text.strip() == title)


def test_opens_without_an_error_or_a_request(browser: Any, page: Path) -> None:
    show(browser, page)
    browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    assert browser.title == "net"
    assert browser.get_log("browser") == []
    assert requests(browser) == [page.as_uri()]
    images = browser.execute_async_script(
        "const done = arguments[0], images = [...document.images];"
        "images.forEach(image => { image.loading = 'eager'; });"
        "Promise.all(images.map(image => image.decode().then(() => image.naturalWidth))).then(done)"
    )
    assert len(images) > 8
    assert min(images) > 400


def test_no_name_is_run(browser: Any, tmp_path: Path) -> None:
    show(browser, ki.report(hostile_recording(), tmp_path / "run.html"))
    assert browser.get_log("browser") == []  # an alert would have raised, and the policy have logged what it refused
    assert rows(browser) == HOSTILE * 2
    assert requests(browser) == [(tmp_path / "run.html").as_uri()]


def test_the_policy_stops_what_is_not_ours(browser: Any, page: Path, tmp_path: Path) -> None:
    """If a name did slip through, the browser would still refuse it."""
    broken = tmp_path / "broken.html"
    text = page.read_text("utf-8")
    broken.write_text(text.replace("<main>", "<main><script>document.title = 'run'</script>"), "utf-8")
    show(browser, broken)
    assert browser.title == "net"
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def test_findings_and_dashboard_are_on_the_first_screen(browser: Any, page: Path) -> None:
    show(browser, page)
    place = "return arguments[0].getBoundingClientRect().top"
    findings = browser.find_elements("css selector", ".findings li")
    assert len(findings) >= 3
    assert all(browser.execute_script(place, finding) < 600 for finding in findings)
    assert browser.execute_script(place, browser.find_element("css selector", "#dashboard img")) < 600


def test_sorts_by_number_and_by_text(browser: Any, page: Path) -> None:
    show(browser, page)
    before = rows(browser)
    button(browser, "rms").click()
    values = np.array([float(value) for value in column(browser, "rms")])
    assert (np.diff(values) <= 0).all()
    assert rows(browser) != before
    button(browser, "rms").click()
    assert (np.diff([float(value) for value in column(browser, "rms")]) >= 0).all()
    button(browser, "dead rate").click()
    shares = column(browser, "dead rate")
    known = [float(value) for value in shares if value]
    assert len(known) == 6  # the layer outputs; all else has none, and comes last
    assert shares[:6] == [value for value in shares if value]
    assert known == sorted(known, reverse=True)
    button(browser, "tensor").click()
    assert rows(browser) == sorted(before)
    sorted_heads = browser.find_elements("css selector", "th[aria-sort]")
    assert [(head.text.strip(), head.get_attribute("aria-sort")) for head in sorted_heads] == [("tensor", "ascending")]


def test_searches_and_filters(browser: Any, page: Path) -> None:
    show(browser, page)
    every = rows(browser)
    search = browser.find_element("id", "search")
    search.send_keys("KERNEL conv_2")
    assert set(rows(browser)) == {"conv_2/kernel"}
    count = browser.find_element("id", "count")
    assert count.text == f"3 of {len(every)} tensors"
    browser.find_element("css selector", "#view option:nth-child(3)").click()
    assert rows(browser) == ["conv_2/kernel"]
    search.send_keys("no such tensor")
    assert rows(browser) == []
    search.clear()
    browser.find_element("css selector", "#view option:first-child").click()
    browser.find_element("id", "notable").click()
    assert 3 <= len(rows(browser)) < 10


def test_a_finding_leads_to_its_row_though_it_is_filtered_out(browser: Any, page: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, page)
    browser.find_element("id", "search").send_keys("head/bias")
    link = browser.find_element("css selector", ".findings a")
    name = link.text
    link.click()
    row = browser.find_element("css selector", "tr:target")
    WebDriverWait(browser, 30).until(
        lambda _: row.is_displayed()
    )  # the browser tells of the new address in its own time
    assert name in row.text
    place = browser.execute_script("const r = arguments[0].getBoundingClientRect(); return [r.top, r.bottom]", row)
    assert 0 <= place[0] < place[1] <= 800


def test_by_keyboard_alone(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    def focused(what: str) -> Any:
        return browser.execute_script(f"return document.activeElement.{what}")

    show(browser, page)
    press(browser, Keys.TAB)
    assert focused("className") == "skip"
    press(browser, Keys.ENTER)
    press(browser, "/")
    assert focused("id") == "search"
    press(browser, "conv_1")
    assert set(rows(browser)) <= {"conv_1", "conv_1/kernel", "conv_1/bias"}
    press(browser, Keys.ESCAPE)
    assert len(rows(browser)) > 30
    for _ in range(4):  # the view, the box, the table's scroll area, its first heading
        press(browser, Keys.TAB)
    assert focused("textContent") == "tensor"
    press(browser, Keys.SPACE)
    assert rows(browser) == sorted(rows(browser))
    press(browser, Keys.ENTER)
    assert rows(browser) == sorted(rows(browser), reverse=True)
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 1920])
def test_fits_the_screen(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    inner = "return document.documentElement.scrollWidth"
    assert browser.execute_script(inner) == width
    smallest = browser.execute_script(
        "return Math.min(...[...document.querySelectorAll('p, li, td, th, dd, a, h2')]"
        ".map(element => parseFloat(getComputedStyle(element).fontSize)))"
    )
    assert smallest >= 12
    if width < 500:
        picture = browser.execute_script(
            "return document.querySelector('#dashboard img').getBoundingClientRect().width"
        )
        assert picture > 2 * width  # legible, and scrolled sideways in its frame


def contrast(browser: Any, selector: str) -> float:
    """The contrast of an element's text against the page, as WCAG 2 counts it."""
    script = """
        const parts = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const element = document.querySelector(arguments[0]);
        return [parts(getComputedStyle(element).color), parts(getComputedStyle(document.body).backgroundColor)]
    """
    light = []
    for color in browser.execute_script(script, selector):
        channels = np.array(color) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(light) + 0.05) / (min(light) + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_is_legible_by_day_and_by_night(browser: Any, page: Path, dark: bool) -> None:
    show(browser, page, dark=dark)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    for selector in ("p", "h1", ".bad h2", ".error .mark", "dt", "nav a", ".undone", "td", ".note"):
        assert contrast(browser, selector) >= 4.5, selector
    picture = browser.execute_script("return getComputedStyle(document.querySelector('#dashboard img')).filter")
    assert (picture == "none") is not dark


def test_prints_all_of_it_in_black_on_white(browser: Any, page: Path) -> None:
    show(browser, page, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert browser.execute_script(style, "body", "backgroundColor") == "rgb(255, 255, 255)"
    assert browser.execute_script(style, "#dashboard img", "filter") == "none"
    assert browser.execute_script(style, ".controls", "display") == "none"
    assert browser.execute_script(style, ".tablebox", "maxHeight") == "none"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_full_size_shows_a_wide_picture_as_large_as_it_is(browser: Any, page: Path) -> None:
    show(browser, page)
    width = "return document.querySelector('#dashboard img').getBoundingClientRect().width"
    assert browser.execute_script(width) < 1280
    browser.find_element("css selector", "#dashboard .zoom").click()
    assert browser.execute_script(width) == 1536
    assert browser.execute_script("return document.documentElement.scrollWidth") == 1280


def opening_time(browser: Any, page: Path) -> float:
    """Seconds from the start of the navigation until the page is drawn and its script has run; the best of three."""
    times = []
    for _ in range(3):
        show(browser, page)
        times.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1e3)
    return float(min(times))


def test_a_deep_model_opens_at_once(browser: Any, tmp_path: Path) -> None:
    """Without the boards, which take a minute to draw: the slow test below has them."""
    page = ki.report(synthetic(160, 100, sick=True), tmp_path / "run.html", boards=())
    assert page.stat().st_size < 2e6
    assert opening_time(browser, page) < 2
    button(browser, "rms").click()
    browser.find_element("id", "search").send_keys("stage_3 kernel")
    assert len(rows(browser)) == 30
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_a_deep_model_with_all_its_boards_opens_in_two_seconds(browser: Any, tmp_path: Path) -> None:
    page = ki.report(synthetic(160, 100, sick=True, phases=True, steps=20), tmp_path / "run.html")
    assert page.stat().st_size < 8e6
    assert opening_time(browser, page) < 2
    assert browser.get_log("browser") == []
