"""Metier: the runtime for Agent Skills. `Skills.discover()` is the way in.

Names are loaded when they are first used: a program that only lists skills does not pay for sessions and stores, and
the help of the command line pays for none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metier.app import App
    from metier.errors import (
        AmbiguousSkill,
        BadArguments,
        BinaryResource,
        ConfigError,
        InstallError,
        InvalidSkill,
        InvocationError,
        MetierError,
        MissingExtra,
        PathEscape,
        PolicyDenied,
        ResourceError,
        ResourceNotFound,
        SandboxUnavailable,
        ScriptRefused,
        SkillNotFound,
        StateConflict,
        StoreError,
        StreamConflict,
    )
    from metier.files.source import Files
    from metier.hosts.formats import HostFormats
    from metier.policy.decide import Policy, Rule
    from metier.policy.question import Question
    from metier.record.store import Store, open_store
    from metier.record.usage import SkillUsage, Usage, usage
    from metier.running.sandbox import Runner
    from metier.running.sandbox.container import ContainerRunner
    from metier.search import CatalogRanker, Ranker, Reranker
    from metier.session.session import Session
    from metier.skills import Skills
    from metier.values.results import (
        AmbiguousMention,
        Artifact,
        ChangedFile,
        Compaction,
        Fit,
        Hit,
        IndexProgress,
        Invocation,
        LikeIt,
        Loaded,
        Prompt,
        Request,
        Resource,
        RunResult,
        SearchResult,
        Tool,
        ToolResult,
        Unloaded,
    )
    from metier.values.skill import Changes, Counts, Diagnostic, Root, Shadowed, Skill, Skipped

__version__ = "0.1.0"

_HOMES = {
    "metier.app": "App",
    "metier.search": "CatalogRanker Ranker Reranker",
    "metier.errors": (
        "AmbiguousSkill BadArguments BinaryResource ConfigError InstallError InvalidSkill InvocationError "
        "MetierError MissingExtra PathEscape PolicyDenied ResourceError ResourceNotFound SandboxUnavailable "
        "ScriptRefused SkillNotFound StateConflict StoreError StreamConflict"
    ),
    "metier.files.source": "Files",
    "metier.hosts.formats": "HostFormats",
    "metier.values.skill": "Changes Counts Diagnostic Root Shadowed Skill Skipped",
    "metier.record.store": "Store open_store",
    "metier.record.usage": "SkillUsage Usage usage",
    "metier.values.results": (
        "AmbiguousMention Artifact ChangedFile Compaction Fit Hit IndexProgress LikeIt SearchResult Invocation "
        "Loaded Prompt Request Resource RunResult Tool ToolResult Unloaded"
    ),
    "metier.running.sandbox": "Runner",
    "metier.running.sandbox.container": "ContainerRunner",
    "metier.policy.decide": "Policy Rule",
    "metier.policy.question": "Question",
    "metier.session.session": "Session",
    "metier.skills": "Skills",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AmbiguousMention",
    "AmbiguousSkill",
    "App",
    "Artifact",
    "BadArguments",
    "BinaryResource",
    "CatalogRanker",
    "ChangedFile",
    "Changes",
    "Compaction",
    "ConfigError",
    "ContainerRunner",
    "Counts",
    "Diagnostic",
    "Files",
    "Fit",
    "Hit",
    "HostFormats",
    "IndexProgress",
    "InstallError",
    "InvalidSkill",
    "Invocation",
    "InvocationError",
    "LikeIt",
    "Loaded",
    "MetierError",
    "MissingExtra",
    "PathEscape",
    "Policy",
    "PolicyDenied",
    "Prompt",
    "Question",
    "Ranker",
    "Request",
    "Reranker",
    "Resource",
    "ResourceError",
    "ResourceNotFound",
    "Root",
    "Rule",
    "RunResult",
    "Runner",
    "SandboxUnavailable",
    "ScriptRefused",
    "SearchResult",
    "Session",
    "Shadowed",
    "Skill",
    "SkillNotFound",
    "SkillUsage",
    "Skills",
    "Skipped",
    "StateConflict",
    "Store",
    "StoreError",
    "StreamConflict",
    "Tool",
    "ToolResult",
    "Unloaded",
    "Usage",
    "__version__",
    "open_store",
    "usage",
]


if not TYPE_CHECKING:  # a type checker has the imports above, and so finds a misspelled name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'metier' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__]
