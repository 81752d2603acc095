"""The page in a real browser: a chat with its tokens' origins, by keyboard too, and a race whose two sides agree.

Screenshots go into docs/ where SOOTHSAY_SCREENSHOTS names that folder.
"""

import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="the group `check` installs it")
from playwright.sync_api import Browser, Page, expect  # noqa: E402  # once it is known to be there

from soothsay.core import Capacity  # noqa: E402
from soothsay.hub import MODELS, cached  # noqa: E402
from soothsay.server.run import load  # noqa: E402
from soothsay.server.service import Limits  # noqa: E402
from tests.server.doubles import serving  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SCREENSHOTS = os.environ.get("SOOTHSAY_SCREENSHOTS")
PATIENCE = 60_000

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (Debian: apt-get install chromium)"),
    pytest.mark.skipif(cached(MODELS["smollm2-135m"]) is None, reason="the small model is not in the cache"),
    pytest.mark.skipif(find_spec("soothsay._native") is None, reason="the native runtime is not built"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(load("smollm2-135m", draft="ngram", limits=Limits(Capacity(max_batch=2)))) as address:
        yield address


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with serving(load("smollm2-135m", draft="none"), keys=["sesame"]) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that fails its test when it logs an error or asks anyone but its server."""
    page, wrong = browser.new_page(viewport={"width": 1200, "height": 800}), list[str]()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: wrong.append(message.text) if "Bad Request" not in message.text else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else wrong.append(asked.url))
    page.goto(address)
    expect(page.locator("#model")).to_contain_text("smollm2-135m", timeout=PATIENCE)
    yield page
    page.close()
    assert wrong == []


def picture(page: Page, name: str) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"page-{name}.png", full_page=name == "phone")


def chat(page: Page, prompt: str, answers: int = 1) -> None:
    page.fill("#prompt", prompt)
    page.keyboard.press("Enter")
    expect(page.locator("#turns .figures")).to_have_count(answers, timeout=PATIENCE)


def set_options(page: Page, **options: str) -> None:
    for name, value in options.items():
        page.fill(f"#{name.replace('_', '-')}", value)


def test_a_chat_by_keyboard_with_the_origin_of_each_token(page: Page) -> None:
    set_options(page, temperature="0", max_tokens="80")
    chat(page, "Write the line 'one fish two fish red fish blue fish' five times, numbered.")
    answer = page.locator("#turns li.assistant .text")
    assert len(answer.inner_text()) > 30
    assert re.search(r"\d+ tokens, .* a second, .* a step", page.locator("#turns .figures").inner_text())
    assert page.locator("#turns .token.from-ngram").count() > 5
    assert page.locator("#turns .token.from-plain").count() > 0
    first = page.locator("#turns .token").first
    first.focus()
    expect(page.locator("#card")).to_contain_text("p, the model's own")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#turns .token").nth(1)).to_be_focused()
    page.locator("#turns .token.from-ngram").nth(2).hover()
    expect(page.locator("#card")).to_contain_text("guessed from the text itself, kept")
    expect(page.locator("#card")).to_contain_text("q, the guesser's")
    picture(page, "desktop")
    page.keyboard.press("Escape")
    expect(page.locator("#card")).to_be_hidden()


def test_the_second_turn_knows_the_first(page: Page) -> None:
    set_options(page, temperature="0", max_tokens="12")
    chat(page, "My name is Ada.")
    chat(page, "What is my name?", answers=2)
    assert page.locator("#turns li").count() == 4
    expect(page.locator("#key")).to_be_hidden()
    page.click("#clear")
    assert page.locator("#turns li").count() == 0


def test_an_answer_can_be_stopped(page: Page) -> None:
    set_options(page, max_tokens="2000")
    page.select_option("#draft", "none")
    page.fill("#prompt", "Write a very long story.")
    page.click("#send")
    expect(page.locator("#turns .token").nth(3)).to_be_visible(timeout=PATIENCE)
    page.click("#stop")
    expect(page.locator("#turns .figures")).to_have_text("stopped")
    expect(page.locator("#figures")).to_contain_text(re.compile(r"answers running\s*0"), timeout=PATIENCE)


def test_what_the_server_refuses_is_said(page: Page) -> None:
    set_options(page, max_tokens="12", seed="-4")
    chat(page, "Hello")
    expect(page.locator("#turns .figures.error")).to_contain_text("seed")


def test_a_race_shows_the_same_text_on_both_sides(page: Page) -> None:
    page.click("#tab-race")
    set_options(page, temperature="0.6", seed="5", max_tokens="60")
    page.fill("#race-prompt", "Write 'a rose is a rose is a rose' five times, each on a line.")
    page.click("#go")
    expect(page.locator("#outcome")).to_contain_text("times as fast, the same text", timeout=PATIENCE)
    assert page.locator("#text-off").inner_text() == page.locator("#text-on").inner_text() != ""
    assert page.locator("#text-off .from-ngram").count() == 0
    picture(page, "race")


def test_figures_are_live(page: Page) -> None:
    set_options(page, temperature="0", max_tokens="60")
    chat(page, "Say one two one two one two one two one two, again and again.")
    expect(page.locator("#figures")).to_contain_text(re.compile(r"tokens a step\s*[1-9]"), timeout=PATIENCE)
    assert page.locator("#acceptance .bar").count() > 0
    assert page.locator("#costs svg polyline").count() == 1


def test_the_page_fits_a_phone_and_the_dark(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="dark")
    page.goto(address)
    expect(page.locator("#model")).to_contain_text("smollm2-135m", timeout=PATIENCE)
    set_options(page, temperature="0", max_tokens="40")
    chat(page, "Repeat: red fish blue fish red fish blue fish.")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", paper)[:3])) < 150
    picture(page, "phone")
    page.set_viewport_size({"width": 1200, "height": 800})
    picture(page, "dark")
    page.close()


def test_a_server_with_a_key_asks_for_it(browser: Browser, guarded: str) -> None:
    page = browser.new_page()
    page.goto(guarded)
    expect(page.locator("#model")).to_have_text("this server wants a key", timeout=PATIENCE)
    expect(page.locator("#key")).to_be_visible()
    page.fill("#key", "sesame")
    page.locator("#key").press("Tab")
    expect(page.locator("#model")).to_contain_text("smollm2-135m", timeout=PATIENCE)
    set_options(page, max_tokens="4")
    chat(page, "Hello")
    assert page.locator("#turns .figures.error").count() == 0
    page.close()
