// What the model does at the moment, and for how long, from the message on until the answer has ended.
import { $ } from "./app.js";

const time = $("[data-thinking-time]"), words = $("[data-thinking-words]");
let began = 0, timer = 0;

function shown(seconds) {
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

function tick() {
  const seconds = Math.floor((performance.now() - began) / 1000);
  time.textContent = seconds ? shown(seconds) : "";
}

/** Say what is going on, from the last item. */
export function describe(items) {
  const last = items.lastElementChild;
  const running = last?.dataset.running;
  words.textContent = running === "question" ? "Waiting for your answer" : running ? "Working"
    : last?.matches(".answer[data-growing]") ? "Writing" : "Thinking";
}

export function start(elapsed = 0) {
  if (!timer) { began = performance.now() - elapsed; timer = setInterval(tick, 1000); }
  tick();
}

export function stop() {
  clearInterval(timer);
  timer = 0;
  time.textContent = "";
}
