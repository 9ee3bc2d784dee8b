"""Values of secrets in many shapes, a skill whose scripts give them away in many ways, and the search for them."""

import base64
import json
import random
import string
from pathlib import Path
from urllib.parse import quote, quote_plus

from metier.files.source import take_folder
from metier.policy.rules import Rule
from metier.record.store import open_store
from metier.running.secrets.storage import SecretStorage
from worlds import World

SKILL = "leaky"
LEAK = """\
import base64, json, os, sys, traceback
from urllib.parse import quote, quote_plus

names = sorted(name for name in os.environ if name.startswith("PLANTED_"))
print("given", len(names))
for number, name in enumerate(names):
    value = os.environ[name]
    data = value.encode()
    sys.stdout.write(f"{name} whole {value} ")
    for text in (data.hex(), json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value), ascii(data),
                 quote(value), quote(value, safe=""), quote_plus(value), json.dumps({"a": json.dumps(value)})):
        sys.stdout.write(f"<{text}>")
    for before in (b"", b"a", b"ab"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            sys.stdout.write(f"<{encode(before + data).decode()}>")
    print()
    print(base64.encodebytes(data).decode())
    if number % 10 == 0:
        for part in (value[: len(value) // 2], value[len(value) // 2 :]):
            sys.stdout.write(part)
            sys.stdout.flush()
        print()
    print("the last line is", value.splitlines()[-1])
    print(name, value[: len(value) // 2], value[len(value) // 2 :], sep="\\n   ")
    try:
        raise KeyError(value)
    except KeyError:
        traceback.print_exc()
with open("values.txt", "w", encoding="utf-8") as file:
    file.writelines(f"{name}={os.environ[name]}\\n" for name in names)
with open("values.bin", "wb") as file:
    file.write(b"\\0\\xff" + "|".join(os.environ[name] for name in names).encode())
if names:
    with open(os.environ[names[0]][:40], "w") as file:
        file.write("named")
print("arguments", sys.argv[1:], sys.stdin.read())
sys.exit(3)
"""
HOME_OF_SECRETS = ".config/metier"


def values(count: int = 200) -> dict[str, str]:
    """Different values of many shapes, the same in every run."""
    source = random.Random(20)
    letters = string.ascii_letters + string.digits
    shapes = (
        lambda: "ghp_" + "".join(source.choices(letters, k=36)),
        lambda: base64.b64encode(source.randbytes(source.randint(9, 40))).decode(),
        lambda: 'it\'s "quoted" \\' + "".join(source.choices(letters, k=12)),
        lambda: "\n".join("".join(source.choices(letters, k=24)) for _ in range(3)),
        lambda: "pässwörd-\u2603\U0001f511-" + "".join(source.choices("äöüßéñ東京" + letters, k=10)),
        lambda: "$(id) `x` && ;|*?{}[]~!# " + "".join(source.choices(letters, k=8)),
        lambda: "https://user:" + "".join(source.choices(letters, k=12)) + "@host/?a=b&c=%20",
        lambda: "".join(source.choices(string.hexdigits.lower(), k=64)),
        lambda: "".join(source.choices(letters, k=8)),
        lambda: "<a>&b</a>\t" + "".join(source.choices(letters + "+/=%", k=300)),
    )
    return {f"PLANTED_{number:03}": shapes[number % len(shapes)]() for number in range(count)}


def plant(world: World, given: dict[str, str]) -> Path:
    """A skill that prints its secrets, and the rules that give it all of them."""
    config = world.home / HOME_OF_SECRETS
    kept = SecretStorage(str(config))
    for name, value in given.items():
        kept.set(name, value, in_file=True)
    path = world.skill(f"~/.agents/skills/{SKILL}", files={"scripts/leak.py": LEAK})
    digest = take_folder(str(path.parent)).digest
    rules = [Rule(tool="run_secret", name=name, skill_name=SKILL, digest=digest) for name in given]
    listed = ", ".join(rule.as_toml() for rule in [*rules, Rule(tool="skill_run")])
    (config / "config.toml").write_text(f"[permissions]\nallow = [{listed}]\n")
    return path


def forms(value: str) -> set[bytes]:
    """How a value must not appear, apart from white space."""
    data = value.encode()
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    texts |= {quote(value), quote(value, safe=""), quote_plus(value), data.hex(), data.hex().upper()}
    for shift in range(3):
        one, other = (base64.b64encode(around * shift + data + around).decode() for around in (b"\0", b"\xff"))
        middle = "".join(a if a == b else " " for a, b in zip(one, other, strict=True)).strip()
        texts |= {middle, middle.replace("+", "-").replace("/", "_")}
    texts |= {line for line in value.splitlines() if len(line) >= 16}
    return {solid(text.encode()) for text in texts}


def solid(data: bytes) -> bytes:
    return data.translate(None, b" \t\r\n")


def found(given: dict[str, str], data: bytes) -> list[tuple[str, bytes]]:
    """The values in some bytes, with the form in which each was found."""
    shown = solid(data)
    return [(name, form[:60]) for name, value in given.items() for form in forms(value) if form in shown]


def all_bytes(store: str) -> bytes:
    """Everything that a store keeps: its files as they are, its events, its artifacts, and an export."""
    file = Path(store)
    parts = [one.read_bytes() for one in sorted(file.parent.iterdir())]
    assert any(one.name.endswith(".db") for one in file.parent.iterdir())
    with open_store(store) as opened:
        parts += [opened.get_artifact(digest) for digest in opened.artifacts()]
        parts += [line.encode() for line in opened.export_lines()]
        frames = [frame for one in opened.sessions() for frame in opened.read(one.id)]
        parts.append(json.dumps(frames, ensure_ascii=False).encode())
    return b"\n".join(parts)
