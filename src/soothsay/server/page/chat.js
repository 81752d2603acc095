// The chat: turns, one answer at a time, and a way to stop it.

import { complete } from "./api.js";
import { chosen } from "./options.js";
import { show, watch } from "./tokens.js";

const turns = document.getElementById("turns");
const prompt = document.getElementById("prompt");
const send = document.getElementById("send");
const stop = document.getElementById("stop");
let messages = [];
let running = null;

export function begin() {
  document.getElementById("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running && prompt.value.trim()) answer(prompt.value);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    document.getElementById("composer").requestSubmit();
  });
  stop.addEventListener("click", () => running?.abort());
  document.getElementById("clear").addEventListener("click", () => {
    running?.abort();
    messages = [];
    turns.replaceChildren();
    prompt.focus();
  });
}

async function answer(text) {
  messages.push({ role: "user", content: text });
  turn("user").textContent = text;
  prompt.value = "";
  const box = turn("assistant");
  watch(box);
  running = new AbortController();
  busy(true);
  let said = "", note = "stopped";
  try {
    const body = { messages, ...chosen(), stream: true, origins: true, stream_options: { include_usage: true } };
    const begun = performance.now();
    for await (const chunk of complete(body, running.signal)) {
      for (const choice of chunk.choices) {
        for (const token of choice.tokens ?? []) show(box, token);
        said += choice.delta.content ?? "";
      }
      if (chunk.usage) note = figures(chunk, performance.now() - begun);
    }
  } catch (error) {
    if (error.name !== "AbortError") note = error;
  }
  messages.push({ role: "assistant", content: said });
  line(box, note);
  running = null;
  busy(false);
}

function figures(chunk, milliseconds) {
  const { completion_tokens: tokens, speculation } = chunk.usage;
  const pace = (1000 * tokens) / milliseconds;
  const guesses = speculation.drafted ? `, ${speculation.accepted} of ${speculation.drafted} guesses kept` : "";
  return `${tokens} tokens, ${pace.toFixed(1)} a second, ${speculation.tokens_per_step.toFixed(2)} a step${guesses}, seed ${chunk.seed}`;
}

function turn(role) {
  const item = document.createElement("li"), box = document.createElement("div");
  item.className = role;
  box.className = "text";
  item.append(box);
  turns.append(item);
  item.scrollIntoView({ block: "end" });
  return box;
}

function line(box, note) {
  const below = document.createElement("p");
  below.className = note instanceof Error ? "figures error" : "figures";
  below.setAttribute("role", "status");
  below.textContent = note instanceof Error ? note.message : note;
  box.after(below);
}

function busy(yes) {
  send.disabled = yes;
  stop.disabled = !yes;
}
