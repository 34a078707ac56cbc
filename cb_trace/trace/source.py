"""The bytes of a trace, whatever wraps them: plain, gzip, zstd, or a zip around one of these.

Containers are told apart by their first bytes, never by the file's name (traces.md row 6).
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cb_trace.errors import CbTraceError

GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_MEMBER = GZIP + b"\x08"
_HEADER = re.compile(_MEMBER + rb"[\x00-\x1f].{4}[\x00\x02\x04][\x00-\x0d\xff]", re.DOTALL)
_HEADER_BYTES = 10
_READ = 1 << 18
_OUT = 1 << 22  # a bound on what one call may inflate to
_MANY_RANKS = "several ranks wrote one file at once?"

Opener = Callable[[], IO[bytes]]


class _SecondHeaderError(Exception):
    """A member of a gzip file that begins before the one before it has ended."""


@dataclass(slots=True)
class _Fenced:
    """A gzip file, read in pieces that end before each header in it.

    Kineto and gzip leave a header's flags and name out or short; in compressed data the ten bytes
    of one occur by chance less than once in 10 TB.
    """

    stream: IO[bytes]
    _rest: bytes = b""

    def read(self, size: int) -> bytes:
        data, self._rest = self._rest or self.stream.read(size), b""
        if len(data) > _HEADER_BYTES and (tail := data.rfind(_MEMBER[:1], -_HEADER_BYTES)) > 0:
            data, self._rest = data[:tail], data[tail:] + self.stream.read(size)
        at = 0
        while (at := data.find(_MEMBER, at + 1)) > 0:
            if _HEADER.match(data, at):
                data, self._rest = data[:at], data[at:] + self._rest
                break
        return data


@dataclass(slots=True)
class Source:
    """A file to be read once; the flags say afterwards how it ended."""

    path: Path
    truncated: bool = False
    damage: str | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield the decompressed text in pieces of at most a few MB.

        :raises CbTraceError: no file, empty, or a container with no trace in it.
        """
        try:
            head = _head(self.path.open("rb"))
            if not head:
                raise CbTraceError(f"{self.path} is empty", hint="record the trace again")
            if head.startswith(ZIP):
                yield from self._unzip()
            else:
                yield from self._unwrap(lambda: self.path.open("rb"), head)
        except OSError as error:
            raise CbTraceError(
                f"cannot read {self.path}: {error.strerror or error}", hint="check the path"
            ) from error

    def _unwrap(self, opener: Opener, head: bytes) -> Iterator[bytes]:
        if head.startswith(GZIP):
            return self._gunzip(opener)
        if head.startswith(ZSTD):
            return self._unzstd(opener)
        return _plain(opener)

    def _unzip(self) -> Iterator[bytes]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                member = _trace_member(archive, self.path)
                with archive.open(member) as stream:
                    head = stream.read(4)
                yield from self._unwrap(lambda: archive.open(member), head)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            # RuntimeError: zipfile says so of a member that is encrypted or oddly compressed
            raise CbTraceError(
                f"{self.path} is a damaged zip: {error}", hint="copy it again"
            ) from error

    def _unzstd(self, opener: Opener) -> Iterator[bytes]:
        import zstandard

        with opener() as raw:
            reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
            try:
                while block := reader.read(_OUT):
                    yield block
            except zstandard.ZstdError as error:
                self.damage = f"zstd data damaged ({error})"

    def _gunzip(self, opener: Opener) -> Iterator[bytes]:
        """Read member after member with isal; where it stumbles, take over with zlib."""
        from isal import isal_zlib

        with opener() as stream:
            raw = _Fenced(stream)
            data, start = raw.read(_READ), 0  # start: offset of the member's first byte
            while data.startswith(GZIP) or (data and GZIP.startswith(data)):
                inflater, given = isal_zlib.decompressobj(wbits=31), 0
                read = len(data)
                try:
                    while not inflater.eof:
                        block = inflater.decompress(data, _OUT)
                        data = inflater.unconsumed_tail
                        given += len(block)
                        if block:
                            yield block
                        if not data and len(block) < _OUT and not inflater.eof:
                            data = raw.read(_READ)
                            read += len(data)
                            if not data:
                                break
                            # Without text before it, it is the text: a file compressed twice.
                            if given and data.startswith(_MEMBER):
                                raise _SecondHeaderError
                except _SecondHeaderError:  # what follows would decode to text that nobody wrote
                    self.damage, self.truncated = f"gzip data damaged ({_MANY_RANKS})", True
                    return
                except isal_zlib.error:  # type: ignore[misc]  # isal has no stubs here
                    yield from self._gunzip_slowly(opener, start, given)
                    return
                if not inflater.eof:
                    self.truncated = True
                    return
                left = inflater.unused_data
                start += read - len(left)
                data, padding = _skip_zeros(left or raw.read(_READ), raw)
                start += padding
            if data:
                self.damage = "bytes after the end of the gzip data were ignored"

    def _gunzip_slowly(self, opener: Opener, start: int, given: int) -> Iterator[bytes]:
        """Inflate the member at ``start`` again, past ``given`` bytes, to the last good byte."""
        inflater = zlib.decompressobj(wbits=31)
        with opener() as raw:
            _skip(raw, start)
            while piece := raw.read(1 << 12):
                rescue = inflater.copy()
                try:
                    block = inflater.decompress(piece)
                except zlib.error as error:
                    tail = b"".join(_byte_by_byte(rescue, piece))
                    if tail[given:]:
                        yield tail[given:]
                    self._name_damage(str(error), piece + raw.read(1 << 22))
                    return
                if block[given:]:
                    yield block[given:]
                given = max(0, given - len(block))
                if inflater.eof:
                    break
        self.truncated = not inflater.eof

    def _name_damage(self, error: str, rest: bytes) -> None:
        reason = error.rsplit(": ", 1)[-1]
        cause = f" ({_MANY_RANKS})" if rest.count(GZIP + b"\x08") else ""
        self.damage = f"gzip data damaged: {reason}{cause}"


def _byte_by_byte(inflater: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    for at in range(len(piece)):
        try:
            yield inflater.decompress(piece[at : at + 1])
        except zlib.error:
            return


def _skip_zeros(data: bytes, raw: _Fenced) -> tuple[bytes, int]:
    """Step over zero padding between gzip members; give what follows and the padding's length."""
    padding = 0
    while data and not data.lstrip(b"\0"):
        padding += len(data)
        data = raw.read(_READ)
    stripped = data.lstrip(b"\0")
    return stripped, padding + len(data) - len(stripped)


def _skip(raw: IO[bytes], count: int) -> None:
    while count > 0 and (block := raw.read(min(count, _READ))):
        count -= len(block)


def _plain(opener: Opener) -> Iterator[bytes]:
    with opener() as raw:
        while block := raw.read(_OUT):
            yield block


def _head(stream: IO[bytes]) -> bytes:
    with stream:
        return stream.read(4)


def _trace_member(archive: zipfile.ZipFile, path: Path) -> str:
    """The one member of a zip that can be a trace."""
    names = [
        info.filename
        for info in archive.infolist()
        if not info.is_dir() and ".json" in Path(info.filename).name.lower()
    ]
    if not names:
        raise CbTraceError(f"{path} is a zip with no trace inside", hint="give a Kineto .json")
    if len(names) > 1:
        raise CbTraceError(
            f"{path} holds {len(names)} traces ({names[0]}, {names[1]}, …)",
            hint="unpack it and ingest the folder",
        )
    return names[0]
