// What the page asks of its server.

const key = () => document.getElementById("key").value || sessionStorage.getItem("key") || "";

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  const reply = await fetch(path, { ...options, headers });
  if (!reply.ok) {
    const said = await reply.json().catch(() => null);
    const failure = new Error(said?.error?.message ?? `the server answered ${reply.status}`);
    failure.status = reply.status;
    throw failure;
  }
  return reply;
}

export const figures = async () => (await ask("figures")).json();

// Yields the objects of a stream of events; `signal` ends it.
export async function* complete(body, signal) {
  const reply = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const found = JSON.parse(data);
      if (found.error) throw new Error(found.error.message);
      yield found;
    }
  }
}
