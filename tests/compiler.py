"""The C++ compiler of the tests: what it has built once is copied the next time.

Every compiled recording begins with an empty compiler cache, as a user's does, and many of them
generate the same kernels: 2.3 s of CPU time each. The generated source and all flags are the key;
the name of the precompiled header among them is that of its contents.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path


def install(folder: Path) -> None:
    """Set ``CXX``, which Inductor reads as it is imported, to a g++ that keeps what it builds.

    No change where the compiler is not g++ on Linux. The folder must stay where it is: Inductor
    precompiles its headers once for every compiler, and knows compilers by their paths.
    """
    real = shutil.which(os.environ.get("CXX", "g++"))
    if real is None or Path(real).name != "g++" or sys.platform != "linux":
        return
    command = shlex.join([sys.executable, "-I", "-S", __file__, str(folder), real])
    program, draft = folder / "g++", folder / f"g++.{os.getpid()}"
    draft.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(program)
    os.environ["CXX"] = str(program)


def key(real: str, arguments: list[str], source: str, target: str) -> str:
    """Of all that a library depends on; where it and its source lie does not matter."""
    flags = [argument for argument in arguments if argument not in {source, target}]
    parts = ["\0".join([real, *flags]).encode(), Path(source).read_bytes()]
    return hashlib.sha256(b"\0\0".join(parts)).hexdigest()


def main(folder: str, real: str, *given: str) -> int:
    """Build a library of one source, or copy it; anything else is left to the compiler."""
    arguments = list(given)
    sources = [argument for argument in arguments if argument.endswith(".cpp")]
    if "-shared" not in arguments or "-o" not in arguments or len(sources) != 1:
        return subprocess.call([real, *arguments])
    target = arguments[arguments.index("-o") + 1]
    kept = Path(folder) / key(real, arguments, sources[0], target)
    if kept.exists():
        shutil.copyfile(kept, target)
        return 0
    status = subprocess.call([real, *arguments])
    if status == 0:
        draft = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.copyfile(target, draft)
        draft.replace(kept)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
