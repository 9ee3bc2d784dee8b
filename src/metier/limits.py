"""Every cap of the runtime, one named constant each, with the reason for its size.

A limit that is hit is always reported by whoever hits it; none of them cuts in silence.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRONTMATTER_BYTES: Final = 64 * KIB
"""The largest frontmatter of 7,000 public skills has 9.6 KB; more than this is an attack or an accident."""

FRONTMATTER_DEPTH: Final = 32
"""Nesting of the YAML. Real skills use at most four levels, and a parser's stack must never depend on a file."""

HEAD_BYTES: Final = 4 * KIB
"""The first read of a SKILL.md: one page holds 99.9 % of all frontmatters."""

PREAMBLE_LINES: Final = 20
"""How far down a misplaced opening fence is looked for."""

WALK_DEPTH: Final = 24
"""Folders below a root. Recursive hosts set no bound; deeper trees are loops or attacks."""

WALK_DIRECTORIES: Final = 250_000
"""Folders visited in one scan: some ten seconds on a slow disk."""

LINKED_DIRECTORIES: Final = 5_000
"""Folders visited behind one symbolic link, so that a link into a huge tree costs a moment and not minutes."""

REGISTRY_BYTES: Final = 4 * MIB
"""A plugin registry or a configuration file larger than this is not read."""

SKILL_FILE_BYTES: Final = 50 * MIB
"""Hard cap on a SKILL.md that is loaded, whatever is configured (the largest value RemcoChat allows)."""

WHOLE_FILE_BYTES: Final = 16 * MIB
"""Hard cap on a file that is handed on as it is: what every MCP host takes of a skill."""

RESOURCE_BYTES: Final = 200 * MIB
"""Hard cap on a resource that is read, whatever is configured (the largest value RemcoChat allows)."""

NAME_LENGTH: Final = 64
DESCRIPTION_LENGTH: Final = 1024
COMPATIBILITY_LENGTH: Final = 500
"""The lengths of the Agent Skills standard, in code points."""

RACY_WINDOW_NS: Final = 20_000_000
"""A file changed this shortly before it was read may change again without a new timestamp: two slow clock ticks."""

COARSE_WINDOW_NS: Final = 2_000_000_000
"""The same on file systems that keep whole seconds (FAT keeps two)."""

LISTED_FILES: Final = 200
LISTED_BYTES: Final = 512 * KIB
"""Files of a skill that are listed on activation, and their total size (Codelia's figures)."""

INDEXED_BYTES: Final = 64 * KIB
"""Of a SKILL.md that is read for the search index; what comes later describes a skill no better."""

SCRIPT_BYTES: Final = 4 * MIB
"""A script that is run; what a person is asked to approve must be something a person could read."""

STREAMED_BYTES: Final = 64 * KIB
"""Of a script's output that is streamed as frames; all of it is kept as an artifact."""

CALL_DEPTH: Final = 8
"""Skills that call skills: how deep."""

CALL_BYTES: Final = MIB
"""The arguments of one tool call, as JSON: a model's whole output is smaller."""

COMPACTION_CHARACTERS: Final = 40_000
"""What is put back into a compacted context unless the host says otherwise: some ten thousand tokens."""

CONTEXT_FILE_BYTES: Final = MIB
"""Of one AGENTS.md."""

ENUMERATED_NAMES: Final = 64
"""Names that a tool's schema lists; beyond, the schema would cost more than a wrong guess."""

INSTALL_FILES: Final = 2_000
INSTALL_BYTES: Final = 64 * MIB
"""A skill that is installed: files and folders, and their bytes. MCP hosts are asked to take 512 and 16 MiB."""

ARTIFACT_BYTES: Final = 32 * MIB
"""The archive it comes in."""

INSTALL_RATIO: Final = 100
"""How much larger than its archive a skill may be, beyond a first MiB: text packs tenfold, a bomb a thousandfold."""

INSTALL_DIRECTORY_BYTES: Final = MIB
"""The table of contents of a zip, which is parsed before its entries can be counted."""

INSTALL_NAME_BYTES: Final = 1024
"""The path of a file in a skill."""

INDEX_BYTES: Final = 4 * MIB
"""A site's index of skills."""

INSTALL_SECONDS: Final = 60
INSTALL_REDIRECTS: Final = 3
"""All connections of one install together, and how often each may be sent elsewhere."""
