// Editing a message that was sent: the new one stands for it, and what followed is folded as an earlier version.
import { $ } from "./app.js";

const note = $("[data-editing]");
let replaced = "";

export function begin(id) { replaced = id; note.hidden = false; }
export function end() { replaced = ""; note.hidden = true; }

/** The id of the message that the next one replaces, which is then done with. */
export function take() { const id = replaced; end(); return id; }

/** Fold an earlier version: the message with that id, and what follows it up to the files of the new one. */
export function setAside(items, id) {
  const first = document.getElementById(`item-${id}`);
  if (!first || first.closest(".aside")) return;
  const fold = document.createElement("details"), title = document.createElement("summary");
  fold.className = "aside fold";
  title.textContent = "Earlier version";
  const later = [...items.children];
  const moved = later.slice(later.indexOf(first));
  while ($(".added-file", moved.at(-1))) moved.pop();
  first.before(fold);
  fold.append(title, ...moved);
}
