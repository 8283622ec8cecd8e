"""A Chromium, driven by Playwright, that watches what the page does: its console, its requests, its accessibility."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("BROWSER_TOOLS") or ROOT / ".tools" / "browser")
AXE = ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js"
_IS_READ = """() => {
  const inner = document.querySelector("iframe[title='CDC tables']")?.contentDocument;
  return inner && inner.querySelector("main > *") && !inner.querySelector(".loading");
}"""
_RENAME = """(names) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const [name, other] of Object.entries(names)) {
      walker.currentNode.data = walker.currentNode.data.replaceAll(name, other);
    }
  }
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a Chromium without a window."""
    sys.path.append(str(TOOLS / "python"))
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Watched:
    """A page in a browser, and what it did that it should not."""

    def __init__(self, browser: Any, origin: str, *, width: int = 1360, height: int = 850, dark: bool = False) -> None:
        self.origin = origin
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
        if dark:
            # Where Airflow keeps the theme that a user chose.
            self.context.add_init_script("if (location.protocol.startsWith('http')) localStorage.setItem('theme', 'dark')")
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._look_at(request.url))

    def _look_at(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.foreign.append(url)

    def log_in(self, user: str, password: str) -> None:
        """Log in as Airflow's own page does; the cookie stays."""
        answer = self.context.request.post(f"{self.origin}/auth/token", data={"username": user, "password": password})
        assert answer.ok, answer.text()
        token = answer.json()["access_token"]
        self.context.add_cookies([{"name": "_token", "value": token, "url": self.origin, "httpOnly": True, "sameSite": "Lax"}])

    def open(self, place: str = "") -> Any:
        """Open a place of the page within Airflow, and return its frame once it has answered."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.origin}/plugin/cdc{place}")
        frame = self.page.frame_locator("iframe[title='CDC tables']")
        frame.locator("main").wait_for(timeout=30_000)
        frame.locator("main > *").first.wait_for(timeout=30_000)
        self.page.wait_for_function(_IS_READ, timeout=30_000)
        return frame

    @property
    def frame(self) -> Any:
        """The frame of the page, for scripts."""
        return next(frame for frame in self.page.frames if frame.parent_frame == self.page.main_frame)

    def violations(self) -> list[str]:
        """Return what axe finds in the frame, a line each."""
        # The frame's policy allows no script from elsewhere; a debugger's evaluation is not bound by it.
        self.frame.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.frame.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{each['id']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found["violations"]]

    def rename(self, names: Mapping[str, str]) -> None:
        """Show other names than this machine's, for a picture."""
        self.frame.evaluate(_RENAME, dict(names))

    @property
    def overflow(self) -> int:
        """Pixels by which the frame is wider than its window."""
        return int(self.frame.evaluate("document.documentElement.scrollWidth - window.innerWidth"))
