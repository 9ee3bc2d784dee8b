"""The methods of a session for asyncio: each does what its twin without the `a` does, in a thread."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from metier import limits
from metier.hosts.formats import Answer
from metier.results import Compaction, Invocation, Loaded, Prompt, Resource, RunResult, SearchResult, ToolResult
from metier.session import operations, queries
from metier.session.operation import Operation
from metier.session.visibility import By

R = TypeVar("R", bound=Answer)


class AsyncTwins(ABC):
    """See the module. Everything is an operation that the session performs."""

    @abstractmethod
    def perform(self, operation: Operation[R], *, wire: bool = False, offers: bool = True) -> R: ...

    async def aperform(self, operation: Operation[R], *, wire: bool = False) -> R:
        """`perform` for asyncio."""
        return await asyncio.to_thread(self.perform, operation, wire=wire)

    async def aload(
        self,
        name: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        arguments: str = "",
        parent: str | None = None,
        by: By = "user",
    ) -> Loaded:
        """`load` for asyncio."""
        where = os.fspath(path) if path is not None else None
        return await self.aperform(operations.Load(name=name, path=where, arguments=arguments, parent=parent, by=by))

    async def aread(self, name: str, path: str | None = None, *, by: By = "user", raw: bool = False) -> Resource:
        """`read` for asyncio."""
        return await self.aperform(operations.Read(name=name, path=path, by=by, raw=raw))

    async def asearch(
        self,
        query: str,
        *,
        limit: int | None = None,
        scope: str | None = None,
        context: str | None = None,
        by: By = "user",
    ) -> SearchResult:
        """`search` for asyncio."""
        return await self.aperform(operations.Search(query=query, limit=limit, scope=scope, context=context, by=by))

    async def arun(
        self,
        name: str,
        script: str,
        arguments: Sequence[str] = (),
        *,
        stdin: str | None = None,
        files: Mapping[str, bytes] | None = None,
        write: bool = False,
        by: By = "user",
    ) -> RunResult:
        """`run` for asyncio."""
        operation = operations.Run(
            name=name, script=script, arguments=tuple(arguments), stdin=stdin, files=files, write=write, by=by
        )
        return await self.aperform(operation)

    async def aoutput(self, ref: str, *, start: int = 1, end: int | None = None, grep: str | None = None) -> str:
        """`output` for asyncio."""
        return (await self.aperform(operations.Output(ref=ref, start=start, end=end, grep=grep))).text

    async def acompact(self, budget: int = limits.COMPACTION_CHARACTERS) -> Compaction:
        """`compact` for asyncio."""
        return await self.aperform(operations.Compact(budget=budget))

    async def ainvoke(self, message: str) -> Invocation:
        """`invoke` for asyncio."""
        return await self.aperform(operations.Invoke(message=message))

    async def aend_turn(self) -> None:
        """`end_turn` for asyncio."""
        await self.aperform(operations.EndTurn())

    async def aprompt(
        self, message: str | None = None, budget: int | None = None, files: Sequence[str] | None = None
    ) -> Prompt:
        """`prompt` for asyncio."""
        return await self.aperform(queries.CatalogPrompt(message=message, budget=budget, files=files))

    async def asystem_prompt(
        self,
        base: str = "",
        *,
        message: str | None = None,
        budget: int | None = None,
        files: Sequence[str] | None = None,
        wire: bool = False,
    ) -> str:
        """`system_prompt` for asyncio."""
        shown = queries.SystemPrompt(base=base, message=message, budget=budget, files=files)
        return (await self.aperform(shown, wire=wire)).text

    async def acall(self, tool: str, arguments: Mapping[str, object] | None = None) -> ToolResult:
        """`call` for asyncio."""
        return await self.aperform(operations.Call(tool=tool, arguments=arguments))
