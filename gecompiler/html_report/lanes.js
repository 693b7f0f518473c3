// The bars: a lane per stream and card.
const LANE = 40, LANE_GAP = 8, AXIS = 22;
const TALLEST = 32000; // px: browsers show nothing on a canvas that is taller than about 32,767

const canvasOf = (id) => {
  const canvas = $(id);
  return { canvas, pen: canvas.getContext("2d") };
};

// While the view moves on a screen that cannot keep up, a pixel of the canvas is one of CSS; main.js
// decides so, and draws all pixels as soon as it rests.
let coarse = false;

// Sizes a canvas for its place and for the screen's pixels; true where it has room.
const fit = (surface, width, height, lasting = false) => {
  const sharp = coarse && !lasting ? 1 : Math.max(1, window.devicePixelRatio || 1);
  const ratio = Math.min(sharp, TALLEST / Math.max(1, height));
  const { canvas, pen } = surface;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  [surface.width, surface.height] = [width, height];
  return width > GUTTER + 20;
};

const lanesSurface = canvasOf("lanes");
const rowTop = (row) => AXIS + LANE_GAP / 2 + row * (LANE + LANE_GAP);
const laneTop = (n) => rowTop(rowOf[n]);
const lanesHeight = () => rowTop(rows.length) + LANE_GAP / 2;
// What a scrollbar beside the lanes leaves of the width: the same axis for all three plots.
const plotEnd = () => $("lanes-scroll").clientWidth;
const plotWidth = () => Math.max(1, plotEnd() - GUTTER);
const timeScale = () => plotWidth() / (state.to - state.from);
const xOf = (time) => GUTTER + (time - state.from) * timeScale();
const timeOf = (x) => state.from + (x - GUTTER) / timeScale();

const drawAxis = (pen, width, height) => {
  const step = niceStep(state.to - state.from, Math.max(2, plotWidth() / 110));
  pen.font = `11px ${FONT}`;
  pen.textBaseline = "middle";
  pen.textAlign = "center";
  pen.strokeStyle = themeColour("--line");
  pen.fillStyle = themeColour("--quiet");
  pen.lineWidth = 1;
  for (let t = Math.ceil(state.from / step) * step; t <= state.to; t += step) {
    const x = Math.round(xOf(t)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, height);
    pen.stroke();
    if (x > GUTTER - 1 && x < width - 24) pen.fillText(axisText(t, step), Math.max(x, GUTTER + 22), 9);
  }
};

const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', sans-serif";

// Widths of texts by font: the same names are drawn again at every step of a zoom.
const widths = new Map();
const widthOf = (pen, text) => {
  const key = `${pen.font}\u0000${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    if (widths.size > 50000) widths.clear();
    widths.set(key, (found = pen.measureText(text).width));
  }
  return found;
};

// A name's telling end, as long as fits: module paths differ at the end.
const fitText = (pen, text, room) => {
  const wide = widthOf(pen, "m");
  if (room < wide * 2.5) return "";
  let shown = text;
  if (widthOf(pen, shown) <= room) return shown;
  const parts = text.split("/");
  while (parts.length > 1) {
    parts.shift();
    shown = parts.join("/");
    if (shown && widthOf(pen, shown) <= room) return shown;
  }
  shown = shown || text;
  let keep = Math.floor(room / (widthOf(pen, shown) / shown.length)) - 1;
  while (keep > 1 && widthOf(pen, `${shown.slice(0, keep)}…`) > room) keep -= 1;
  return keep > 1 ? `${shown.slice(0, keep)}…` : "";
};

const drawLabel = (pen, lane, top) => {
  pen.textAlign = "left";
  pen.fillStyle = themeColour("--ink");
  pen.font = `600 12px ${FONT}`;
  const several = ranks.length > 1, busy = percent(lane.busy / makespan);
  const [head, note] = several
    ? [cardsText(cardsOf(lane)), say("laneNote", streamText(lane), busy)] : [streamText(lane), busy];
  pen.fillText(fitText(pen, head, GUTTER - 14), 12, top + LANE / 2 - 7);
  pen.fillStyle = themeColour("--quiet");
  pen.font = `11px ${FONT}`;
  pen.fillText(fitText(pen, note, GUTTER - 14), 12, top + LANE / 2 + 8);
};

const drawLane = (pen, lane, n, ink) => {
  const top = laneTop(n), { of, colours, inks } = look(), { matches } = state;
  const view = { from: state.from, to: state.to, scale: timeScale(), left: GUTTER };
  pen.font = `11px ${FONT}`;
  pen.textAlign = "left";
  const bar = (i, x0, x1) => {
    const left = Math.max(x0, GUTTER - 2), right = Math.min(x1, lanesSurface.width + 2);
    pen.globalAlpha = matches && !matches[i] ? 0.14 : 1;
    pen.fillStyle = colours[of[i]];
    const gap = right - left > 4 ? 1 : 0.4; // so that neighbours of one colour stay two bars
    pen.fillRect(left, top, right - left - gap, LANE - 5);
    if (right - left > 26) {
      pen.fillStyle = inks[of[i]];
      const from = Math.max(left, GUTTER) + 5, room = right - from - 5;
      const type = fitText(pen, typeOf(i), room);
      if (type) {
        pen.fillText(type, from, top + 11);
        pen.fillText(fitText(pen, shortName(i), room), from, top + 25);
      }
    }
    if (state.critical && tasks.critical[i]) {
      pen.globalAlpha = 1;
      pen.fillStyle = ink.critical;
      pen.fillRect(left, top + LANE - 4, right - left, 4);
    }
  };
  const column = (x, kind, part) => {
    pen.globalAlpha = 0.3 + 0.7 * part;
    pen.fillStyle = colours[kind];
    pen.fillRect(x, top, 1, LANE - 5);
  };
  const kinds = of;
  if (matches) drawFaded(lane, view, kinds, bar, column, pen);
  else walkBars(lane, tasks, view, kinds, bar, column);
  if (state.critical) drawCriticalColumns(pen, lane, view, top, ink);
  pen.globalAlpha = 1;
};

// With a search on, columns show in full only where a match lies in them.
const drawFaded = (lane, view, kinds, bar, column, pen) => {
  const hits = [];
  walkBars(lane, tasks, view, kinds, bar, (x, kind, part) => {
    column(x, kind, part * 0.1 - 0.25);
  });
  let i = firstEnding(tasks.end, lane.first, lane.last, view.from);
  for (; i < lane.last && tasks.start[i] < view.to; i += 1) {
    if (!state.matches[i] || (tasks.end[i] - tasks.start[i]) * view.scale >= 1.5) continue;
    const x = Math.floor(view.left + (tasks.start[i] - view.from) * view.scale);
    if (x !== hits[hits.length - 1]) {
      hits.push(x);
      column(x, kinds[i], 1);
    }
  }
  pen.globalAlpha = 1;
};

const drawCriticalColumns = (pen, lane, view, top, ink) => {
  pen.globalAlpha = 1;
  pen.fillStyle = ink.critical;
  let last = -1;
  let i = firstEnding(tasks.end, lane.first, lane.last, view.from);
  for (; i < lane.last && tasks.start[i] < view.to; i += 1) {
    if (!tasks.critical[i] || (tasks.end[i] - tasks.start[i]) * view.scale >= 1.5) continue;
    const x = Math.floor(view.left + (tasks.start[i] - view.from) * view.scale);
    if (x !== last) pen.fillRect(x, top + LANE - 4, 1, 4);
    last = x;
  }
};

const drawLanes = () => {
  if (!fit(lanesSurface, plotEnd(), lanesHeight())) return;
  const { pen, width, height } = lanesSurface;
  const ink = { critical: themeColour("--critical"), lane: themeColour("--lane") };
  pen.textBaseline = "middle";
  rows.forEach((n) => {
    pen.fillStyle = ink.lane;
    pen.fillRect(GUTTER, laneTop(n), width - GUTTER, LANE - 5);
  });
  drawAxis(pen, width, height);
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, 0, width - GUTTER, height);
  pen.clip();
  rows.forEach((n) => drawLane(pen, lanes[n], n, ink));
  drawMarks(pen, ink);
  pen.restore();
  rows.forEach((n) => drawLabel(pen, lanes[n], laneTop(n)));
};
