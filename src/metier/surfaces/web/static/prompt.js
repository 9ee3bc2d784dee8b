// The prompt, updated as the message and the budget change.
import { $, announce, later, load, part, put, say } from "./app.js";

const form = $("[data-live-prompt]");
const answer = $("[data-answer]");
let asked = null;

async function show() {
  asked?.abort();
  asked = new AbortController();
  const given = new URLSearchParams(new FormData(form));
  for (const [key, value] of [...given]) if (!value) given.delete(key);
  answer.setAttribute("aria-busy", "true");
  try {
    put(answer, await part(`/prompt?${given}&part=answer`, { signal: asked.signal }));
    announce(answer);
    history.replaceState(null, "", `/prompt?${given}`);
    load($("[data-load]", answer));
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message);
  }
  answer.setAttribute("aria-busy", "false");
}

form.addEventListener("input", later(200, show));
form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
