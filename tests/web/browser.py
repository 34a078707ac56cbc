"""A real browser for tests: Chromium over its own protocol, on a pipe, with nothing in between."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 120.0
DRAWN = "document.documentElement?.dataset.ready === ''"
_KEYS = {"Enter": 13, "Escape": 27, "Home": 36, "End": 35, "Backspace": 8, "Tab": 9}
_KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find_browser() -> str | None:
    """A Chromium on the path."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


class Browser:
    """One headless Chromium; pages are opened in it one after another."""

    def __init__(self, program: str, folder: Path) -> None:
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        flags = ["--headless", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        if os.geteuid() == 0:  # Chromium's sandbox refuses root; the pages are our own
            flags.append("--no-sandbox")
        # The protocol is spoken on descriptors 3 and 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{to_us}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *flags, f"--user-data-dir={folder}"],
            pass_fds=(to_browser, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(to_us)
        self._out, self._in = from_us, from_browser
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer; events meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, end - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def open(
        self,
        address: str,
        *,
        width: int = 1300,
        height: int = 900,
        dark: bool = False,
        ready: str = DRAWN,
    ) -> Page:
        """A page that has drawn itself; ``ready`` is the expression that says so."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        page.call("Runtime.enable")
        page.call("Page.enable")
        page.call("Log.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.go(address, ready)
        return page

    def close(self) -> None:
        """End the browser."""
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait(timeout=_SECONDS)
        os.close(self._out)
        os.close(self._in)


class Page:
    """A page: ask it, type, click."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def go(self, address: str, ready: str = DRAWN) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait(ready)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description"))
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression holds."""
        self.until(lambda: self.ask(expression), expression)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _SECONDS
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"never: {what}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).textContent"))

    def texts(self, selector: str) -> list[str]:
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        texts: list[str] = self.ask(f"{found}.map((one) => one.textContent)")
        return texts

    def click(self, selector: str, *, times: int = 1) -> None:
        """With the pointer, where the element is."""
        place = self.ask(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased") * times:
            self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=place[0], y=place[1], button="left", clickCount=1,
            )  # fmt: skip

    def press(self, *keys: str) -> None:
        """Keys by their names, or single characters."""
        for key in keys:
            code = _KEYS.get(key) or (ord(key.upper()) if key.isalnum() else 0)
            down = {"key": key, "windowsVirtualKeyCode": code}
            typed = (
                {"text": "\r" if key == "Enter" else key}
                if key not in _KEYS or key == "Enter"
                else {}
            )
            self.call("Input.dispatchKeyEvent", type="keyDown", **down, **typed)
            self.call("Input.dispatchKeyEvent", type="keyUp", **down)

    def type(self, text: str) -> None:
        self.press(*text)

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def complaints(self) -> list[str]:
        """What the page wrote to its console, and its errors."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            if event["method"] in {
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            }:
                found.append(json.dumps(event["params"])[:500])
        return found

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
