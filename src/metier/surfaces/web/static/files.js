// Files in the chat: what is pasted is added like what is dropped or chosen.
import { attach } from "./chat.js";

document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length || event.target.closest?.("dialog")) return;
  // A copied table has its picture, too: the text is what the person means.
  if (event.clipboardData.types.includes("text/plain")) return;
  event.preventDefault();
  // A pasted picture is always named "image.png", and the next one would replace it.
  const at = new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-");
  attach(files.map((one, number) => new File([one], /^image\.\w+$/.test(one.name) ? `pasted-${at}${number ? `-${number}` : ""}.${one.name.split(".").pop()}` : one.name, { type: one.type })));
});
