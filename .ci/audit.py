"""Known weaknesses and the licences of what `requirements/constraints.txt` pins: `make audit`.

Fails for a weakness that is not in `ACCEPTED` and for a licence that is not in `LICENCES`. Where the registry cannot be
reached, or does not know a package, that is said in one line, and is no failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).parents[1] / "requirements" / "constraints.txt"

ACCEPTED: dict[str, str] = {}
"""Why a weakness does not concern us, by its id."""

LICENCES = (
    *("0BSD", "Apache", "BSD", "BSL-1.0", "CC0", "CNRI-Python", "DFSG approved", "HPND", "ISC", "MIT", "MPL"),
    *("Mozilla", "PSF", "Python Software Foundation", "Unlicense", "Zlib"),
)
"""What the name of a licence begins with, if this package can be used and given on with it."""

EXCEPTIONS = {
    "docutils": ("GNU General Public License", "of an editor's mode that is not installed; it checks releases"),
    "psycopg": ("LGPL", "of an extra, imported as it is, of which the licence asks no more"),
    "psycopg-binary": ("LGPL", "the same"),
}
"""Packages with a licence that is not on the list, and why they are used all the same."""

SECONDS = 120


def main() -> int:
    """Say what was found; 1 for weaknesses alone, 3 for licences."""
    weak, wrong = weaknesses(PINS), wrong_licences()
    for fault in (*weak, *wrong):
        print(f"audit: {fault}")
    if weak:
        print("audit: these weaknesses have to be mended before a release")
    return 3 if wrong else int(bool(weak))


def weaknesses(pins: Path) -> list[str]:
    """What is known against the versions of a file of pins; prints how many could be looked up."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip"]
    options = ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=SECONDS)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        print("audit: weaknesses were NOT looked up: the registry's list of them cannot be reached from here")
        return []
    return judged(found)


def judged(found: list[dict[str, Any]]) -> list[str]:
    """The weaknesses in what pip-audit found; prints how many packages it knows."""
    unknown = [one["name"] for one in found if "skip_reason" in one]
    if len(unknown) == len(found):
        print(f"audit: weaknesses were NOT looked up: the registry lists none for any of {len(found)} packages here")
        return []
    without = f"; NOT for {', '.join(unknown)}" if unknown else ""
    print(f"audit: weaknesses were looked up for {len(found) - len(unknown)} of {len(found)} packages{without}")
    return [
        f"{one['name']} {one['version']}: {weakness['id']}, mended in {', '.join(weakness['fix_versions']) or 'none'}"
        for one in found
        for weakness in one.get("vulns", [])
        if not {weakness["id"], *weakness.get("aliases", [])} & set(ACCEPTED)
    ]


def wrong_licences() -> list[str]:
    """The packages installed here whose licence is not known to be fine; prints how many there are."""
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--format=json", "--ignore-packages", "tsattn"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    print(f"audit: licences were looked at of {len(rows)} packages")
    return refused({row["Name"]: row["License"] for row in rows})


def refused(licences: dict[str, str]) -> list[str]:
    """A sentence for each package whose licence has a part that is not on the list.

    Args:
        licences: by package, as an SPDX expression or as the names of classifiers with semicolons between them.
    """
    return [
        f"{package}: the licence {licence!r} is not on the list of .ci/audit.py"
        for package, licence in licences.items()
        if not any(
            all(_is_fine(name, package) for name in re.split(r"\bAND\b|;|,", choice))
            for choice in licence.split(" OR ")
        )
    ]


def _is_fine(name: str, package: str) -> bool:
    name = re.sub(r"^[\s(]+|[\s)]+$|^(The )?\d-Clause ", "", name.strip())
    return name == "Public Domain" or name.startswith((*LICENCES, EXCEPTIONS.get(package, LICENCES)[0]))


if __name__ == "__main__":
    sys.exit(main())
