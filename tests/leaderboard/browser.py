"""A page in Debian's chromium: what a script finds in it."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
ERRORS = "<script>window.errors = []; addEventListener('error', (one) => errors.push(one.message));</script>"
PHONE, DESK = (390, 844), (1280, 900)


def tried(content: str, script: str, folder: Path, size: tuple[int, int] = DESK, *flags: str) -> Any:
    """What a script that ends with a value finds in the page.

    Args:
        content: the page.
        script: the body of a function of the page's `window` and `document`.
        folder: where the page and the profile of the browser lie.
        size: of the frame that the page is in, as a window cannot be as narrow as a phone.
        flags: of the browser, beside `FLAGS`.
    """
    page = content.replace("<head>", f"<head>{ERRORS}", 1)
    frame = f"""<!DOCTYPE html><body style="margin: 0">
    <iframe width="{size[0]}" height="{size[1]}" style="border: 0" srcdoc="{escape(page)}"></iframe>
    <script>addEventListener("load", () => {{
      const own = document.querySelector("iframe").contentWindow;
      const find = new own.Function({json.dumps(script)});
      const result = document.createElement("pre");
      result.id = "result-of-the-test";
      result.textContent = JSON.stringify({{ value: find(), errors: own.errors }});
      document.body.append(result);
    }});</script></body>"""
    file = folder / "page.html"
    file.write_text(frame)
    words = [*FLAGS, *flags, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *words, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'<pre id="result-of-the-test">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    answer = json.loads(unescape(found[1]))
    assert answer["errors"] == []
    return answer["value"]
