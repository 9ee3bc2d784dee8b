// Shared by all pages: the theme, copying, forms that submit themselves, and short messages.

export const $ = (selector, within = document) => within.querySelector(selector);

/** Show a short message, which screen readers announce. */
export function say(text) {
  const toast = $("[data-toast]");
  if (!toast) return;
  toast.textContent = text;
  toast.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { toast.hidden = true; }, 4000);
}

/** Fetch a part of a page as the server renders it. Errors have a message for the user. */
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
  if (!answer.ok) throw new Error(`The server answered with ${answer.status}.`);
  return text;
}

/** Replace the content of an element with HTML that the server rendered. */
export function put(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  element.replaceChildren(template.content);
}

/** Announce the short summary of a part that was just replaced. */
export function announce(element) {
  const announcer = $("[data-announcer]");
  if (announcer) announcer.textContent = $("[data-summary]", element)?.dataset.summary ?? "";
}

/** Load a slow part of a page into the element that names its address. */
export async function load(place) {
  try {
    put(place, await part(place.dataset.load ?? place.dataset.loadLater));
  } catch (error) {
    const words = $("[data-loading]", place);
    if (words) words.textContent = error.message;
  }
}

/** Show times in the reader's time zone. */
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

document.addEventListener("keydown", (event) => {
  if (event.key === "?" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, textarea, select, [contenteditable], dialog")) location.assign("/shortcuts");
});

/** Scroll the current tab into view. */
export function showCurrentTab() {
  const tabs = $(".tabs"), chosen = $(".tabs [aria-current]");
  if (chosen) tabs.scrollLeft = chosen.offsetLeft - tabs.offsetLeft - tabs.clientWidth / 2 + chosen.clientWidth / 2;
}

localise(document);
showCurrentTab();
for (const place of document.querySelectorAll("[data-load]")) load(place);
