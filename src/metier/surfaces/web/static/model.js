// The dialog of the model: its list, a test, and the choice for all chats or for this one.
import { $, say } from "./app.js";

export const dialog = $("[data-model]");
const main = $("main.chat");
const form = $("[data-model-form]");
const problem = $("[data-model-error]");
const confirming = $("[data-model-confirm]");
const count = $("[data-model-count]");

export function openModel() {
  problem.hidden = true;
  dialog.showModal();
}

async function call(method, address, body) {
  let answer;
  try {
    answer = await fetch(address, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  const said = await answer.json().catch(() => null);
  if (answer.ok) return said;
  const error = new Error(said?.error?.message ?? `The server answered with ${answer.status}.`);
  error.code = said?.error?.code;
  throw error;
}

/** What the form asks for. A key is sent only if one was typed: the server keeps the one it has for the address. */
function asked() {
  const { provider, model, base_url: address, api_key: key, tools, images, confirmed, here } = form.elements;
  const given = { provider: provider.value };
  if (provider.value !== "offline") {
    Object.assign(given, { model: model.value.trim(), base_url: address.value.trim(), tools: tools.checked, images: images.checked });
    if (key.value) given.api_key = key.value;
    if (!confirming.hidden && confirmed.checked) given.confirmed = true;
  }
  if (here.checked && main.dataset.chat) given.chat = main.dataset.chat;
  return given;
}

function tell(error) {
  problem.textContent = error.message;
  problem.hidden = false;
  if (error.code === "CONFIRM") { confirming.hidden = false; form.elements.confirmed.focus(); }
}

async function busy(button, work) {
  problem.hidden = true;
  button.disabled = true;
  try { await work(); } catch (error) { tell(error); }
  button.disabled = false;
}

$("[data-model-list]").addEventListener("click", (event) => busy(event.currentTarget, async () => {
  const { tools, images, ...given } = asked();
  const { models } = await call("POST", "/api/model/list", given);
  $("#model-names").replaceChildren(...models.map((name) => { const one = document.createElement("option"); one.value = name; return one; }));
  count.textContent = models.length === 1 ? "1 model" : `${models.length} models`;
  if (!form.elements.model.value && models.length) form.elements.model.value = models[0];
  form.elements.model.focus();
}));

$("[data-model-test]").addEventListener("click", (event) => busy(event.currentTarget, async () => {
  const { tools, images, ...given } = asked();
  count.textContent = "Asking the model…";
  try { count.textContent = (await call("POST", "/api/model/test", given)).message; } catch (error) { count.textContent = ""; throw error; }
}));

$("[data-model-cancel]").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => { form.elements.api_key.value = ""; count.textContent = ""; });

form.elements.provider.addEventListener("change", () => {
  $("[data-model-fields]").hidden = form.elements.provider.value === "offline";
  confirming.hidden = true;
});
form.elements.base_url.addEventListener("input", () => { confirming.hidden = true; form.elements.confirmed.checked = false; });

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    // A model for this chat needs a chat, also before its first message.
    if (form.elements.here.checked && !main.dataset.chat) await (await import("./chat.js")).ensureChat();
    const chosen = await call("PUT", "/api/model", asked());
    form.elements.api_key.value = "";
    $("[data-model-label]").textContent = chosen.model;
    $("[data-offline]").hidden = !chosen.offline;
    $("[data-has-key]").hidden = !chosen.has_key;
    confirming.hidden = true;
    dialog.close();
    say(chosen.offline ? "The offline guide answers." : `${chosen.model} answers from now on.`);
  } catch (error) {
    tell(error);
  }
});
