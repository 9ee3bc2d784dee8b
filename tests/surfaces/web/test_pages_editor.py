"""Skills are written, checked, saved, taken back, imported and removed in the browser, and nothing is lost."""

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from metier.surfaces.web.guard import Gate
from metier.surfaces.web.overview import key_of as overview_key
from patience import PATIENCE
from surfaces.web.browser import EXAMPLES, SKILLS, TOKEN, Site, Watch, new_page, serving
from surfaces.web.test_pages_axe import findings
from worlds import World

pytest_plugins = ["surfaces.web.page_fixtures"]

HEADERS = {"authorization": f"Bearer {TOKEN}"}


def get(site: Site, path: str, **query: str) -> str:
    return httpx.get(site.url + path, params=query, headers=HEADERS, timeout=PATIENCE, trust_env=False).text


def post(site: Site, path: str, data: dict[str, str] | None = None, **given: object) -> httpx.Response:
    return httpx.post(site.url + path, data=data, headers=HEADERS, timeout=PATIENCE, trust_env=False, **given)  # type: ignore[arg-type]


def key_in_address(page: Page) -> str:
    return page.url.split("/edit/")[1].split("?")[0].split("/")[0]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_skill_is_written_checked_previewed_saved_and_taken_back(
    world: World, chromium: Browser, watch: Watch, axe: str, width: int
) -> None:
    found: dict[str, list[str]] = {}
    with serving(world) as site, new_page(chromium, watch, width) as page:
        page.goto(f"{site.url}/skills")
        expect(page.locator(".empty")).to_contain_text("No skills yet")
        found["empty"] = findings(page, axe)
        page.get_by_role("link", name="Write or import a skill").click()
        page.get_by_label("Name", exact=True).fill("Not A Name")
        page.get_by_role("button", name="Create from the template").click()
        expect(page.get_by_role("alert")).to_contain_text("try not-a-name")
        found["new"] = findings(page, axe)
        page.get_by_label("Name", exact=True).fill("minutes")
        page.get_by_label("What it does").fill("Writes the minutes of a meeting. Use when asked for minutes.")
        page.get_by_role("button", name="Create from the template").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Edit minutes")
        file = world.project / SKILLS / "minutes/SKILL.md"
        first = file.read_text()
        text = page.locator("[data-text]")
        expect(text).to_have_value(first)
        # Diagnostics come as one types, beside the line, and a click goes there.
        text.fill(first.replace("name: minutes", "name: Other Name").replace("references/guide.md", "references/no.md"))
        problems = page.locator("[data-problems] li")
        expect(problems.filter(has_text="name-invalid")).to_contain_text("line 3")
        expect(problems.filter(has_text="file-missing")).to_be_visible()
        expect(page.locator("[data-gutter] .error")).to_have_text("3")
        if width == 1280:
            expect(page.locator("[data-beside] .error")).to_be_visible()
        problems.filter(has_text="name-invalid").get_by_role("button").click()
        assert text.evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)") == "name: Other Name"
        page.select_option("[data-host]", "codelia")
        expect(page.locator("[data-shown]")).to_contain_text("codelia does not use it")
        text.fill(first.replace("# Minutes", "# Minutes\n\nBegin with a date — always."))
        expect(page.locator("[data-shown]")).to_contain_text("Begin with a date — always.")
        expect(page.locator("#listed")).to_contain_text("Writes the minutes of a meeting")
        found["editor"] = findings(page, axe)
        text.press("Control+s")
        expect(page.locator("[data-state]")).to_have_text("Saved.")
        assert "Begin with a date — always.\n" in file.read_text()
        assert "\r" not in file.read_text()
        assert "Begin with a date" in site.app.session().load("minutes").text
        # Somebody else saves in between: their text stays, and so does mine.
        text.fill(first + "\nMine.\n")
        file.write_text(first + "\nTheirs.\n")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("alert")).to_contain_text("was changed by somebody else")
        expect(page.locator(".diff .removed")).to_contain_text("Theirs.")
        expect(text).to_have_value(first + "\nMine.\n")
        assert file.read_text().endswith("Theirs.\n")
        found["conflict"] = findings(page, axe)
        page.get_by_role("button", name="Save").click()  # now that it was shown, it is replaced on purpose
        expect(page.locator("[data-state]")).to_have_text("Saved.")
        assert file.read_text().endswith("Mine.\n")
        # The history has every version, also theirs, and restoring one is an edit.
        page.get_by_role("link", name="History").click()
        expect(page.locator(".version")).to_have_count(4)
        expect(page.locator(".version").first.locator(".diff")).to_contain_text("+Mine.")
        found["history"] = findings(page, axe)
        page.locator(".version").nth(3).get_by_role("button", name="Restore").click()
        expect(page.locator(".version").first).to_contain_text("current")
        assert file.read_text() == first
        # A new file beside it, and its name cannot leave the folder.
        page.goto(f"{site.url}/edit/{key_in_address(page)}")
        page.get_by_label("Path of a new file").fill("references/more.md")
        page.get_by_role("button", name="Add").click()
        text.fill("# More\n")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("[data-state]")).to_have_text("Saved.")
        assert (file.parent / "references/more.md").read_text() == "# More\n"
        # Removed, and put back as it was.
        page.goto(f"{site.url}/skills/minutes")
        page.get_by_role("button", name="Remove").click()
        expect(page.locator("main [role=status]").first).to_contain_text("minutes was removed.")
        assert not file.exists()
        assert "minutes" not in site.app.skills()
        found["removed"] = findings(page, axe)
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".row")).to_contain_text("minutes")
        assert (file.parent / "references/more.md").read_text() == "# More\n"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert {name: notes for name, notes in found.items() if notes} == {}
    watch.heard = [one for one in watch.heard if "422" not in one and "409" not in one]
    assert watch.heard == []


def test_what_cannot_be_edited_says_why_and_paths_never_leave_the_folder(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    plain = world.skill(f"{SKILLS}/plain", files={"references/a.md": "a\n", "assets/b.bin": b"\xff\x00"}).parent
    os.symlink(outside, plain / "leak")
    os.symlink(outside / "secret.txt", plain / "references/secret.md")
    world.skill(f"{SKILLS}/crlf", text="---\r\nname: crlf\r\ndescription: d\r\n---\r\nx\r\n")
    broken = world.skill(f"{SKILLS}/broken", text="---\nname: broken\ndescription: d\nmetadata: &a {x: *a}\n---\n# x\n")
    far = world.skill("~/elsewhere/linked").parent
    (world.project / SKILLS / "linked").symlink_to(far)
    with serving(world) as site:
        world.trust()
        site.app.refresh()
        keys = {one.name: overview_key(one.path) for one in site.app.skills()}
        edit = f"/edit/{keys['plain']}"

        def save(path: str, text: str, digest: str = "", where: str = edit) -> httpx.Response:
            return post(site, f"{where}/save", {"path": path, "text": text, "digest": digest})

        for path in ("../other/x.md", "/etc/passwd", "leak/new.md", "leak/secret.txt", "references/secret.md", "a\\b"):
            answer = save(path, "gone")
            assert answer.status_code in (409, 422), (path, answer.status_code)
            read = get(site, edit, file=path)
            assert "secret" not in read.replace("secret.txt", "").replace("secret.md", "").replace("a secret", "")
        assert (outside / "secret.txt").read_text() == "secret"
        assert sorted(os.listdir(outside)) == ["secret.txt"]
        assert os.path.islink(plain / "references/secret.md")
        assert not list(plain.rglob(".metier-*")), "nothing temporary is left behind"
        # The wrong digest changes nothing, for a file that is there and for one that is gone.
        assert save("references/a.md", "b", "sha256:" + "0" * 64).status_code == 409
        assert save("references/a.md", "b").status_code == 409
        assert save("references/gone.md", "b", "sha256:" + "0" * 64).status_code == 409
        assert (plain / "references/a.md").read_text() == "a\n"
        assert not (plain / "references/gone.md").exists()
        assert "is not text" in save("assets/b.bin", "b", "x").text
        # Line ends stay as they are.
        crlf = f"/edit/{keys['crlf']}"
        page = get(site, crlf)
        digest = page.split('name="digest" value="')[1].split('"')[0]
        changed = "---\r\nname: crlf\r\ndescription: d\r\n---\r\ny\r\n"
        assert save("SKILL.md", changed, digest, crlf).status_code == 303
        assert (world.project / SKILLS / "crlf/SKILL.md").read_bytes() == changed.encode()
        # A skill that is not valid can be repaired here; a linked one is edited where it is.
        page = get(site, f"/edit/{overview_key(str(broken))}")
        assert "yaml-anchor" in page
        linked = f"/edit/{keys['linked']}"
        page = get(site, linked)
        assert "A link leads to it" in page
        assert "readonly" in page
        assert save("SKILL.md", "x", "y", linked).status_code == 200
        assert (far / "SKILL.md").read_text() != "x"
        # Other sites and strangers change nothing.
        body = {"path": "references/a.md", "text": "b", "digest": ""}
        other = {**HEADERS, "origin": "https://attacker.invalid"}
        assert (
            httpx.post(
                f"{site.url}{edit}/save", data=body, headers=other, timeout=PATIENCE, trust_env=False
            ).status_code
            == 403
        )
        assert httpx.post(f"{site.url}{edit}/save", data=body, timeout=PATIENCE, trust_env=False).status_code == 401
        assert httpx.post(f"{site.url}{edit}/remove", timeout=PATIENCE, trust_env=False).status_code == 401


def test_policy_decides_about_edits(world: World) -> None:
    skill = world.skill(f"{SKILLS}/plain")
    before = skill.read_bytes()
    edit = f"/edit/{overview_key(str(skill))}"
    body = {"path": "SKILL.md", "text": "x", "digest": ""}
    rule = {"deny": [{"tool": "skill_edit", "skill_name": "plain"}]}
    for permissions in ({"profile": "read-only"}, rule):
        with serving(world, settings={"permissions": permissions}) as site:
            assert post(site, f"{edit}/save", body).status_code == 403
            assert post(site, f"{edit}/remove").status_code == 403
            if permissions is not rule:
                assert post(site, "/edit/new", {"name": "other", "place": "project"}).status_code == 403
    assert skill.read_bytes() == before
    assert os.listdir(world.project / SKILLS) == ["plain"]


def archive(name: str, body: str = "# Packed\n") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr(f"{name}/SKILL.md", f"---\nname: {name}\ndescription: Packs things. Use when asked.\n---\n{body}")
        made.writestr(f"{name}/scripts/go.py", "#!/usr/bin/env python3\nprint(1)\n")
    return packed.getvalue()


def test_archives_and_folders_are_imported_after_they_were_shown(world: World, page: Page, watch: Watch) -> None:
    folder = world.home / "made here"
    world.skill(f"~/{folder.name}", name="from-folder", description="From a folder. Use when asked.")
    (folder / "scripts").mkdir()
    (folder / "scripts/go.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("[core]")
    with serving(world) as site:
        page.goto(f"{site.url}/edit/new")
        page.locator("[data-file]").set_input_files(
            {"name": "packed.zip", "mimeType": "application/zip", "buffer": archive("packed")}
        )
        offer = page.locator("[data-offer]")
        expect(offer).to_contain_text("Packs things.")
        expect(offer).to_contain_text("upload:packed.zip")
        assert "packed" not in site.app.skills(), "it was only shown"
        offer.get_by_role("button", name="Install").click()
        expect(offer).to_contain_text("packed is installed.")
        assert "packed" in site.app.skills()
        page.locator("[data-folder]").set_input_files(folder)
        expect(offer).to_contain_text("From a folder.")
        offer.get_by_role("button", name="Install").click()
        expect(offer).to_contain_text("from-folder is installed.")
        script = Path(site.app.skills()["from-folder"].dir) / "scripts/go.sh"
        assert os.access(script, os.X_OK)
        assert not (script.parents[1] / ".git").exists()
        # An installed skill says where it came from, and is not edited here; removing it takes it out of the lock file.
        page.goto(f"{site.url}/skills/packed")
        page.get_by_role("link", name="Not editable").click()
        expect(page.locator(".note")).to_contain_text("It was installed from upload:packed.zip")
        page.goto(f"{site.url}/skills/packed")
        locked = Path(site.app.skills()["packed"].dir).parent.with_name("skills.lock.json")
        assert "packed" in json.loads(locked.read_text())["skills"]
        page.get_by_role("button", name="Remove").click()
        assert "packed" not in json.loads(locked.read_text())["skills"]
        page.get_by_role("button", name="Undo").click()
        expect(page.locator(".row")).to_contain_text("packed")
        assert "packed" in json.loads(locked.read_text())["skills"]
        # What is not a skill, and what the policy does not allow, is refused with the reason, and nothing is connected.
        page.goto(f"{site.url}/edit/new")
        page.locator("[data-file]").set_input_files({"name": "x.zip", "mimeType": "application/zip", "buffer": b"nope"})
        expect(offer).to_contain_text("not a zip or tar.gz archive")
        page.get_by_label("Or from an address").fill("https://attacker.invalid/skill.zip")
        page.get_by_role("button", name="Check").click()
        expect(offer).to_contain_text("has no rule for it")
        evil = io.BytesIO()
        with tarfile.open(fileobj=evil, mode="w:gz") as made:
            info = tarfile.TarInfo("../../escape")
            made.addfile(info, io.BytesIO())
        assert post(site, "/edit/offer?source=e.tgz", content=evil.getvalue()).status_code == 422
        # The archive that is installed is the one that was shown.
        shown = post(site, "/edit/offer?source=a.zip", content=archive("swapped"))
        digest = shown.text.split('data-install="')[1].split('"')[0]
        other = archive("swapped", "# Other\n")
        refused = post(site, f"/edit/offer?source=a.zip&digest={digest}", content=other)
        assert refused.status_code == 422
        assert not (world.home / ".agents/skills/swapped").exists()
    watch.heard.clear()


def test_rules_are_shown_explained_and_revoked(world: World, page: Page, axe: str) -> None:
    rules = {"permissions": {"deny": [{"tool": "skill_run", "skill_name": "no-run"}]}}
    with serving(world, Gate(token=TOKEN), roots=[str(EXAMPLES)], settings=rules) as site:
        page.goto(f"{site.url}/rules")
        answers = Path(site.app.config.answers_file)
        answers.parent.mkdir(parents=True, exist_ok=True)
        answers.write_text('[[allow]]\ntool = "skill_load"\nskill_name = "csv-profile"\n')
        page.reload()
        rows = page.locator("[data-rules] .row")
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("deny")
        expect(rows.first.get_by_role("button")).to_have_count(0)
        page.get_by_label("Skill").fill("no-run")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_contain_text("Denied. deny rule: tool = 'skill_run'")
        page.select_option("#tool", "skill_load")
        page.get_by_label("Skill").fill("csv-profile")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_contain_text("Allowed. allow rule: tool = 'skill_load'")
        assert findings(page, axe) == []
        rows.nth(1).get_by_role("button", name="Revoke").click()
        expect(page.locator(".note.good")).to_contain_text("taken back")
        expect(rows).to_have_count(1)
        assert "csv-profile" not in answers.read_text()
