// The chat: messages go to the API, and items come back as cards that the server rendered.
import { $, later, put, say } from "./app.js";
import * as editing from "./editing.js";
import { dialog, openModel } from "./model.js";
import { change, keepAtEnd, toEnd } from "./frames.js";
import { draft, queue } from "./queue.js";
import { follow as connect } from "./stream.js";
import * as thinking from "./thinking.js";

const main = $("main.chat");
const items = $("[data-items]");
const scroller = $("[data-scroller]");
const composer = $("[data-composer]");
const message = $("[data-message]");
const words = $("[data-status-words]");
let chat = main.dataset.chat;
let leave = null;
let stopping = false;
let sent = false; // whether a turn was asked for that the stream has not told of yet

// --- requests ---

async function call(method, address, body) {
  let answer;
  try {
    answer = await fetch(address, {
      method, headers: body ? { "content-type": body instanceof Blob ? "application/octet-stream" : "application/json" } : {},
      body: body instanceof Blob ? body : body && JSON.stringify(body),
    });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) throw new Error("You are signed out. Reload the page to sign in.");
  const refusal = await answer.json().catch(() => null);
  const error = new Error(refusal?.error?.message ?? `The server answered with ${answer.status}.`);
  error.status = answer.status;
  throw error;
}

/** Start a turn. The answer is a stream of data; the page follows the stream of rendered cards instead. */
async function begin(address, body) {
  const answer = await call("POST", address, body);
  await answer.body?.cancel();
}

// --- items ---

function show(id, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const made = template.content.firstElementChild;
  const old = document.getElementById(`item-${id}`);
  if (!made) { old?.remove(); return false; }
  // Ids rise with time. An item older than the first one shown was left out on purpose.
  const first = $(".item", items);
  if (!old && first && made.id < first.id) return false;
  const same = old?.isEqualNode(made); // as after a reload: the focus stays where it is
  if (old && !same) {
    // Details that the reader opened or closed stay so, and the focus stays inside the block.
    const touched = [...old.querySelectorAll("details")].map((one) => ("touched" in one.dataset ? one.open : null));
    made.querySelectorAll("details").forEach((one, number) => {
      if (touched[number] != null) { one.open = touched[number]; one.dataset.touched = ""; }
    });
    const focused = old.contains(document.activeElement) && !document.activeElement.matches("[data-ask], [data-choice]");
    old.replaceWith(made);
    if (focused) made.querySelector("summary, a, button")?.focus({ preventScroll: true });
  } else if (!same) {
    items.append(made);
    $("[data-welcome]")?.remove();
  }
  for (const terminal of made.querySelectorAll(".terminal")) terminal.scrollTop = terminal.scrollHeight;
  // Do not move the focus: a key that is being typed must not answer the question.
  if ($(".ask.waiting, .choice.waiting", made) || made.matches(".choice.waiting")) words.textContent = "A question is waiting for your answer.";
  thinking.describe(items);
  return made.matches(".user");
}

const BLOCK = 20_000;

/** Add to a growing answer: blocks that are whole, the one that still changes, or plain text. */
function grow({ id, done, tail, plain }) {
  const place = $(`#item-${CSS.escape(id)} [data-grows]`);
  if (!place) return;
  if (done) $("[data-done]", place).insertAdjacentHTML("beforeend", done);
  if (tail !== undefined) $("[data-tail]", place).innerHTML = tail;
  if (plain) {
    const blocks = $("[data-plain]", place);
    let last = blocks.lastElementChild;
    if (!last || last.textContent.length > BLOCK) {
      last = document.createElement("pre");
      last.className = "plain";
      blocks.append(last);
    }
    last.append(plain);
  }
}

document.addEventListener("click", (event) => {
  const opened = event.target.closest("summary")?.parentElement;
  if (opened) opened.dataset.touched = "";
  const code = event.target.closest("[data-copy-code]");
  if (code) navigator.clipboard.writeText($("pre", code.parentElement).textContent).then(() => say("Copied."), () => say("Select the code to copy it."));
});

// --- a turn ---

function working(on, elapsed = 0) {
  main.dataset.status = on ? "running" : "idle";
  items.setAttribute("aria-busy", String(on));
  $("[data-stop]").hidden = !on;
  if (on) { thinking.describe(items); thinking.start(elapsed); } else thinking.stop();
}

/** After a turn: the next message of the queue, or, if the turn did not end well, its text to be written on. */
function goOn() {
  const well = !stopping && !items.lastElementChild?.matches(".note.bad");
  stopping = false;
  if (!queue.texts.length) return;
  if (well) { send(queue.take()); return; }
  message.value = [queue.empty(), message.value].filter(Boolean).join("\n\n");
  written();
}

function end({ title, chips, chats }) {
  $("[data-title]").textContent = title || "New chat";
  document.title = `${title || "Chat"} · Metier`;
  put($("[data-chips]"), chips);
  put($("[data-chats]"), chats);
  if (main.dataset.status !== "idle") words.textContent = "The answer is complete.";
  working(false);
  goOn();
}

function follow() {
  if (leave || !chat) return;
  const position = main.dataset.position;
  leave = connect(() => `/chat/${encodeURIComponent(chat)}/stream?after=${encodeURIComponent(position)}`, {
    start: ({ elapsed_ms: elapsed }) => change(() => { sent = false; working(true, elapsed); }),
    item: ({ id, html }) => change(() => show(id, html)),
    aside: ({ first }) => change(() => { editing.setAside(items, first); }),
    grow: (grown) => change(() => { grow(grown); }),
    end: (around) => change(() => { sent = false; end(around); }),
    idle: (around) => change(() => { if (!sent) end(around); }),
  }, (there) => { $("[data-lost]").hidden = there; });
}

export async function ensureChat() {
  if (chat) return;
  chat = (await (await call("POST", "/api/chats")).json()).id;
  main.dataset.chat = chat;
  history.replaceState(null, "", `/chat/${encodeURIComponent(chat)}`);
  queue.move(chat);
  draft.save("", "");
}

async function send(text, replaces = "") {
  working(true);
  sent = true;
  try {
    await ensureChat();
    follow();
    await begin(`/api/chats/${encodeURIComponent(chat)}/messages`, replaces ? { text, replaces } : { text });
  } catch (error) {
    sent = false;
    if (error.status === 409) { queue.add(text); return; } // a turn has just begun through another page
    working(false);
    message.value = [text, message.value].filter(Boolean).join("\n\n");
    written();
    say(error.message);
  }
}

// --- files ---

/** Add files to the chat. Scripts of later turns find them in their current folder. */
export async function attach(files) {
  if (!files.length || main.dataset.status !== "idle") return;
  working(true);
  let added = 0;
  try {
    await ensureChat();
    for (const file of files) {
      await call("POST", `/api/chats/${encodeURIComponent(chat)}/files?name=${encodeURIComponent(file.name)}`, file);
      added += 1;
    }
  } catch (error) {
    say(error.message);
  }
  working(false);
  if (added) { follow(); words.textContent = added === 1 ? "The file was added." : `${added} files were added.`; }
  message.focus();
}

const chooser = $("[data-files]");
$("[data-attach]").addEventListener("click", () => chooser.click());
chooser.addEventListener("change", () => { attach([...chooser.files]); chooser.value = ""; });

const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
main.addEventListener("dragover", (event) => {
  if (carriesFiles(event)) { event.preventDefault(); main.classList.add("dropping"); }
});
main.addEventListener("dragleave", (event) => {
  if (!main.contains(event.relatedTarget)) main.classList.remove("dropping");
});
main.addEventListener("drop", (event) => {
  main.classList.remove("dropping");
  if (carriesFiles(event)) { event.preventDefault(); attach([...event.dataTransfer.files]); }
});

const tooLong = $("[data-too-long]");

/** After the message has changed: its height, its draft, and whether it can be sent. */
function written() {
  fit();
  draft.save(chat, message.value);
  const most = Number(message.dataset.most), length = message.value.length;
  tooLong.hidden = length <= most;
  if (length > most) tooLong.textContent = `The message has ${length.toLocaleString("en")} characters. At most ${most.toLocaleString("en")} can be sent at once.`;
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (!text || !tooLong.hidden) return;
  close();
  message.value = "";
  written();
  if (main.dataset.status === "idle") send(text, editing.take()); else queue.add(text);
});

document.addEventListener("click", (event) => {
  const edit = event.target.closest("[data-edit], [data-edit-cancel]");
  if (!edit) return;
  if ("editCancel" in edit.dataset) { editing.end(); message.value = ""; }
  else if (main.dataset.status !== "idle") { say("Stop the answer first."); return; }
  else { editing.begin(edit.dataset.edit); message.value = $(".message", edit.closest(".user")).textContent; }
  written();
  message.focus();
});

$("[data-stop]").addEventListener("click", () => {
  stopping = true;
  call("POST", `/api/chats/${encodeURIComponent(chat)}/stop`).catch((error) => say(error.message));
  message.focus();
});

// --- questions ---

async function answer(ask, said) {
  for (const button of ask.querySelectorAll("[data-answer]")) button.disabled = true;
  message.focus();
  try {
    await call("POST", `/api/chats/${encodeURIComponent(chat)}/answers/${encodeURIComponent(ask.dataset.ask)}`, { answer: said });
  } catch (error) {
    say(error.message);
  }
}

/** Pick one of several skills of a name, or none. */
async function pick(choice, skill) {
  for (const button of choice.querySelectorAll("[data-pick]")) button.disabled = true;
  message.focus();
  try {
    await call("POST", `/api/chats/${encodeURIComponent(chat)}/choices/${encodeURIComponent(choice.dataset.choice)}`, { skill_id: skill || null });
  } catch (error) {
    say(error.message);
  }
}

const ANSWERS = { y: "once", a: "always", n: "no" };
const waiting = () => [...document.querySelectorAll(".ask.waiting:not(:has([data-answer]:disabled))")];

/** The question that a key answers: the one with the focus, or the only one. None while somebody types. */
function asked() {
  const at = document.activeElement;
  if (at?.closest("input, textarea, select, [contenteditable], dialog")) return null;
  const open = waiting();
  return open.find((one) => one.contains(at)) ?? (open.length === 1 ? open[0] : null);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.isComposing || dialog.open) return;
  const said = Object.hasOwn(ANSWERS, event.key) ? ANSWERS[event.key] : "";
  const ask = said && asked();
  if (ask) { event.preventDefault(); answer(ask, said); }
});

// Esc leaves the message for the question, so that its keys work without a mouse.
message.addEventListener("keydown", (event) => {
  const ask = waiting()[0] ?? $(".choice.waiting");
  if (event.key === "Escape" && list.hidden && ask) { event.preventDefault(); ask.focus(); }
});

document.addEventListener("click", async (event) => {
  const at = event.target.closest("[data-answer], [data-pick], [data-retry], [data-suggest], [data-chats-toggle], [data-model-open]");
  if (!at) return;
  if (at.dataset.answer) {
    await answer(at.closest("[data-ask]"), at.dataset.answer);
  } else if ("pick" in at.dataset) {
    await pick(at.closest("[data-choice]"), at.dataset.pick);
  } else if ("retry" in at.dataset) {
    working(true);
    sent = true;
    try {
      follow();
      await begin(`/api/chats/${encodeURIComponent(chat)}/retry`);
    } catch (error) {
      sent = false;
      working(error.status === 409);
      say(error.message);
    }
  } else if ("suggest" in at.dataset) {
    message.value = at.dataset.suggest;
    written();
    message.focus();
  } else if ("chatsToggle" in at.dataset) {
    const open = $(".shell").classList.toggle("listing");
    at.setAttribute("aria-expanded", String(open));
    if (open) $(".chats a").focus();
  } else {
    openModel();
  }
});

document.addEventListener("keydown", (event) => {
  const toggle = $("[data-chats-toggle]");
  if (event.key === "Escape" && toggle.getAttribute("aria-expanded") === "true") { toggle.click(); toggle.focus(); }
});

// --- commands ---

const list = $("[data-completions]");
const COMMAND = /^\/\S*$/;
let chosen = -1, shownFor = "";

function close() {
  list.hidden = true;
  message.removeAttribute("aria-activedescendant");
  chosen = -1;
}

function choose(number) {
  const options = [...list.children];
  chosen = (number + options.length) % options.length;
  options.forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  message.setAttribute("aria-activedescendant", options[chosen].id);
  options[chosen].scrollIntoView({ block: "nearest" });
}

function take(option) {
  message.value = `${option.dataset.command} `;
  close();
  written();
  message.focus();
}

function option({ name, command, description }, number) {
  const made = document.createElement("li");
  made.id = `completion-${number}`;
  made.role = "option";
  made.dataset.command = command ?? `/${name}`;
  const label = document.createElement("b"), about = document.createElement("span");
  label.textContent = made.dataset.command;
  about.textContent = description;
  about.dir = "auto";
  made.append(label, about);
  return made;
}

const complete = later(60, async () => {
  const typed = message.value;
  if (!COMMAND.test(typed)) return;
  try {
    const { commands } = await (await call("GET", `/api/commands?q=${encodeURIComponent(typed.slice(1))}`)).json();
    if (message.value !== typed) return;
    shownFor = typed;
    list.replaceChildren(...commands.map(option));
    list.hidden = !commands.length;
    if (commands.length) choose(0);
    words.textContent = commands.length ? `${commands.length} skills` : "No matching skill.";
  } catch { close(); }
});

// Narrow the list at once. The server's answer adds other matches.
function narrow() {
  const fitting = [...list.children].filter((one) => one.dataset.command.startsWith(message.value));
  if (list.hidden || !fitting.length) return;
  list.replaceChildren(...fitting);
  shownFor = message.value;
  choose(0);
}

function fit() {
  if (CSS.supports("field-sizing", "content")) return;
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight}px`;
}

message.addEventListener("input", () => {
  written();
  if (COMMAND.test(message.value)) narrow(); else close();
  complete();
});
message.addEventListener("blur", () => setTimeout(close, 150));
message.addEventListener("keydown", (event) => {
  // A list for older text must not be chosen from.
  if (!list.hidden && shownFor === message.value) {
    if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); return; }
    if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen - 1); return; }
    if (event.key === "Escape") { event.preventDefault(); close(); return; }
    const whole = event.key === "Enter" && list.children[chosen]?.dataset.command === message.value;
    if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0 && !whole) { event.preventDefault(); take(list.children[chosen]); return; }
  }
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); composer.requestSubmit(); }
});
list.addEventListener("mousedown", (event) => {
  const at = event.target.closest("li");
  if (at) { event.preventDefault(); take(at); }
});

// --- start ---

keepAtEnd(scroller);
queue.load(chat);
if (!message.value) message.value = draft.load(chat);
written();
const meant = document.getElementById(location.hash.slice(1));
if (items.contains(meant)) meant.scrollIntoView();
else if (items.childElementCount) toEnd();
if (main.dataset.status !== "idle") working(true, Number(main.dataset.elapsed));
else if (queue.texts.length) goOn();
follow();
if (matchMedia("(min-width: 52rem)").matches) message.focus();
