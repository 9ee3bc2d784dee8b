// Importing a skill: an archive or a folder goes to the server, which shows what it would install.
import { $, put, say } from "./app.js";

const offer = $("[data-offer]");
const drop = $("[data-drop]");
const source = $("[data-source]");
let wanted = null;

/** Ask the server what it would install, or to install what it has shown. The answer is a part of the page. */
async function ask(more = {}) {
  const given = new URLSearchParams({ source: wanted.source, name: wanted.name ?? "", ...more });
  if ($("[data-project]").checked) given.set("project", "1");
  offer.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`/edit/offer?${given}`, { method: "POST", body: wanted.data ?? "", headers: { "content-type": "application/octet-stream" } });
    if (answer.status === 413) throw new Error("It is too large to be sent here; use metier install.");
    put(offer, await answer.text());
  } catch (error) {
    say(error.message === "Failed to fetch" ? "The server cannot be reached, or the file is too large." : error.message);
  }
  offer.setAttribute("aria-busy", "false");
}

// --- a folder as an archive ---

const encoder = new TextEncoder();

/** One file as a record of a tar archive. */
function record(path, data) {
  const header = new Uint8Array(512);
  const name = encoder.encode(path);
  if (name.length > 100) {
    const cut = path.slice(0, -1).lastIndexOf("/", 154);
    header.set(encoder.encode(path.slice(cut + 1)).slice(0, 100), 0);
    header.set(encoder.encode(path.slice(0, Math.max(cut, 0))).slice(0, 155), 345);
  } else header.set(name, 0);
  const runs = data[0] === 35 && data[1] === 33; // #!
  const field = (at, text) => header.set(encoder.encode(text), at);
  field(100, runs ? "0000755\0" : "0000644\0");
  field(108, "0000000\0");
  field(116, "0000000\0");
  field(124, `${data.length.toString(8).padStart(11, "0")}\0`);
  field(136, "00000000000\0");
  field(148, "        ");
  field(156, "0");
  field(257, "ustar\u000000");
  field(148, `${header.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `);
  const padding = new Uint8Array((512 - (data.length % 512)) % 512);
  return [header, data, padding];
}

async function pack(files) {
  const parts = [];
  for (const { path, file } of files) parts.push(...record(path, new Uint8Array(await file.arrayBuffer())));
  const tar = new Blob([...parts, new Uint8Array(1024)]);
  return new Response(tar.stream().pipeThrough(new CompressionStream("gzip"))).blob();
}

const LEFT_OUT = /(^|\/)(\.git|\.hg|\.svn|node_modules|__pycache__|\.DS_Store)(\/|$)/;

async function takeFolder(files) {
  const kept = files.filter(({ path }) => !LEFT_OUT.test(path));
  if (!kept.length) return;
  if (kept.length > 2000) { say("The folder has too many files for one skill."); return; }
  wanted = { source: kept[0].path.split("/")[0], data: await pack(kept) };
  await ask();
}

async function takeFile(file) {
  wanted = { source: file.name, data: file };
  await ask();
}

// --- choosing and dropping ---

const file = $("[data-file]"), folder = $("[data-folder]");
$("[data-choose-file]").addEventListener("click", () => file.click());
$("[data-choose-folder]").addEventListener("click", () => folder.click());
file.addEventListener("change", () => { if (file.files[0]) takeFile(file.files[0]); file.value = ""; });
folder.addEventListener("change", () => {
  takeFolder([...folder.files].map((one) => ({ path: one.webkitRelativePath || one.name, file: one })));
  folder.value = "";
});

/** All files of a dropped folder. */
async function walk(entry, path = entry.name) {
  if (entry.isFile) return [{ path, file: await new Promise((done, failed) => entry.file(done, failed)) }];
  const reader = entry.createReader(), found = [];
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) break;
    for (const one of some) found.push(...await walk(one, `${path}/${one.name}`));
  }
  return found;
}

drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", async (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  const entry = event.dataTransfer.items[0]?.webkitGetAsEntry?.();
  try {
    if (entry?.isDirectory) await takeFolder(await walk(entry));
    else if (event.dataTransfer.files[0]) await takeFile(event.dataTransfer.files[0]);
  } catch (error) {
    say(error.message);
  }
});

source.addEventListener("submit", (event) => {
  event.preventDefault();
  wanted = { source: source.elements.source.value.trim(), name: source.elements.name.value.trim() };
  if (wanted.source) ask();
});

offer.addEventListener("click", (event) => {
  const at = event.target.closest("[data-install], [data-approve]");
  if (!at) return;
  at.disabled = true;
  if (at.dataset.install) ask({ digest: at.dataset.install, approved: "1" });
  else ask({ approved: "1" });
});
