"""The built files are those of the sources; told by their hashes, without node."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

WEB = Path(str(files("cb_trace.reporters"))) / "web"


def test_the_built_files_belong_to_the_sources() -> None:
    lines = (WEB / "dist" / "sources.sha256").read_text("utf-8").splitlines()
    noted = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    stale = {
        name: "run cb_trace/reporters/web/build.sh"
        for name, digest in noted.items()
        if hashlib.sha256((WEB / name).read_bytes()).hexdigest() != digest
    }
    assert stale == {}
    sources = {f"src/{file.name}" for file in (WEB / "src").iterdir()}
    built = {"dist/report.js", "dist/report.css", "dist/template.html"}
    assert set(noted) == sources | built | {"package.json", "package-lock.json"}


def test_versions_are_exact_and_locked() -> None:
    wanted = json.loads((WEB / "package.json").read_text("utf-8"))["devDependencies"]
    locked = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    for name, version in wanted.items():
        assert version[0].isdigit()
        assert locked[f"node_modules/{name}"]["version"] == version
        assert locked[f"node_modules/{name}"]["integrity"].startswith("sha512-")


def test_nothing_built_ends_its_element_or_asks_the_network() -> None:
    script = (WEB / "dist" / "report.js").read_text("utf-8").lower()
    style = (WEB / "dist" / "report.css").read_text("utf-8").lower()
    assert "</script" not in script
    assert "<!--" not in script
    assert "</style" not in style
    assert "url(" not in style
    assert "@import" not in style
    assert len(script) < 120_000
