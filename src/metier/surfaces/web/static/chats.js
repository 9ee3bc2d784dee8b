// The menu of a chat: its title, its pin, and removing it.
import { $, part, put, say } from "./app.js";

const menu = $("[data-chat-menu]");
const main = $("main.chat");
const beside = $("[data-chats]");

async function change(method, address, body) {
  const answer = await fetch(address, { method, headers: body ? { "content-type": "application/json" } : {}, body: body && JSON.stringify(body) });
  if (answer.ok) return;
  const refusal = await answer.json().catch(() => null);
  throw new Error(refusal?.error?.message ?? `The server answered with ${answer.status}.`);
}

if (menu) {
  const chat = () => encodeURIComponent(main.dataset.chat);
  const refresh = async () => put(beside, await part(`/chats?${new URLSearchParams({ part: "beside", chat: main.dataset.chat })}`));
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
      await refresh();
    } catch (error) { say(error.message); }
  });
  $("[data-chat-pin]").addEventListener("click", async (event) => {
    const pinned = event.currentTarget.getAttribute("aria-pressed") !== "true";
    const button = event.currentTarget;
    try {
      await change("PATCH", `/api/chats/${chat()}`, { pinned });
      button.setAttribute("aria-pressed", String(pinned));
      say(pinned ? "The chat is pinned." : "The chat is no longer pinned.");
      await refresh();
    } catch (error) { say(error.message); }
  });
  $("[data-chat-remove]").addEventListener("click", async () => {
    try {
      await change("DELETE", `/api/chats/${chat()}`);
      location.assign(`/?removed=${chat()}`);
    } catch (error) { say(error.message); }
  });
}
