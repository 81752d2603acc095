// An answer, token by token: each in the colour of where it came from, with a card that says more.

const card = document.getElementById("card");

export const ORIGINS = {
  model: "guessed by the draft model, kept",
  ngram: "guessed from the text itself, kept",
  object: "guessed by a drafter of your own, kept",
  grammar: "left without a choice by the grammar",
  correction: "the model's own, in place of a guess",
  bonus: "the model's own, after a draft kept whole",
  plain: "the model's own, nothing was guessed",
};

export function show(box, token) {
  const span = document.createElement("span");
  span.className = `token from-${token.from}`;
  span.textContent = token.text;
  span.token = token;
  span.tabIndex = box.childElementCount ? -1 : 0;
  box.append(span);
}

// One listener for a whole answer; arrow keys walk through it.
export function watch(box) {
  box.addEventListener("mouseover", (event) => open(event.target));
  box.addEventListener("mouseout", close);
  box.addEventListener("focusin", (event) => open(event.target));
  box.addEventListener("focusout", close);
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    const next = to && event.target[to];
    if (event.key === "Escape") close();
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

function open(span) {
  if (!span.token) return;
  const { from, p, q, alternatives } = span.token;
  const lines = [[ORIGINS[from] ?? from, ""]];
  if (p !== null) lines.push(["p, the model's own", percent(p)]);
  if (q !== null) lines.push(["q, the guesser's", percent(q)]);
  const table = document.createElement("table");
  for (const [name, value] of [...lines, ...alternatives.map((one) => [JSON.stringify(one.text), percent(one.p)])]) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    row.insertCell().textContent = value;
  }
  card.replaceChildren(table);
  card.hidden = false;
  const place = span.getBoundingClientRect();
  const top = place.bottom + 8 + card.offsetHeight > innerHeight ? place.top - 8 - card.offsetHeight : place.bottom + 8;
  card.style.top = `${Math.max(4, top)}px`;
  card.style.left = `${Math.max(4, Math.min(place.left, innerWidth - card.offsetWidth - 8))}px`;
}

function close() {
  card.hidden = true;
}

const percent = (share) => `${(100 * share).toPrecision(3)} %`;

export function legend(list) {
  for (const [from, text] of Object.entries(ORIGINS)) {
    const item = document.createElement("li");
    const mark = document.createElement("span");
    mark.className = `token from-${from}`;
    mark.textContent = from;
    item.append(mark, text);
    list.append(item);
  }
}
