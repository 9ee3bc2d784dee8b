// The chat: messages go to the API, and items come back as cards that the server rendered.
import { $, later, put, say } from "./app.js";
import { dialog, openModel } from "./model.js";

const main = $("main.chat");
const items = $("[data-items]");
const scroller = $("[data-scroller]");
const composer = $("[data-composer]");
const message = $("[data-message]");
const words = $("[data-status-words]");
let chat = main.dataset.chat;
let stream = null;

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

const atEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
const toEnd = () => { scroller.scrollTop = scroller.scrollHeight; };

function show(id, html) {
  const stay = atEnd();
  const template = document.createElement("template");
  template.innerHTML = html;
  const made = template.content.firstElementChild;
  const old = document.getElementById(`item-${id}`);
  if (!made) { old?.remove(); return; }
  // Ids rise with time. An item older than the first one shown was left out on purpose.
  const first = $(".item", items);
  if (!old && first && made.id < first.id) return;
  if (old) {
    // Details that the reader opened stay open, and the focus stays inside the card.
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    made.querySelectorAll("details").forEach((one, number) => { if (number in open) one.open = open[number]; });
    const focused = old.contains(document.activeElement) && !old.matches("[data-ask], [data-choice]");
    old.replaceWith(made);
    if (focused) made.querySelector("summary, a, button")?.focus();
  } else {
    items.append(made);
    $("[data-welcome]")?.remove();
  }
  const terminal = $(".terminal", made);
  if (terminal) terminal.scrollTop = terminal.scrollHeight;
  // Do not move the focus: a key that is being typed must not answer the question.
  if (made.matches(".ask.waiting, .choice.waiting")) words.textContent = "A question is waiting for your answer.";
  if (stay || made.matches(".user")) toEnd();
}

function grow(id, text) {
  const place = $(`#item-${CSS.escape(id)} [data-grows]`);
  if (!place) return;
  const stay = atEnd();
  place.append(text);
  if (stay) toEnd();
}

// --- a turn ---

function working(on) {
  main.dataset.status = on ? "running" : "idle";
  items.setAttribute("aria-busy", String(on));
  $("[data-stop]").hidden = !on;
  $("[data-send]").hidden = on;
}

function follow(done = "The answer is complete.") {
  stream?.close();
  working(true);
  stream = new EventSource(`/chat/${encodeURIComponent(chat)}/stream`);
  const parsed = (work) => (event) => work(JSON.parse(event.data));
  stream.addEventListener("item", parsed(({ id, html }) => show(id, html)));
  stream.addEventListener("delta", parsed(({ id, text }) => grow(id, text)));
  stream.addEventListener("end", parsed(({ title, chips, chats }) => {
    stream.close();
    $("[data-title]").textContent = title;
    document.title = `${title || "Chat"} · Metier`;
    $("[data-title]").classList.toggle("sr", !title);
    put($("[data-chips]"), chips);
    put($("[data-chats]"), chats);
    working(false);
    words.textContent = done;
  }));
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) { working(false); say("The connection was lost. Reload the page."); }
    else words.textContent = "The connection was lost; trying again.";
  };
}

export async function ensureChat() {
  if (chat) return;
  chat = (await (await call("POST", "/api/chats")).json()).id;
  main.dataset.chat = chat;
  history.replaceState(null, "", `/chat/${encodeURIComponent(chat)}`);
}

async function send(text) {
  working(true);
  try {
    await ensureChat();
    await begin(`/api/chats/${encodeURIComponent(chat)}/messages`, { text });
    message.value = "";
    fit();
    follow();
  } catch (error) {
    working(false);
    say(error.message);
    if (error.status === 409) follow(); // another turn is running on this chat: follow it
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
  if (added) follow(added === 1 ? "The file was added." : `${added} files were added.`);
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

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (text && main.dataset.status === "idle") { close(); send(text); }
});

$("[data-stop]").addEventListener("click", () => {
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
    at.disabled = true;
    try {
      await begin(`/api/chats/${encodeURIComponent(chat)}/retry`);
      follow();
    } catch (error) {
      at.disabled = false;
      say(error.message);
    }
  } else if ("suggest" in at.dataset) {
    message.value = at.dataset.suggest;
    fit();
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
  fit();
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
    list.replaceChildren(...commands.slice(0, 20).map(option));
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
  fit();
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

toEnd();
if (main.dataset.status !== "idle") follow();
if (matchMedia("(min-width: 52rem)").matches) message.focus();
addEventListener("pagehide", () => stream?.close());
