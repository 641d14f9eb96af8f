"""The page at "/": a person's steps in a headless Chromium, and what holds without a browser."""

import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from live_server import Live, live

from intattention import LLM, serve

PAGE = Path(serve.__file__).with_name("static") / "index.html"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER and find_spec("selenium")),
    reason="needs chromium, chromedriver (apt) and selenium (pip)",
)


@pytest.fixture
def server(smollm2: LLM) -> Iterator[Live]:
    with live(smollm2) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Page:
    """What a person sees and does."""

    def __init__(self, browser: Any, server: Live) -> None:
        self.browser = browser
        browser.get(f"http://127.0.0.1:{server.port}/")

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [e.text for e in self.browser.find_elements("css selector", selector)]

    def ask(self, question: str) -> None:
        self.find("#question").send_keys(question + "\n")

    def set(self, name: str, value: str) -> None:
        field = self.find(f"#{name}")
        if not field.is_displayed():
            self.find("summary").click()
        field.clear()
        field.send_keys(value)

    def wait(self, until: Any, seconds: float = 60) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, seconds, 0.02).until(lambda _: until())

    def idle(self) -> bool:
        return bool(self.find("#send").is_displayed())

    def no_errors(self) -> None:
        assert self.texts("article.error") == []
        assert [line for line in self.browser.get_log("browser") if line["level"] == "SEVERE"] == []


@pytest.fixture
def page(browser: Any, server: Live) -> Page:
    return Page(browser, server)


# without a browser ----------------------------------------------------------------------------
def test_is_served_and_stands_alone(tiny: LLM) -> None:
    """No other file, no other host, no model output as HTML."""
    with live(tiny) as running:
        status, text, headers = running.request("GET", "/")
        assert (status, text) == (200, PAGE.read_text(encoding="utf-8"))
        assert headers["content-type"].startswith("text/html")
        assert running.request("GET", "/../__init__.py")[0] == 404
    assert not re.search(r"https?:|//[a-z]|<script [^>]*src|<link [^>]*href=\"(?!data:)", text)
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|\beval\b", text)


# with one -------------------------------------------------------------------------------------
@needs_browser
def test_streams_an_answer(page: Page, smollm2: LLM) -> None:
    expected = smollm2.chat([{"role": "user", "content": "Name the capital of France."}])
    lengths: list[int] = []
    page.ask("Name the capital of France.")

    def written() -> bool:
        [text] = page.texts("article.assistant") or [""]
        if text and (not lengths or len(text) > lengths[-1]):
            lengths.append(len(text))
        return page.idle()

    page.wait(written)
    assert page.texts("article.user") == ["Name the capital of France."]
    assert page.texts("article.assistant") == [expected.strip()]
    assert len(lengths) > 1, "it came all at once"
    assert re.search(r"^\d+ tokens, [\d.]+ tok/s, first after .* prompt \d+ tokens$",
                     page.texts("#speed")[0])  # fmt: skip
    page.no_errors()


@needs_browser
def test_a_conversation_goes_on(page: Page, smollm2: LLM) -> None:
    page.ask("Name a colour.")
    page.wait(page.idle)
    page.ask("Another one.")
    page.wait(lambda: page.idle() and len(page.texts("article.assistant")) == 2)
    first = smollm2.chat([{"role": "user", "content": "Name a colour."}], max_new_tokens=512)
    messages = [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "Another one."},
    ]
    assert page.texts("article.assistant")[1] == smollm2.chat(messages, max_new_tokens=512).strip()
    page.find("#fresh").click()
    assert page.texts("article") == []
    page.no_errors()


@needs_browser
def test_stop_ends_the_answer_here_and_in_the_server(page: Page, server: Live) -> None:
    page.ask("Tell a very long story about a lighthouse.")
    page.wait(lambda: len("".join(page.texts("article.assistant"))) > 40)
    page.find("#stop").click()
    page.wait(page.idle)
    text = page.texts("article.assistant")
    server.wait_for("intattention_running_texts", 0)
    assert page.texts("article.assistant") == text
    assert page.texts("#speed")[0].endswith("(stopped)")
    page.ask("Say yes.")  # and it goes on from there
    page.wait(lambda: page.idle() and len(page.texts("article.assistant")) == 2)
    page.no_errors()


@needs_browser
def test_settings_reach_the_model_and_are_kept(page: Page, server: Live, smollm2: LLM) -> None:
    page.set("max_tokens", "5")
    page.set("system", "Answer in French.")
    page.ask("Hello")
    page.wait(lambda: page.idle() and bool(page.texts("article.assistant")))
    messages = [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "Hello"},
    ]
    assert page.texts("article.assistant") == [smollm2.chat(messages, max_new_tokens=5).strip()]
    page.browser.refresh()
    assert page.find("#max_tokens").get_property("value") == "5"
    page.browser.execute_script("localStorage.clear()")
    page.no_errors()


@needs_browser
def test_an_error_is_shown(browser: Any, smollm2: LLM) -> None:
    with live(smollm2, api_key="a-key-of-many-letters") as running:
        page = Page(browser, running)
        page.ask("Hello")
        page.wait(lambda: bool(page.texts("article.error")))
        assert page.texts("article.error") == ["wrong or no API key"]
        assert page.idle()
        page.set("key", "a-key-of-many-letters")
        page.ask("Hello")
        page.wait(lambda: page.idle() and bool(page.texts("article.assistant")))


@needs_browser
def test_markup_is_text(page: Page) -> None:
    page.ask("<img src=x onerror=\"document.title='hacked'\"><b>bold</b>")
    page.wait(page.idle)
    assert page.texts("article.user")[0].startswith("<img")
    assert page.texts("article img, article b") == []
    assert page.browser.title != "hacked"
