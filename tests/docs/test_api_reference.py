"""The API reference names only what exists, and it names every public name."""

import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import metier

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)


def documented() -> dict[str, object]:
    """Every identifier of the pages with what it names; a module brings the public names that it defines."""
    found: dict[str, object] = {}
    for page in REFERENCE.glob("*.md"):
        for identifier in DIRECTIVE.findall(page.read_text()):
            value: object = pkgutil.resolve_name(identifier)
            found[identifier] = value
            if isinstance(value, ModuleType):
                found |= {f"{identifier}.{name}": one for name, one in defined_in(value).items()}
    return found


def defined_in(module: ModuleType) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }


def test_nothing_is_documented_twice() -> None:
    names = [identifier for page in REFERENCE.glob("*.md") for identifier in DIRECTIVE.findall(page.read_text())]
    by_value: dict[int, list[str]] = {}
    for name in names:
        by_value.setdefault(id(pkgutil.resolve_name(name)), []).append(name)
    assert len(names) > 30
    assert [same for same in by_value.values() if len(same) > 1] == []


def test_every_public_name_is_in_the_reference() -> None:
    known = documented()
    missing = [
        name
        for name in metier.__all__
        if f"metier.{name}" not in known and not any(value is getattr(metier, name) for value in known.values())
    ]
    assert missing == []


def test_the_overview_links_every_page() -> None:
    overview = (REFERENCE / "index.md").read_text()
    for page in REFERENCE.glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in overview, page.name


def test_every_documented_class_says_what_it_is() -> None:
    for identifier, value in documented().items():
        if inspect.isclass(value) or inspect.isfunction(value):
            text = value.__doc__ or ""
            assert text, identifier
            assert not text.startswith(f"{value.__name__}("), f"{identifier} has only what dataclass wrote"
