"""google-adk: the listing that reads frontmatter only, the cheaper of its two loaders."""

from google.adk.skills import list_skills_in_dir


def load(folder: str) -> int:
    return len(list_skills_in_dir(folder))
