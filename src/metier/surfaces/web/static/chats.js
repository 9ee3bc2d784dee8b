// The list of chats: search as one types, beside a chat and on its own page, and the menu of a chat.
import { $, announce, later, part, put, say } from "./app.js";

let asked = null;

/** Replace a list by what the server finds for the words. Only the answer to the last question counts. */
async function find(list, address) {
  asked?.abort();
  asked = new AbortController();
  try {
    put(list, await part(address, { signal: asked.signal }));
    announce(list);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
}

// --- beside a chat ---

const beside = $("[data-chats]");
const words = $("[data-chats-words]");
words?.addEventListener("input", later(60, () => {
  const given = new URLSearchParams({ part: "beside", q: words.value, chat: $("main.chat").dataset.chat });
  find(beside, `/chats?${given}`);
}));
words?.form?.addEventListener("submit", (event) => {
  const first = $("a", beside);
  event.preventDefault();
  if (words.value && first) location.assign(first.href);
});

// --- the page of all chats ---

const form = $("[data-chats-search]");
form?.addEventListener("input", later(60, () => {
  const given = new URLSearchParams(new FormData(form));
  history.replaceState(null, "", given.get("q") ? `/chats?${given}` : "/chats");
  given.set("part", "list");
  find($("[data-chats-list]"), `/chats?${given}`);
}));

// --- the menu of a chat ---

const menu = $("[data-chat-menu]");
const main = $("main.chat");

async function change(method, address, body) {
  const answer = await fetch(address, { method, headers: body ? { "content-type": "application/json" } : {}, body: body && JSON.stringify(body) });
  if (answer.ok) return;
  const refusal = await answer.json().catch(() => null);
  throw new Error(refusal?.error?.message ?? `The server answered with ${answer.status}.`);
}

if (menu) {
  const chat = () => encodeURIComponent(main.dataset.chat);
  const refresh = () => find(beside, `/chats?${new URLSearchParams({ part: "beside", q: words?.value ?? "", chat: main.dataset.chat })}`);
  // A new chat gets its id with its first message.
  new MutationObserver(() => {
    menu.hidden = !main.dataset.chat;
    for (const link of menu.querySelectorAll("[data-chat-export]")) link.href = `/chat/${chat()}/export.${link.dataset.chatExport}`;
  }).observe(main, { attributeFilter: ["data-chat"] });
  menu.addEventListener("toggle", () => { if (menu.open && main.dataset.chat) { const title = $("#chat-title"); title.value = $("[data-title]").classList.contains("sr") ? "" : $("[data-title]").textContent; title.select(); part(`/chat/${chat()}/spent`).then((html) => put($("[data-chat-spent]"), html), () => {}); } });
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
  menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; $("summary", menu).focus(); } });
  $("[data-chat-rename]").addEventListener("submit", async (event) => {
    event.preventDefault();
    const title = $("#chat-title").value.trim();
    try {
      await change("PATCH", `/api/chats/${chat()}`, { title });
      if (title) { $("[data-title]").textContent = title; $("[data-title]").classList.remove("sr"); document.title = `${title} · Metier`; }
      menu.open = false;
      refresh();
    } catch (error) { say(error.message); }
  });
  $("[data-chat-pin]").addEventListener("click", async (event) => {
    const pinned = event.currentTarget.getAttribute("aria-pressed") !== "true";
    const button = event.currentTarget;
    try {
      await change("PATCH", `/api/chats/${chat()}`, { pinned });
      button.setAttribute("aria-pressed", String(pinned));
      say(pinned ? "The chat is pinned." : "The chat is no longer pinned.");
      refresh();
    } catch (error) { say(error.message); }
  });
  $("[data-chat-remove]").addEventListener("click", async () => {
    try {
      await change("DELETE", `/api/chats/${chat()}`);
      location.assign(`/?removed=${chat()}`);
    } catch (error) { say(error.message); }
  });
}
