"""The limits of the runtime, one constant each, with the reason for its size.

The code that reaches a limit always reports it. Nothing is cut silently.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

FRONTMATTER_BYTES: Final = 64 * KIB
"""The size of a frontmatter. The largest of 7,000 public skills has 9.6 KB, so more is an attack or an accident."""

FRONTMATTER_DEPTH: Final = 32
"""The nesting of the YAML. Real skills use at most four levels, and a file must not exhaust the parser's stack."""

HEAD_BYTES: Final = 4 * KIB
"""The first read of a SKILL.md. One page holds 99.9 % of all frontmatters."""

PREAMBLE_LINES: Final = 20
"""The number of lines that may come before a misplaced opening fence."""

WALK_DEPTH: Final = 24
"""Levels of folders below a root. Recursive hosts have no limit; deeper trees are loops or attacks."""

WALK_DIRECTORIES: Final = 250_000
"""Folders visited in one scan, which takes about ten seconds on a slow disk."""

LINKED_DIRECTORIES: Final = 5_000
"""Folders visited behind one symbolic link, so that a link into a huge tree costs seconds, not minutes."""

ROOT_SKILLS: Final = 50_000
"""Skills in one root, which take some seconds to read. The largest public collection has 7,000."""

REGISTRY_BYTES: Final = 4 * MIB
"""The size of a plugin registry or a configuration file."""

SKILL_FILE_BYTES: Final = 50 * MIB
"""The size of a SKILL.md that is loaded, whatever is configured. It is the largest value that RemcoChat allows."""

LOADED_BYTES: Final = 200_000
"""How much of a SKILL.md a model gets where neither the host nor the user says anything: about fifty thousand tokens.
It is what RemcoChat gives by default. The largest of 7,000 public skills is smaller."""

EXPANDED_CHARACTERS: Final = 4 * MIB
"""How much arguments may add to the body of a skill that repeats their placeholder."""

WHOLE_FILE_BYTES: Final = 16 * MIB
"""The size of a file that is passed on as bytes. Every MCP host accepts that much of a skill."""

RESOURCE_BYTES: Final = 200 * MIB
"""The size of a resource that is read, whatever is configured. It is the largest value that RemcoChat allows."""

NAME_LENGTH: Final = 64
DESCRIPTION_LENGTH: Final = 1024
COMPATIBILITY_LENGTH: Final = 500
"""The lengths in the Agent Skills standard, in code points."""

BODY_LINES: Final = 500
BODY_TOKENS: Final = 5_000
"""The size of a body that the standard recommends at most. One of eleven public skills has more."""

BYTES_PER_TOKEN: Final = 4
"""A rough estimate for text of any kind, since each model counts differently."""

REVIEWED_BYTES: Final = MIB
REVIEWED_FILES: Final = 2_000
"""The size and the number of the files of a skill that a review reads."""

RACY_WINDOW_NS: Final = 20_000_000
"""A file that changed this shortly before it was read may change again with the same time: two slow clock ticks."""

COARSE_WINDOW_NS: Final = 2_000_000_000
"""The same on file systems that store whole seconds. FAT stores every other second."""

LISTING_CHARACTERS: Final = 50_000
"""How much of a prompt lists skills where neither the host nor the caller says: about twelve thousand tokens, or what
Zed allows. 150 skills have room with their descriptions, 400 with short ones."""

LISTED_FILES: Final = 200
LISTED_BYTES: Final = 512 * KIB
"""The number and total size of a skill's files that are listed when it is loaded, as in Codelia."""

INDEXED_BYTES: Final = 64 * KIB
"""How much of a SKILL.md is read for the search index. Later text does not describe a skill any better."""

INDEXED_FILES: Final = 64
INDEXED_CHARACTERS: Final = 120_000
INDEXED_ENTRIES: Final = 2_000
INDEXED_DEPTH: Final = 4
"""How many reference files of a skill are in the search index, how much text they have together, and how many entries
and levels of its folder are looked at to find them."""

INDEXED_AT_ONCE: Final = 500
"""A search waits for the index of so many skills. That of a larger catalog is built in the background."""

CONTEXT_CHARACTERS: Final = 4_000
"""How much of the context of a search counts."""

SCRIPT_BYTES: Final = 4 * MIB
"""The size of a script that is run. A person who approves it must be able to read it."""

TREE_BYTES: Final = 256 * MIB
TREE_FILES: Final = 20_000
"""The size and the number of files of a skill's folder that is copied to run a script in it. The largest of 272 public
skills with scripts has 0.4 MB and 98 files."""

TREE_LINKS: Final = 40
"""The number of links that Linux follows in one path."""

GIVEN_FILES: Final = 64
GIVEN_BYTES: Final = 32 * MIB
GIVEN_NAME_BYTES: Final = 200
"""The number and the total size of the files that a run is given, and the length of a name. They are kept in the
record, and are in memory while the script runs."""

STREAMED_BYTES: Final = 64 * KIB
"""How much of a script's output is streamed as frames. All of it is kept as an artifact."""

CALL_DEPTH: Final = 8
"""How deep skills may call skills."""

CALL_BYTES: Final = MIB
"""The size of one tool call's arguments as JSON. A model's whole output is smaller."""

OPERATION_BYTES: Final = 4 * MIB - 64 * KIB
"""The size of an operation as JSON, such as a script with what it reads from standard input. It is one event of the
record, which has at most 4 MiB."""

MESSAGE_BYTES: Final = 4 * MIB
"""The size of one message over JSON-RPC or MCP, which is one line."""

COMPACTION_CHARACTERS: Final = 40_000
"""The text that is put back into a compacted context by default: about ten thousand tokens."""

CONTEXT_FILE_BYTES: Final = MIB
"""The size of one AGENTS.md."""

ENUMERATED_NAMES: Final = 64
"""The number of names that a tool's schema lists. With more, the schema would cost more than a wrong guess."""

INSTALL_FILES: Final = 2_000
INSTALL_BYTES: Final = 64 * MIB
"""The files and folders of a skill that is installed, and their total size. MCP hosts should accept 512 and 16 MiB."""

ARTIFACT_BYTES: Final = 32 * MIB
"""The size of the archive of a skill that is installed."""

INSTALL_RATIO: Final = 100
"""How many times larger than its archive a skill may be, beyond the first MiB. Text compresses tenfold, a bomb a
thousandfold."""

INSTALL_DIRECTORY_BYTES: Final = MIB
"""The size of a zip's table of contents, which is parsed before its entries can be counted."""

INSTALL_NAME_BYTES: Final = 1024
"""The length of a file's path in a skill that is installed."""

INDEX_BYTES: Final = 4 * MIB
"""The size of a site's index of skills."""

INSTALL_SECONDS: Final = 60
INSTALL_REDIRECTS: Final = 3
"""The time for all connections of one install, and the number of redirects that each may follow."""

ANSWER_SECONDS: Final = 300
"""How long a client's answer to a question is waited for. No answer is a no."""

OPEN_QUESTIONS: Final = 100
"""Questions to clients of one server that can be open at once. Each holds a thread."""
