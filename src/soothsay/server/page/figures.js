// Live figures: how fast, how many guesses are kept, what passes cost.

const list = document.getElementById("figures");
const SVG = "http://www.w3.org/2000/svg";

export function draw(found) {
  const rows = {
    "tokens a second": number(found.tokens_per_second, 1),
    "tokens a step": number(found.tokens_per_step, 2),
    "guess length": number(found.mean_gamma, 1),
    "speedup, estimated": number(found.speedup, 2),
    "answers running": String(found.running),
    "answers waiting": String(found.waiting),
    "tokens in the cache": String(found.cache_tokens),
  };
  list.replaceChildren(
    ...Object.entries(rows).flatMap(([name, value]) => {
      const term = document.createElement("dt"), data = document.createElement("dd");
      term.textContent = name;
      data.textContent = value;
      return [term, data];
    }),
  );
  document.getElementById("acceptance").replaceChildren(...Object.entries(found.acceptance).map(bars));
  document.getElementById("costs").replaceChildren(curve(found.costs));
}

function bars([drafter, shares]) {
  const box = document.createElement("div");
  box.className = "bars";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${drafter}: ${shares.map((share) => share.toFixed(2)).join(", ")}`);
  for (const [place, share] of shares.slice(0, 12).entries()) {
    const bar = document.createElement("div"), fill = document.createElement("i");
    bar.className = "bar";
    bar.title = `${drafter}, position ${place + 1}: ${share.toFixed(2)}`;
    fill.className = `from-${drafter}`;
    fill.style.height = `${(2.8 * share).toFixed(2)}rem`;
    bar.append(fill, share.toFixed(2).replace(/^0/, ""));
    box.append(bar);
  }
  return box;
}

function curve(costs) {
  const text = document.createElement("p");
  text.className = "hint";
  text.textContent = "not measured with a fixed length of guesses";
  if (!costs) return text;
  const most = Math.max(...costs), width = 240, height = 90;
  const points = costs.map((cost, place) => [24 + (place * (width - 30)) / (costs.length - 1), height - 14 - (cost / most) * (height - 26)]);
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `1 row ${costs[0].toFixed(4)} s, ${costs.length} rows ${costs.at(-1).toFixed(4)} s`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.map((point) => point.map((at) => at.toFixed(1)).join(",")).join(" "));
  picture.append(line, label(24, height - 2, "1 row"), label(width - 44, height - 2, `${costs.length} rows`));
  picture.append(label(24, 10, `${(1000 * most).toFixed(0)} ms`));
  return picture;
}

function label(x, y, text) {
  const made = document.createElementNS(SVG, "text");
  made.setAttribute("x", x);
  made.setAttribute("y", y);
  made.textContent = text;
  return made;
}

const number = (value, digits) => (value === null ? "-" : value.toFixed(digits));
