// Messages that were sent while an answer was on its way, and the message that is being written. Both survive a reload.
import { $ } from "./app.js";

const place = $("[data-queue]");
const kept = (name, chat) => `${name}:${chat || "new"}`;

function read(key) {
  try { return JSON.parse(sessionStorage.getItem(key)) ?? null; } catch { return null; }
}

function write(key, value) {
  try {
    if (value?.length) sessionStorage.setItem(key, JSON.stringify(value)); else sessionStorage.removeItem(key);
  } catch { /* the browser keeps nothing; the text is still on the page */ }
}

export const draft = {
  load: (chat) => read(kept("draft", chat)) ?? "",
  save: (chat, text) => write(kept("draft", chat), text),
};

export const queue = {
  texts: [],
  load(chat) { this.chat = chat; this.texts = read(kept("queue", chat)) ?? []; this.show(); },
  move(chat) { write(kept("queue", this.chat), []); this.chat = chat; this.keep(); },
  add(text) { this.texts.push(text); this.keep(); },
  take() { const text = this.texts.shift(); this.keep(); return text; },
  /** All of them, to be written on. */
  empty() { const all = this.texts.join("\n\n"); this.texts = []; this.keep(); return all; },
  keep() { write(kept("queue", this.chat), this.texts); this.show(); },
  show() {
    place.replaceChildren(...this.texts.map((text, number) => {
      const line = document.createElement("li"), words = document.createElement("span"), off = document.createElement("button");
      words.textContent = text;
      words.dir = "auto";
      off.type = "button";
      off.className = "button bare";
      off.textContent = "Remove";
      off.addEventListener("click", () => { this.texts.splice(number, 1); this.keep(); });
      line.append(words, off);
      return line;
    }));
  },
};
