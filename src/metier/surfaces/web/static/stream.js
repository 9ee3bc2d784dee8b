// The connection of a page to its chat. It is open while the page is seen, and opens again by itself when it was lost.
// A browser has few connections to one server, so a page in the background has none and catches up when it is seen.

const FIRST = 500, LONGEST = 15_000;

/** Follow an address. `on` has a function for each event; `state` is called with whether the connection is there. */
export function follow(address, on, state) {
  let source = null, timer = 0, wait = FIRST, ended = false;

  function open() {
    clearTimeout(timer);
    if (ended || source || document.hidden) return;
    source = new EventSource(address());
    for (const [name, work] of Object.entries(on)) source.addEventListener(name, (event) => work(JSON.parse(event.data)));
    source.addEventListener("ready", () => { wait = FIRST; state(true); });
    source.onerror = () => {
      if (ended || document.hidden) return;
      close();
      state(false);
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, LONGEST);
    };
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  const seen = () => { if (document.hidden) close(); else open(); };
  document.addEventListener("visibilitychange", seen);
  addEventListener("online", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
  return () => { ended = true; close(); document.removeEventListener("visibilitychange", seen); };
}
