"""Usage is the same in every kind of store, also in one that is written against the interface alone."""

from metier import usage
from metier.record.store import Store
from metier.record.store.memory import MemoryStore
from worlds import World

SKILLS = ".agents/skills"


def test_every_store_gives_the_same_usage(store: Store, world: World) -> None:
    for name in ("used", "idle"):
        world.skill(f"{SKILLS}/{name}", files={"a.md": "A file.\n"})

    def drive(kept: Store) -> None:
        for number in range(3):
            session = world.discover().session(store=kept, id=f"talk-{number}", clock=lambda: 1_700_000_000_000)
            session.prompt()
            session.call("skill_search", {"query": "used"})
            session.call("skill_load", {"name": "used"})
            session.call("skill_read", {"name": "used", "path": "a.md"})

    known = MemoryStore()
    drive(known)
    drive(store)
    counted = usage(store)
    assert counted.as_dict() == usage(known).as_dict()
    assert (counted.sessions, counted.skills[0].loaded, counted.skills[0].offered) == (3, 3, 3)
    assert usage(store, session="talk-1").sessions == 1
