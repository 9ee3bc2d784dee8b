// The command palette (Ctrl K): chats, skills and actions, found as one types.
import { $, later, say } from "./app.js";

const ICONS = { action: "›", chat: "○", skill: "◇" };
const KINDS = { action: "Action", chat: "Chat", skill: "Skill" };
let dialog = null, input, list, asked = null, chosen = -1;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function build() {
  input = make("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Go to a chat, a skill or an action", placeholder: "Go to a chat, a skill or an action", autocomplete: "off", spellcheck: "false", maxlength: "200" });
  list = make("ul", { id: "palette-list", role: "listbox", "aria-label": "Found" });
  dialog = make("dialog", { class: "palette", "aria-label": "Command palette" }, input, list);
  document.body.append(dialog);
  input.addEventListener("input", later(40, find));
  dialog.addEventListener("keydown", keys);
  list.addEventListener("mousemove", (event) => { const at = event.target.closest("[role=option]"); if (at) choose([...list.children].indexOf(at), false); });
  list.addEventListener("click", (event) => { const at = event.target.closest("[role=option]"); if (at) go(at, event.ctrlKey || event.metaKey); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

async function find() {
  asked?.abort();
  asked = new AbortController();
  try {
    const answer = await fetch(`/palette?${new URLSearchParams({ q: input.value })}`, { signal: asked.signal });
    if (!answer.ok) throw new Error(`The server answered with ${answer.status}.`);
    show((await answer.json()).found);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}

function show(found) {
  list.replaceChildren(...found.map(({ kind, title, detail, address }, number) => {
    const mark = make("span", { class: "mark", "aria-hidden": "true" }, ICONS[kind]);
    const words = make("span", { class: "words", dir: "auto" }, make("b", {}, title), detail ? ` ${detail}` : "");
    const option = make("li", { role: "option", id: `palette-${number}`, "aria-selected": "false" }, mark, words, make("span", { class: "kind" }, KINDS[kind]));
    option.dataset.address = address;
    return option;
  }));
  if (found.length) choose(0); else { chosen = -1; input.removeAttribute("aria-activedescendant"); list.append(make("li", { class: "none", role: "presentation" }, "Nothing has these words.")); }
}

function choose(number, scroll = true) {
  const options = [...list.querySelectorAll("[role=option]")];
  if (!options.length) return;
  chosen = (number + options.length) % options.length;
  options.forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  input.setAttribute("aria-activedescendant", options[chosen].id);
  if (scroll) options[chosen].scrollIntoView({ block: "nearest" });
}

function keys(event) {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); }
  else if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen - 1); }
  else if (event.key === "Enter" && chosen >= 0) { event.preventDefault(); go(list.children[chosen], event.ctrlKey || event.metaKey); }
}

function go(option, elsewhere) {
  const address = option.dataset.address;
  dialog.close();
  if (address === "action:theme") $("[data-theme-toggle]").click();
  else if (address === "action:model") { const button = $("[data-model-open]"); if (button) button.click(); else location.assign("/#model"); }
  else if (elsewhere) open(address, "_blank", "noopener");
  else location.assign(address);
}

export function openPalette() {
  if (!dialog) build();
  if (dialog.open) { dialog.close(); return; }
  input.value = "";
  list.replaceChildren();
  dialog.showModal();
  find();
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) { event.preventDefault(); openPalette(); }
  else if (event.key === "?" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select, [contenteditable], dialog")) location.assign("/shortcuts");
});
document.addEventListener("click", (event) => { if (event.target.closest("[data-palette]")) openPalette(); });
if (location.hash === "#model") $("[data-model-open]")?.click();
