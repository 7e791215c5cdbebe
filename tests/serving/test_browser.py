"""The page in a real browser, before a real process."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import bert_jax
from bert_jax.pictures.attention import AttentionMap, AttentionOfText, attention_page

pytestmark = pytest.mark.slow

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

KEY = "a key"
DOCUMENTS = ["the cat sat on a mat", "a dog ran to the sea", "<b>it was long</b> שלום"]
HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)> the cat",
    "long": "the cat sat " * 833 + "end",  # 10,000 characters
    "one word": "x" * 10_000,
    "right to left": "שלום the cat עולם \u202e evil",
}
# Model, panel, its fields, and what must be seen.
PANELS = [
    ("words", "fill", {"text": "the [MASK] sat on a [MASK]"}, "div:nth-child(2) table"),
    ("words", "similarity", {"texts": "the cat\na dog\nthe sea"}, ".heat tbody tr:nth-child(3)"),
    ("words", "attention", {"text": "the cat sat"}, ".lines line"),
    ("words", "attention", {"text": "a dog", "pair": "the cat", "layers": "-1"}, ".lines line"),
    ("words", "tokens", {"text": "the cat 😀"}, ".pieces .special"),
    ("words", "search", {"query": "the cat", "count": "2"}, ".hits li:nth-child(2)"),
    ("classes", "classify", {"text": "a dog", "pair": "the cat"}, "tr:nth-child(3) .bar"),
    ("tags", "entities", {"text": "😀 the cat sat on a mat"}, "mark .label"),
    ("answers", "answer", {"question": "the cat", "passage": "😀 a dog sat . the cat"}, "mark"),
    ("writer", "generate", {"text": "the cat", "count": "4"}, ".note"),
]


@pytest.fixture(scope="module")
def models(make_model, base_t5, tmp_path_factory):
    """The options of the command for models of every kind, with four heads, and an index."""
    directory = tmp_path_factory.mktemp("models")
    tags = make_model("tagging", num_labels=3, num_attention_heads=4)
    labelled = dataclasses.replace(tags.description, labels=("O", "B-PER", "I-PER"))
    made = {
        "words": make_model("pretraining", num_attention_heads=4),
        "classes": make_model("classification", num_labels=3, num_attention_heads=4),
        "tags": dataclasses.replace(tags, description=labelled),
        "answers": make_model("question_answering", num_attention_heads=4),
    }
    for name, model in made.items():
        model.save(directory / name)
    bert_jax.load(directory / "words").index(DOCUMENTS, path=directory / "index")
    named = [f"{name}={directory / name}" for name in made] + [f"writer={base_t5}"]
    return [*(f"--model={each}" for each in named), f"--index={directory / 'index'}"]


@pytest.fixture(scope="module")
def start():
    """Starts a server, which is killed at the end; returns its address."""
    with contextlib.ExitStack() as stack:

        def run(options, **environment):
            process = subprocess.Popen(
                [sys.executable, "-m", "bert_jax", "serve", "--port=0", "--no-warm-up", *options],
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            lines = iter(process.stderr.readline, "")
            address = next(line.split()[-1] for line in lines if line.startswith("serving on "))
            threading.Thread(target=lambda: list(lines), daemon=True).start()
            return address

        yield run


@pytest.fixture(scope="module")
def browser():
    """Chromium; a message of its console is an error of a test that leaves it there."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    quiet = ("background-networking", "component-update", "sync", "quic")  # asks nobody outside
    for flag in (
        *("headless=new", "no-sandbox", "no-first-run", "window-size=1200,900"),
        *(f"disable-{each}" for each in ("dev-shm-usage", *quiet)),
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield made
    made.quit()


class Page:
    """The page in the browser, as its user acts on it."""

    def __init__(self, browser, address):
        self.browser, self._address = browser, address

    def open(self, model="words", panel="tokens"):
        """Loads the page anew, with a model and a panel."""
        self.browser.get("about:blank")
        self.browser.get(f"{self._address}/#{panel}")
        self.until(lambda: self.find("#choice").is_displayed())
        Select(self.find("#model")).select_by_visible_text(model)
        return self

    def ask(self, panel, **fields):
        """Fills a panel and presses its button; returns what it says."""
        for name, value in fields.items():
            self.set(f"#{panel} [name={name}]", value)
        self.find(f"#{panel} [type=submit]").click()
        return self.answered(panel)

    def answered(self, panel):
        """What a panel says when the server has answered."""
        self.until(lambda: self.find(f"#{panel}").get_attribute("aria-busy") != "true")
        return self.find(f"#{panel} [role=status]").text

    def set(self, selector, value):
        """Writes a value at once; the driver types only characters of 16 bits, one by one."""
        self.browser.execute_script("arguments[0].value = arguments[1]", self.find(selector), value)

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def count(self, selector):
        return len(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def until(self, condition):
        WebDriverWait(self.browser, 60, poll_frequency=0.05).until(lambda _: condition())

    def press(self, *keys):
        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def press_with_control(self, key):
        chain = ActionChains(self.browser)
        chain.key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def tab_to(self, selector):
        """Presses the tabulator until an element has the focus."""
        target = self.find(selector)
        for _ in range(30):
            self.press(Keys.TAB)
            if self.browser.switch_to.active_element == target:
                return
        raise AssertionError(f"{selector} is not reached by keys")

    def text_of_focus(self):
        return self.browser.switch_to.active_element.text

    def console(self):
        """New messages of the console; refusals of the policy are among them."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def fits(self):
        """Whether nothing is wider than the window."""
        script = "return [document.documentElement.scrollWidth, window.innerWidth]"
        needed, width = self.browser.execute_script(script)
        return needed <= width


@pytest.fixture(scope="module")
def address(start, models):
    return start(models)


@pytest.fixture
def page(browser, address):
    """The page; a test must leave the console empty."""
    made = Page(browser, address)
    yield made
    assert made.console() == []


@pytest.fixture
def narrow(browser):
    """A telephone, dark, of 360 pixels."""
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize(("model", "panel", "fields", "seen"), PANELS)
def test_a_panel_shows_its_answer_on_a_narrow_dark_page(page, narrow, model, panel, fields, seen):
    said = page.open(model, panel).ask(panel, **fields)
    assert said.startswith("Answered in "), said
    assert page.count(f"#{panel} .output {seen}")
    assert page.fits()
    color = page.find("body").value_of_css_property("background-color")
    assert sum(map(int, color.strip("rgba()").split(",")[:3])) < 150, "dark"


def test_only_what_a_model_can_do_is_shown(page):
    page.open("classes")
    tabs = [tab.text for tab in page.browser.find_elements(By.CSS_SELECTOR, "[role=tab]")]
    assert "Classify" in tabs
    assert "Fill a mask" not in tabs
    page.open("words", "classify")  # its first panel instead
    assert page.find("#fill").is_displayed()


def test_entities_and_answers_are_the_characters_of_the_text(page):
    text = "😀 the cat sat on a mat"
    page.open("tags", "entities").ask("entities", text=text)
    script = "return document.querySelector('#entities .text').innerText"
    shown = page.browser.execute_script(script)
    assert shown.replace("PER", "").split() == text.split()
    page.open("answers", "answer").ask("answer", question="the cat", passage=text)
    marks = page.browser.find_elements(By.CSS_SELECTOR, "#answer .answers button")
    for button in marks:
        button.click()
        assert button.text.startswith(page.find("#answer mark").text)


def test_a_mean_and_a_head_in_large(page):
    page.open("words", "attention").ask("attention", text="the cat sat")
    assert page.count(".heads canvas") == 2 * (4 + 1)
    assert "layer 2, mean of the heads" in page.find(".status").text
    page.find(".heads [data-place='0,2']").click()
    assert "layer 1, head 3" in page.find(".status").text


def test_all_by_keys(page):
    page.open("words", "fill")
    page.browser.execute_script("document.activeElement.blur()")
    page.tab_to("#model")
    page.tab_to("[aria-controls=fill]")
    while page.text_of_focus() != "Attention":
        page.press(Keys.ARROW_RIGHT)
    page.press(Keys.ENTER)
    page.tab_to("#attention [name=text]")
    page.press_with_control("a")
    page.press("a dog")
    page.press_with_control(Keys.ENTER)
    page.until(lambda: page.count(".lines"))
    page.tab_to("#attention [type=submit]")
    page.press(Keys.ENTER)
    assert page.answered("attention").startswith("Answered")
    assert page.text_of_focus() == "Show"
    page.tab_to(".heads [data-place='1,-1']")
    page.press(Keys.ARROW_LEFT, Keys.ENTER)
    assert "layer 2, head 4" in page.find(".status").text
    page.tab_to(".tokens.from button")
    page.press(Keys.ARROW_DOWN)
    assert "a attends to" in page.find(".status").text
    page.press(Keys.ENTER, Keys.TAB, Keys.ESCAPE, Keys.TAB)
    assert "attends" not in page.find(".status").text


@pytest.mark.parametrize(
    ("model", "panel", "field"),
    [
        ("words", "tokens", "text"),
        ("words", "attention", "text"),
        ("words", "similarity", "texts"),
        ("tags", "entities", "text"),
        ("answers", "answer", "passage"),
    ],
)
def test_any_text_stays_text_on_a_narrow_page(page, narrow, model, panel, field):
    page.open(model, panel)
    before = page.count("script, img")
    for kind, text in HOSTILE.items():
        said = page.ask(panel, **{field: text})
        assert said.startswith("Answered"), (kind, said)
        assert page.count("script, img") == before, kind
        assert page.fits(), kind
        if (panel, kind) == ("answer", "markup"):
            assert page.find("#answer .text").text == text


def test_a_second_press_sends_nothing(page):
    page.open()
    script = """
        const button = document.querySelector("#tokens [type=submit]");
        button.click(), button.click(), button.click();
        return document.querySelector("#tokens").ariaBusy + button.ariaDisabled;"""
    assert page.browser.execute_script(script) == "truetrue"
    assert page.answered("tokens").startswith("Answered")
    script = 'return performance.getEntriesByType("resource").map((entry) => entry.name)'
    names = page.browser.execute_script(script)
    assert len([name for name in names if name.endswith("/tokenize")]) == 1


def test_an_error_is_said_in_the_panel(page):
    said = page.open("words", "fill").ask("fill", text="no mask")
    assert "the text has no [MASK]" in said
    assert page.find("#fill .error").is_displayed()
    (message,) = page.console()
    assert "422" in message


def test_a_cut_text_is_said(page):
    said = page.open("words", "attention").ask("attention", text="the cat " * 40)
    assert "too long" in said


def test_a_key_is_asked_for(start, models, browser):
    page = Page(browser, start(models[:1], BERT_JAX_API_KEY=KEY))
    browser.get(page._address)
    page.until(lambda: page.find("#key").is_displayed())
    for value, message in (("wrong", "the API key is missing or wrong"), (KEY, "")):
        page.find("#key-value").clear()
        page.find("#key-value").send_keys(value, Keys.ENTER)
        page.until(lambda expected=message: expected in page.find("#problem").text)
    page.until(lambda: page.find("#choice").is_displayed())
    assert all("401" in message for message in page.console())
    assert page.ask("fill", text="the [MASK]").startswith("Answered")
    assert page.console() == []


def test_the_page_of_predict_draws_the_same(browser, tmp_path):
    tokens = ["<b>", "שלום", "c"]
    weights = np.full((2, 3, 3, 3), 1 / 3, np.float32)
    of_map = AttentionMap("attention", tokens, tokens, weights, [1, 2])
    texts = [AttentionOfText(title, [of_map]) for title in ("first", "second")]
    html = attention_page(texts)
    html.save(tmp_path / "page.html")
    frame = f"<!DOCTYPE html><title>notebook</title>{html._repr_html_()}"
    (tmp_path / "notebook.html").write_text(frame)
    page = Page(browser, "")
    browser.get((tmp_path / "page.html").as_uri())
    assert page.count(".heads canvas") == 2 * 4
    assert page.count(".lines line") == 9
    Select(page.find("select")).select_by_index(1)
    assert page.find("p bdi").text == "second"
    browser.get((tmp_path / "notebook.html").as_uri())
    browser.switch_to.frame(page.find("iframe"))
    page.until(lambda: page.count(".heads canvas") == 2 * 4)
    browser.switch_to.default_content()
    assert page.console() == []
