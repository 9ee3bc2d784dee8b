// Changes of a page, made together once per frame: an answer of many pieces costs one layout per frame, not per piece.

let waiting = [];
let scroller = null;
let atEnd = false;

export const toEnd = () => { scroller.scrollTop = scroller.scrollHeight; atEnd = true; };

/** The element that stays at its end while it or its content changes, unless the reader has scrolled up. */
export function keepAtEnd(element) {
  scroller = element;
  scroller.addEventListener("scroll", () => {
    atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  }, { passive: true });
  new ResizeObserver(() => { if (atEnd) toEnd(); }).observe(scroller);
}

function work() {
  const todo = waiting, stay = atEnd;
  waiting = [];
  let wanted = false;
  for (const change of todo) wanted = change() || wanted;
  if (stay || wanted) toEnd();
}

/** Make a change in the next frame. If it returns true, the reader is taken to the end. */
export function change(made) {
  if (waiting.push(made) > 1) return;
  if (document.hidden) setTimeout(work, 0);
  else requestAnimationFrame(work);
}
