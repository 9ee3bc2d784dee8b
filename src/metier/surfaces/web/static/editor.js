// The editor: line numbers, diagnostics beside their lines as one types, and the preview of a host.
import { $, later, put, say } from "./app.js";

const form = $("[data-editor]");
const text = $("[data-text]");
const gutter = $("[data-gutter]");
const beside = $("[data-beside]");
const problems = $("[data-problems]");
const state = $("[data-state]");
const shown = $("[data-shown]");
const host = $("[data-host]");
const before = text.value;
let checking = null, lines = 0;

const lineHeight = () => parseFloat(getComputedStyle(text).lineHeight);

async function ask(address, fields, signal) {
  const answer = await fetch(address, { method: "POST", body: new URLSearchParams({ path: form.elements.path.value, text: text.value, ...fields }), signal });
  if (!answer.ok) throw new Error(`The server answered with ${answer.status}.`);
  return answer.text();
}

function number() {
  const count = text.value.split("\n").length;
  if (count === lines) return;
  lines = count;
  gutter.replaceChildren(...Array.from({ length: count }, (_, at) => { const one = document.createElement("span"); one.textContent = at + 1; return one; }));
}

/** Put each diagnostic beside its line: a mark on the number, and its words where there is room. */
function mark() {
  for (const one of gutter.children) one.className = "";
  const notes = [...problems.querySelectorAll("li[data-line]")].filter((one) => Number(one.dataset.line) > 0);
  const words = new Map();
  for (const note of notes) {
    const line = Number(note.dataset.line);
    const number = gutter.children[line - 1];
    if (number && !number.className) number.className = note.className;
    if (words.has(line)) continue;
    const made = document.createElement("span");
    made.className = note.className;
    made.textContent = note.querySelector("[dir]").textContent;
    made.dataset.at = line;
    words.set(line, made);
  }
  beside.replaceChildren(...words.values());
  scroll();
}

function scroll() {
  gutter.style.top = `${-text.scrollTop}px`;
  const height = lineHeight(), padding = parseFloat(getComputedStyle(text).paddingTop);
  for (const one of beside.children) one.style.top = `${(one.dataset.at - 1) * height + padding - text.scrollTop}px`;
}

async function check() {
  checking?.abort();
  checking = new AbortController();
  try {
    put(problems, await ask(form.dataset.check, {}, checking.signal));
    mark();
    await preview(checking.signal);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}

async function preview(signal) {
  if (shown) put(shown, await ask(form.dataset.preview, { host: host.value }, signal));
}

text.addEventListener("input", () => { state.textContent = text.value === before ? "" : "Not saved yet."; number(); });
text.addEventListener("input", later(200, check));
text.addEventListener("scroll", scroll);
host?.addEventListener("change", () => preview().catch((error) => say(error.message)));

problems.addEventListener("click", (event) => {
  const at = event.target.closest("[data-go]");
  const line = Number(at?.dataset.go ?? 0);
  if (!line) return;
  const start = text.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + text.value.split("\n")[line - 1].length);
  text.scrollTop = Math.max(0, (line - 5) * lineHeight());
});

text.addEventListener("keydown", (event) => {
  if (event.key === "s" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
});

let saving = false;
form.addEventListener("submit", () => { saving = true; });
addEventListener("beforeunload", (event) => { if (!saving && text.value !== before) event.preventDefault(); });
addEventListener("pageshow", () => { saving = false; });

number();
mark();
preview().catch((error) => say(error.message));
