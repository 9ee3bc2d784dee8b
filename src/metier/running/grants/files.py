"""The files that a run is given: those of the session, and those of the call, which win.

They are put into the current folder of the script, as copies. The record has their digests, and keeps their content.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

from metier import limits
from metier.errors import BadArguments, ResourceError, StoreError
from metier.files.digests import digest_of, is_digest
from metier.files.text import storable_text
from metier.running.grants import RunGrant
from metier.running.sandbox import Job
from metier.running.scripts import WantedRun
from metier.values.skill import JsonObject


class GivenFile(NamedTuple):
    """The name of a file, its digest and its size."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True, kw_only=True)
class FilesGrant(RunGrant):
    """See the module. Files that a model gives to a script need an answer."""

    kind: ClassVar[str] = "files"

    files: tuple[GivenFile, ...] = ()
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes], compare=False, repr=False)

    @classmethod
    def plan(cls, run: WantedRun) -> Self:
        contents = {name: _stored(run, name, digest) for name, digest in run.uploads.items()}
        for name, content in run.files.items():
            contents[name] = _stored(run, name, content) if is_digest(content) else _bytes(name, content)
        total = sum(map(len, contents.values()))
        if total > limits.GIVEN_BYTES:
            message = f"the files of the run have {total:,} bytes, and may have {limits.GIVEN_BYTES:,}"
            raise ResourceError(message, reason="too-large")
        files = (GivenFile(storable_text(name), digest_of(data), len(data)) for name, data in contents.items())
        return cls(files=tuple(files), contents=contents, asked=bool(run.files) and run.by == "model")

    @classmethod
    def again(cls, data: Mapping[str, Any]) -> Self:
        return cls(files=tuple(GivenFile(**file) for file in data.get("files", ())), asked=data.get("asked", False))

    def data(self) -> JsonObject:
        return super().data() | ({"files": [file._asdict() for file in self.files]} if self.files else {})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files)

    def facts(self) -> Iterator[tuple[str, str]]:
        if self.files:
            yield "Given", f"It is given a copy of {', '.join(self.names)}."

    def covers(self) -> Mapping[str, bool]:
        return {"files": True} if self.asked else {}

    def shown(self) -> JsonObject:
        return {"files": self.names}

    @property
    def artifacts(self) -> Mapping[str, bytes]:
        return {digest_of(data): data for data in self.contents.values()}

    def into(self, job: Job, run: WantedRun) -> Job:
        return replace(job, files=self.contents)


def digests_of(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """The digests of given files by name, as the record has them. Raises `BadArguments`."""
    if len(files) > limits.GIVEN_FILES:
        raise BadArguments(f"files must have at most {limits.GIVEN_FILES} entries", field="files")
    for name in files:
        check_name(name)
    return {
        name: content if is_digest(content) else digest_of(_bytes(name, content)) for name, content in files.items()
    }


def check_name(name: str) -> None:
    """Raise `BadArguments` unless a text can be the name of a file in every folder, and of nothing else."""
    size = len(name.encode("utf-8", "surrogatepass"))
    odd = not name.isprintable() or "/" in name or "\\" in name or name in ("", ".", "..")
    if odd or size > limits.GIVEN_NAME_BYTES:
        message = f"files: {name[:80]!r} is not the name of a file; leave out folders and control characters"
        raise BadArguments(message, field="files")


def _stored(run: WantedRun, name: str, digest: str) -> bytes:
    try:
        return run.artifact(digest)
    except StoreError as error:
        raise ResourceError(f"the file {name} is no longer kept", path=name, reason="not-found") from error


def _bytes(name: str, content: object) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(str(content), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadArguments(f"files: the content of {name} is not base64", field="files") from error
