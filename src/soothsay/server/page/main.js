// Where the parts of the page meet.

import { figures } from "./api.js";
import * as chat from "./chat.js";
import { draw } from "./figures.js";
import { offer } from "./options.js";
import * as race from "./race.js";
import { legend } from "./tokens.js";

const EVERY_MILLISECONDS = 1000;
const model = document.getElementById("model");
const key = document.getElementById("key");

async function refresh() {
  try {
    const found = await figures();
    model.textContent = `${found.model}, ${found.context} tokens of context`;
    offer(found.drafters);
    draw(found);
  } catch (error) {
    model.textContent = error.status === 401 ? "this server wants a key" : "the server is not there";
    if (error.status === 401) document.getElementById("key-label").hidden = false;
  }
  setTimeout(refresh, EVERY_MILLISECONDS);
}

function tab(name) {
  for (const one of ["chat", "race"]) {
    document.getElementById(one).hidden = one !== name;
    document.getElementById(`tab-${one}`).setAttribute("aria-pressed", String(one === name));
  }
}

key.addEventListener("change", () => sessionStorage.setItem("key", key.value));
for (const name of ["chat", "race"]) document.getElementById(`tab-${name}`).addEventListener("click", () => tab(name));
legend(document.getElementById("legend"));
chat.begin();
race.begin();
refresh();
document.getElementById("prompt").focus();
