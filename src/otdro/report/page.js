"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const [left, top, width, height] = data.frame;
  const slider = byId("delta");
  const view = byId("view");
  const choice = { x: byId("axis-x"), y: byId("axis-y") };
  const kinds = { starts: byId("starts").children, ends: byId("ends").children, moves: byId("moves").children };
  const count = data.rows.length;
  // rows in the order in which they are moved: what the arrow keys step through
  const order = [...data.rows.keys()].sort((a, b) => (data.budget[a] ?? Infinity) - (data.budget[b] ?? Infinity));
  const invitation = byId("row-says").textContent;
  let current = -1;

  const axis = (name) => Number(choice[name].value);
  const across = (k, u) => left + ((u - data.axes[k].low) / (data.axes[k].high - data.axes[k].low)) * width;
  const upward = (k, u) => top + ((data.axes[k].high - u) / (data.axes[k].high - data.axes[k].low)) * height;
  const clamp = (v, low, high) => Math.min(Math.max(v, low), high);

  // the part of row i that the adversary of budget delta makes wrong
  function share(i, delta) {
    if (data.spend[i] === null || data.budget[i] === null) return 0;
    return data.spend[i] === 0 ? 1 : clamp((delta - data.budget[i]) / data.spend[i], 0, 1);
  }

  function place(i, table) {
    const [a, b] = [axis("x"), axis("y")];
    const [u, v] = [table[a][i], table[b][i]];
    return u === null || v === null ? [-20, -20] : [across(a, u), upward(b, v)];
  }

  function drawMoves() {
    const delta = data.deltas[slider.valueAsNumber];
    for (let i = 0; i < count; i++) {
      const part = share(i, delta);
      kinds.starts[i].setAttribute("opacity", (1 - 0.7 * part).toFixed(2));
      kinds.ends[i].setAttribute("opacity", part.toFixed(2));
      kinds.moves[i].setAttribute("visibility", part > 0 ? "visible" : "hidden");
    }
  }

  function drawPlaces() {
    for (let i = 0; i < count; i++) {
      const [x, y] = place(i, data.before);
      const [u, v] = place(i, data.after);
      kinds.starts[i].setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      kinds.ends[i].setAttribute("transform", `translate(${u.toFixed(1)} ${v.toFixed(1)})`);
      const line = kinds.moves[i];
      line.setAttribute("x1", x.toFixed(1));
      line.setAttribute("y1", y.toFixed(1));
      line.setAttribute("x2", u.toFixed(1));
      line.setAttribute("y2", v.toFixed(1));
    }
    ring();
  }

  const element = (kind, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  function drawAxes() {
    const [a, b] = [axis("x"), axis("y")];
    const base = top + height;
    const x = data.axes[a].ticks.flatMap((tick, k) => {
      const p = across(a, tick).toFixed(1);
      return [
        element("line", { x1: p, x2: p, y1: top, y2: base }),
        element("text", { x: p, y: base + 15, "text-anchor": "middle" }, data.axes[a].says[k]),
      ];
    });
    const y = data.axes[b].ticks.flatMap((tick, k) => {
      const p = upward(b, tick);
      return [
        element("line", { x1: left, x2: left + width, y1: p.toFixed(1), y2: p.toFixed(1) }),
        element("text", { x: left - 6, y: (p + 4).toFixed(1), "text-anchor": "end" }, data.axes[b].says[k]),
      ];
    });
    const labels = [view.querySelector(".axis-x .label"), view.querySelector(".axis-y .label")];
    labels[0].textContent = data.axes[a].across;
    labels[1].textContent = data.axes[b].up;
    view.querySelector(".axis-x").replaceChildren(...x, labels[0]);
    view.querySelector(".axis-y").replaceChildren(...y, labels[1]);
  }

  // slopes of the scores in the two coordinates: G^-1 (B d1, B d2), the pseudo-inverse of parallel axes
  function slopes(model, a, b) {
    const g = data.gram[a][b];
    const determinant = data.gram[a][a] * data.gram[b][b] - g * g;
    const inverse = determinant > 1e-9
      ? [data.gram[b][b] / determinant, -g / determinant, data.gram[a][a] / determinant]
      : [data.gram[a][a], g, data.gram[b][b]].map((v) => v / (data.gram[a][a] + data.gram[b][b]) ** 2);
    return model.slopes.map((s) => [inverse[0] * s[a] + inverse[1] * s[b], inverse[1] * s[a] + inverse[2] * s[b]]);
  }

  // the part of the line where scores k and m are equal, inside the frame and above all others
  function segment(model, found, k, m, a, b) {
    const g = [found[k][0] - found[m][0], found[k][1] - found[m][1]];
    const size = g[0] * g[0] + g[1] * g[1];
    if (size === 0) return null;
    const center = [data.axes[a].center, data.axes[b].center];
    const excess = model.at[k] - model.at[m];
    const start = [center[0] - (g[0] * excess) / size, center[1] - (g[1] * excess) / size];
    const along = [-g[1] / Math.sqrt(size), g[0] / Math.sqrt(size)];
    const bounds = [
      [start[0] - data.axes[a].low, along[0]],
      [data.axes[a].high - start[0], -along[0]],
      [start[1] - data.axes[b].low, along[1]],
      [data.axes[b].high - start[1], -along[1]],
    ];
    for (let other = 0; other < found.length; other++) {
      if (other === k || other === m) continue;
      const s = [found[k][0] - found[other][0], found[k][1] - found[other][1]];
      const value = model.at[k] - model.at[other] + s[0] * (start[0] - center[0]) + s[1] * (start[1] - center[1]);
      bounds.push([value, s[0] * along[0] + s[1] * along[1]]);
    }
    let [low, high] = [-Infinity, Infinity];
    for (const [value, rate] of bounds) {
      if (rate === 0 && value < 0) return null;
      if (rate > 0) low = Math.max(low, -value / rate);
      if (rate < 0) high = Math.min(high, -value / rate);
    }
    return low < high ? [low, high].map((t) => [start[0] + t * along[0], start[1] + t * along[1]]) : null;
  }

  // the boundary of a classifier; a model of numbers has none
  function drawLines() {
    const [a, b] = [axis("x"), axis("y")];
    const found = data.own === null ? [] : slopes(data.own, a, b);
    const lines = [];
    for (let k = 0; k < found.length; k++) {
      for (let m = k + 1; m < found.length; m++) {
        const ends = segment(data.own, found, k, m, a, b);
        if (ends === null) continue;
        const [p, q] = ends;
        lines.push(element("line", {
          x1: across(a, p[0]).toFixed(2), y1: upward(b, p[1]).toFixed(2),
          x2: across(a, q[0]).toFixed(2), y2: upward(b, q[1]).toFixed(2),
        }));
      }
    }
    byId("own-lines").replaceChildren(...lines);
  }

  function drawCursors(stop) {
    for (const [name, places] of Object.entries(data.cursors)) {
      const cursor = byId(`cursor-${name}`);
      const [x, y] = places[stop];
      cursor.querySelector("line").setAttribute("x1", x);
      cursor.querySelector("line").setAttribute("x2", x);
      cursor.querySelector("circle").setAttribute("cx", x);
      cursor.querySelector("circle").setAttribute("cy", y);
    }
  }

  function moveTo(stop) {
    const says = data.texts[stop];
    for (const [name, text] of Object.entries(says)) byId(`at-${name}`).textContent = text;
    byId("delta-out").textContent = says.delta;
    const summary = `delta ${says.delta}: certified accuracy ${says.accuracy}, worst-case loss ${says.risk}`;
    slider.setAttribute("aria-valuetext", summary);
    drawMoves();
    drawCursors(stop);
    return summary;
  }

  function turn() {
    drawAxes();
    drawPlaces();
    drawLines();
  }

  function ring() {
    const [x, y] = current < 0 ? [-20, -20] : place(current, data.before);
    byId("ring").setAttribute("cx", x);
    byId("ring").setAttribute("cy", y);
  }

  function point(i) {
    if (i === current) return;
    current = i;
    byId("row-says").textContent = i < 0 ? invitation : data.says[i];
    ring();
  }

  function nearest(event) {
    const box = view.getBoundingClientRect();
    const unit = view.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * unit, (event.clientY - box.top) * unit];
    let [best, least] = [-1, 18 * 18];
    for (let i = 0; i < count; i++) {
      const [u, v] = place(i, data.before);
      const far = (u - x) ** 2 + (v - y) ** 2;
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  function step(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") point(-1);
    if (by === undefined) return;
    event.preventDefault();
    const at = order.indexOf(current);
    point(order[at < 0 ? 0 : clamp(at + by, 0, count - 1)]);
  }

  slider.addEventListener("input", () => moveTo(slider.valueAsNumber));
  slider.addEventListener("change", () => { byId("live").textContent = moveTo(slider.valueAsNumber); });
  for (const list of Object.values(choice)) list.addEventListener("change", turn);
  view.addEventListener("pointermove", (event) => point(nearest(event)));
  view.addEventListener("pointerdown", (event) => point(nearest(event)));
  view.addEventListener("pointerleave", () => point(-1));
  view.addEventListener("keydown", step);
  for (const button of document.querySelectorAll("button[data-row]")) {
    button.addEventListener("click", () => {
      point(data.rows.indexOf(Number(button.dataset.row)));
      view.scrollIntoView({ block: "nearest" });
    });
  }
  const fitted = byId("to-fitted");
  if (slider.dataset.fitted !== "") {
    fitted.hidden = false;
    fitted.addEventListener("click", () => {
      slider.value = slider.dataset.fitted;
      byId("live").textContent = moveTo(slider.valueAsNumber);
    });
  }
  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;
  // a reloaded page keeps the choices of its reader
  turn();
  moveTo(slider.valueAsNumber);
  document.documentElement.dataset.ready = "yes";
})();
