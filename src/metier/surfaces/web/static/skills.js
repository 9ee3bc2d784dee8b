// The catalog: search as you type, and switches that do not reload the page.
import { $, announce, later, part, put, say, showCurrentTab } from "./app.js";

const list = $("[data-list]");
const form = $("[data-live-search]");
let asked = null;

async function show(address, push = true) {
  asked?.abort();
  asked = new AbortController();
  list.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => list.classList.add("busy"), 150);
  try {
    const url = new URL(address, location.href);
    url.searchParams.set("part", "list");
    put(list, await part(url, { signal: asked.signal }));
    showCurrentTab();
    announce(list);
    if (push) history.replaceState(null, "", address);
    list.setAttribute("aria-busy", "false");
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message);
    list.setAttribute("aria-busy", "false");
  } finally {
    clearTimeout(slow);
    list.classList.remove("busy");
  }
}

function address() {
  const given = new URLSearchParams(new FormData(form));
  const kind = new URLSearchParams(location.search).get("kind");
  if (kind) given.set("kind", kind);
  for (const [key, value] of [...given]) if (!value) given.delete(key);
  return given.size ? `/skills?${given}` : "/skills";
}

form.addEventListener("input", later(80, () => show(address())));
form.addEventListener("submit", (event) => { event.preventDefault(); show(address()); });

list.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || !link.pathname.match(/^\/skills$/)) return;
  event.preventDefault();
  show(link.href).then(() => { if (link.closest(".pager")) scrollTo(0, 0); });
});

list.addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(event.target));
  const pressed = event.submitter;
  body.set("mode", pressed.value);
  const row = [...list.querySelectorAll("[data-switch]")].indexOf(event.target);
  const which = pressed.className;
  try {
    await part("/skills/mode", { method: "POST", body });
    await show(location.href, false);
    // The list was replaced: give the focus back to the same button.
    const again = list.querySelectorAll("[data-switch]")[row];
    [...(again?.querySelectorAll("button") ?? [])].find((one) => one.className === which)?.focus();
  } catch (error) {
    say(error.message);
  }
});
