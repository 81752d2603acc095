// One prompt twice: without drafts, then with them, each alone on the machine, so that the clocks can be compared.

import { complete } from "./api.js";
import { chosen } from "./options.js";
import { show, watch } from "./tokens.js";

const go = document.getElementById("go");
const outcome = document.getElementById("outcome");

export function begin() {
  document.getElementById("start").addEventListener("submit", (event) => {
    event.preventDefault();
    race(document.getElementById("race-prompt").value);
  });
  for (const lane of ["off", "on"]) watch(document.getElementById(`text-${lane}`));
}

async function race(prompt) {
  go.disabled = true;
  outcome.textContent = "";
  for (const lane of ["off", "on"]) {
    document.getElementById(`text-${lane}`).replaceChildren();
    document.getElementById(`clock-${lane}`).textContent = "waits";
  }
  try {
    const options = chosen();
    const seed = options.seed ?? Math.floor(Math.random() * 2 ** 32);
    const ask = { ...options, seed, messages: [{ role: "user", content: prompt }] };
    const { gamma, ...without } = ask;
    const off = await run("off", { ...without, draft: "none" });
    const on = await run("on", ask.draft === "none" ? { ...without, draft: "auto" } : ask);
    const same = off.text === on.text ? "the same text" : "ANOTHER TEXT, which should not be";
    outcome.textContent = `${(off.seconds / on.seconds).toFixed(2)} times as fast, ${same}`;
    outcome.dataset.same = String(off.text === on.text);
  } catch (error) {
    outcome.textContent = error.message;
  }
  go.disabled = false;
}

// Seconds run from the first token, so that reading the prompt, which the second run has in its cache, does not count.
async function run(lane, ask) {
  const box = document.getElementById(`text-${lane}`), clock = document.getElementById(`clock-${lane}`);
  let first = null, tokens = 0, text = "";
  for await (const chunk of complete({ ...ask, stream: true, origins: true })) {
    for (const choice of chunk.choices) {
      const now = performance.now();
      for (const token of choice.tokens ?? []) {
        first ??= now;
        tokens += 1;
        show(box, token);
      }
      text += choice.delta.content ?? "";
      if (first !== null) clock.textContent = `${((now - first) / 1000).toFixed(2)} s, ${tokens} tokens`;
    }
  }
  return { text, seconds: (performance.now() - (first ?? performance.now())) / 1000 || 1e-3 };
}
