// Over the bars: sync arrows and what is picked.
const MOST_ARROWS = 300; // those of the picked op are drawn always

const drawArrow = (pen, from, to) => {
  const x0 = xOf(tasks.end[from]), x1 = xOf(tasks.start[to]);
  const down = laneTop(tasks.lane[to]) > laneTop(tasks.lane[from]);
  const y0 = laneTop(tasks.lane[from]) + (down ? LANE - 8 : 3);
  const y1 = laneTop(tasks.lane[to]) + (down ? 1 : LANE - 6);
  const bend = Math.max(8, Math.min(60, Math.abs(x1 - x0) / 2));
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x1 + 1, y1);
  pen.lineTo(x1 - 6, y1 - 3.5);
  pen.lineTo(x1 - 6, y1 + 3.5);
  pen.fill();
};

const eventsInView = () => {
  const found = [];
  const margin = (state.to - state.from) * 0.02;
  for (let e = 0; e < events.count; e += 1) {
    const a = tasks.end[events.from[e]], b = tasks.start[events.to[e]];
    if (Math.max(a, b) >= state.from - margin && Math.min(a, b) <= state.to + margin) found.push(e);
  }
  return found;
};

// Arrows that start and end in the same pixels are one. Too many of them hide what they join:
// then there are none until one looks closer, which the legend says.
let syncsHidden = false;

const shownEvents = () => {
  const drawn = new Map();
  for (const e of eventsInView()) {
    const from = events.from[e], to = events.to[e];
    const key = `${Math.round(xOf(tasks.end[from]))} ${Math.round(xOf(tasks.start[to]))} ` +
      `${rowOf[tasks.lane[from]]} ${rowOf[tasks.lane[to]]}`;
    if (!drawn.has(key)) drawn.set(key, e);
    if (drawn.size > MOST_ARROWS) break;
  }
  syncsHidden = drawn.size > MOST_ARROWS;
  return syncsHidden ? [] : [...drawn.values()];
};

const drawEvents = (pen) => {
  pen.strokeStyle = pen.fillStyle = themeColour("--ink");
  pen.lineWidth = 1;
  pen.globalAlpha = 0.62;
  for (const e of shownEvents()) drawArrow(pen, events.from[e], events.to[e]);
  pen.globalAlpha = 1;
};

const drawPicked = (pen, ink) => {
  const i = state.picked;
  if (i < 0) return;
  pen.strokeStyle = pen.fillStyle = themeColour("--ink");
  pen.lineWidth = 2;
  for (let e = 0; e < events.count; e += 1) {
    if (events.from[e] === i || events.to[e] === i) drawArrow(pen, events.from[e], events.to[e]);
  }
  const x0 = xOf(tasks.start[i]), wide = Math.max(3, xOf(tasks.end[i]) - x0);
  const top = laneTop(tasks.lane[i]);
  pen.strokeRect(x0 - 1, top - 1, wide + 1, LANE - 3);
  const cause = tasks.waited[i];
  if (cause >= 0 && tasks.lane[cause] !== tasks.lane[i]) {
    pen.setLineDash([4, 3]);
    pen.strokeStyle = ink.critical;
    pen.strokeRect(xOf(tasks.start[cause]) - 1, laneTop(tasks.lane[cause]) - 1,
      Math.max(3, xOf(tasks.end[cause]) - xOf(tasks.start[cause])) + 1, LANE - 3);
    pen.setLineDash([]);
  }
};

const drawMarks = (pen, ink) => {
  if (state.arrows) drawEvents(pen);
  drawPicked(pen, ink);
};
