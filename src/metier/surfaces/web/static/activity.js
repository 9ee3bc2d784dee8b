// A session's timeline: new events as they happen, and the result of a replay on the same page.
import { $, localise, part, put } from "./app.js";

const timeline = $("[data-timeline]");
const verdict = $("[data-verdict-here]");
const live = $("[data-live]");

let busy = false, missed = false;

async function more() {
  if (busy) { missed = true; return; }
  busy = true;
  const { session, show } = timeline.dataset;
  const query = new URLSearchParams({ after: timeline.dataset.last });
  if (show) query.set("show", show);
  try {
    const template = document.createElement("template");
    template.innerHTML = await part(`/activity/${encodeURIComponent(session)}?${query}`);
    const last = template.content.lastElementChild;
    if (last) {
      timeline.dataset.last = last.dataset.seq;
      $("[data-none]")?.remove();
      localise(template.content);
      timeline.append(template.content);
    }
  } catch { /* the next event tries again */ }
  busy = false;
  if (missed) { missed = false; more(); }
}

let stream = null;

function watch() {
  const { session, last } = timeline.dataset;
  stream = new EventSource(`/api/sessions/${encodeURIComponent(session)}/events?after=${last}`);
  stream.onopen = () => { live.hidden = false; };
  stream.onerror = () => { live.hidden = true; };
  for (const kind of timeline.dataset.kinds.split(" ")) stream.addEventListener(kind, more);
}

function leave() {
  stream?.close();
  stream = null;
}

if (timeline && !("still" in timeline.dataset)) {
  watch();
  addEventListener("pagehide", leave);
  // A browser opens few connections to one server, so a hidden page closes its own.
  document.addEventListener("visibilitychange", () => { if (document.hidden) leave(); else if (!stream) watch(); });
}

const meant = location.hash && document.getElementById(location.hash.slice(1));
if (meant) $("details", meant).open = true;

document.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-verdict]");
  if (!link || event.metaKey || event.ctrlKey) return;
  event.preventDefault();
  const url = new URL(link.href);
  url.searchParams.set("part", "verdict");
  link.setAttribute("aria-busy", "true");
  try {
    put(verdict, await part(url));
  } catch (error) {
    verdict.textContent = error.message;
  }
  link.removeAttribute("aria-busy");
});
