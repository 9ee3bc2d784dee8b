// What every page does: the theme, copying, forms that send themselves, and short messages.

export const $ = (selector, within = document) => within.querySelector(selector);

/** Show a short message and read it out. */
export function say(text) {
  const toast = $("[data-toast]");
  if (!toast) return;
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { toast.hidden = true; }, 4000);
}

/** A part of a page as the server renders it. Throws with words for a person. */
export async function part(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { ...options, headers: { accept: "text/html", ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  if (answer.redirected && new URL(answer.url).pathname === "/login") location.assign(answer.url);
  const text = await answer.text();
  if (!answer.ok && !options.any) throw new Error(`The server answered with ${answer.status}.`);
  return text;
}

/** Put HTML that this server rendered into an element. */
export function put(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  element.replaceChildren(template.content);
}

/** Read out what a part that was put anew has to tell, in a few words. */
export function tell(element) {
  const told = $("[data-told]");
  if (told) told.textContent = $("[data-tells]", element)?.dataset.tells ?? "";
}

/** Fetch the part of a page that takes a moment, into the element that names it. */
export async function load(place) {
  try {
    put(place, await part(place.dataset.load ?? place.dataset.loadLater));
  } catch (error) {
    const words = $("[data-loading]", place);
    if (words) words.textContent = error.message;
  }
}

/** Show the times of day of the reader's own place; the server knows only its clock. */
export function localise(within) {
  for (const time of within.querySelectorAll("time[data-clock]")) {
    time.textContent = new Date(time.dateTime).toLocaleTimeString([], { hour12: false });
    time.title = new Date(time.dateTime).toLocaleString();
  }
}

export function later(wait, work) {
  let timer;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => work(...given), wait); };
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
}

async function copy(id) {
  const source = document.getElementById(id);
  if (!source) return;
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (!document.execCommand("copy")) { say("The text is selected; copy it with your keyboard."); return; }
    getSelection().removeAllRanges();
  }
  say("Copied.");
}

document.addEventListener("click", (event) => {
  const at = event.target.closest("[data-theme-toggle], [data-copy]");
  if (!at) return;
  if (at.dataset.copy) copy(at.dataset.copy);
  else toggleTheme();
});

document.addEventListener("click", (event) => {
  const place = event.target.closest("[data-load-later]");
  if (!place || event.metaKey || event.ctrlKey) return;
  event.preventDefault();
  place.classList.add("busy");
  load(place).then(() => { place.classList.remove("busy"); delete place.dataset.loadLater; });
});

document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-submit-on-change]");
  if (form) form.requestSubmit();
});

/** Where tabs do not fit, the chosen one is in sight. */
export function inSight() {
  const tabs = $(".tabs"), chosen = $(".tabs [aria-current]");
  if (chosen) tabs.scrollLeft = chosen.offsetLeft - tabs.offsetLeft - tabs.clientWidth / 2 + chosen.clientWidth / 2;
}

localise(document);
inSight();
for (const place of document.querySelectorAll("[data-load]")) load(place);
