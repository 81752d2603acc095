// What is asked for with each prompt.

const field = (id) => document.getElementById(id);

export function offer(drafters) {
  fill(field("draft"), ["auto", "none", ...drafters]);
  fill(field("gamma"), ["auto", ...Array.from({ length: drafters.length ? 17 : 1 }, (_, gamma) => String(gamma))]);
}

function fill(select, names) {
  if (select.options.length === names.length) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

export function chosen() {
  const gamma = field("gamma").value, seed = field("seed").value, draft = field("draft").value;
  return {
    draft,
    ...(gamma && gamma !== "auto" && draft !== "none" ? { gamma: Number(gamma) } : {}),
    temperature: Number(field("temperature").value),
    max_tokens: Number(field("max-tokens").value),
    ...(seed === "" ? {} : { seed: Number(seed) }),
  };
}
