// Mouse, pen and finger: hover, click, wheel, drag, shift-drag, and the overview's frame.
const CLICK_MOVES = 4; // px that a click may move

const place = (event) => {
  const box = $("stage").getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
};

// The task under a point of the lanes; of bars narrower than a pixel the nearest one.
const taskAt = (event) => {
  const box = lanesSurface.canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  if (x < GUTTER) return -1;
  const row = Math.floor((y - rowTop(0) + 1) / (LANE + LANE_GAP));
  if (row < 0 || row >= rows.length || y > rowTop(row) + LANE) return -1;
  const lane = lanes[rows[row]], time = timeOf(x), near = 2.5 / timeScale();
  const after = firstEnding(tasks.end, lane.first, lane.last, time);
  const off = (i) => Math.max(0, tasks.start[i] - time, time - tasks.end[i]);
  const found = [after, after - 1].filter((i) => i >= lane.first && i < lane.last && off(i) <= near);
  return found.sort((a, b) => off(a) - off(b))[0] ?? -1;
};

const hideTip = () => ($("tip").hidden = $("cursor").hidden = true);

const showTip = (event, lines) => {
  const tip = $("tip"), { x, y } = place(event), stage = $("stage");
  fill(tip, ...lines.map((text, i) => make(i ? "div" : "b", { text })));
  tip.hidden = false;
  const left = Math.min(x + 14, stage.clientWidth - tip.offsetWidth - 6);
  const below = y + 18 + tip.offsetHeight < stage.clientHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(2, below ? y + 18 : y - tip.offsetHeight - 10)}px`;
};

const tipOf = (i) => [
  nameOf(i),
  `${typeOf(i)} · ${duration(tasks.dur[i])} · ${laneText(lanes[tasks.lane[i]])}`,
  `${say("boundBy")}: ${resourceText(boundOf(i))}` +
    (tasks.wait[i] > 0 ? ` · ${say("waited")}: ${duration(tasks.wait[i])}` : ""),
];

const hover = (event) => {
  const { x, y } = place(event);
  if (x < GUTTER || y < OVERVIEW) return hideTip();
  $("cursor").hidden = false;
  $("cursor").style.left = `${x}px`;
  const time = timeOf(x);
  if (event.target === curvesSurface.canvas) {
    const names = (c) => (c.more?.length ? [c.resource, ...c.more].join(", ") : curveName(c));
    const values = shownCurves().map((c) => `${names(c)} ${curveValue(c, valueAt(c, time))}`);
    return showTip(event, [duration(time), ...values]);
  }
  const i = event.target === lanesSurface.canvas ? taskAt(event) : -1;
  if (i < 0) return showTip(event, [duration(time)]);
  return showTip(event, tipOf(i));
};

// Two fingers: what is between them stays between them.
const fingers = new Map();

const pinch = (event) => {
  const other = [...fingers].find(([id]) => id !== event.pointerId);
  const before = fingers.get(event.pointerId), now = place(event).x;
  if (!before || !other) return;
  fingers.set(event.pointerId, now);
  const [a, b] = [timeOf(before), timeOf(other[1])], apart = Math.abs(now - other[1]);
  if (apart < 8 || Math.abs(before - other[1]) < 8) return;
  const length = (Math.abs(a - b) * plotWidth()) / apart;
  const from = b - ((other[1] - GUTTER) / plotWidth()) * length;
  setView(from, from + length);
};

const watchFingers = (stage) => {
  const lift = (event) => fingers.delete(event.pointerId);
  stage.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") fingers.set(event.pointerId, place(event).x);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    if (fingers.size === 2) pinch(event);
    else fingers.set(event.pointerId, place(event).x);
  });
  for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, lift);
};

const startDrag = (event) => {
  if (event.button !== 0) return;
  const stage = $("stage"), begun = place(event);
  if (begun.x < GUTTER) return;
  const held = { from: state.from, to: state.to, moved: 0 };
  const strip = event.target === overviewSurface.canvas;
  const range = event.shiftKey && !strip;
  stage.setPointerCapture(event.pointerId);
  if (strip) moveFrame(begun.x);

  const move = (next) => {
    if (next.pointerId !== event.pointerId || fingers.size > 1) {
      held.moved = CLICK_MOVES; // a pinch is no click, and moves the view itself
      [held.from, held.to, begun.x] = [state.from, state.to, place(next).x];
      return undefined;
    }
    const { x } = place(next);
    held.moved = Math.max(held.moved, Math.abs(x - begun.x));
    if (strip) return moveFrame(x);
    if (held.moved < CLICK_MOVES) return undefined;
    hideTip();
    if (range) return showBrush(begun.x, x);
    stage.classList.add("dragging");
    const shift = ((begun.x - x) / plotWidth()) * (held.to - held.from);
    const start = Math.max(0, Math.min(makespan - (held.to - held.from), held.from + shift));
    return setView(start, start + held.to - held.from);
  };
  const end = (next) => {
    if (next.pointerId !== event.pointerId) return;
    stage.removeEventListener("pointermove", move);
    stage.removeEventListener("pointerup", end);
    stage.removeEventListener("pointercancel", end);
    stage.classList.remove("dragging");
    $("brush").hidden = true;
    if (next.type === "pointercancel" || strip) return;
    const { x } = place(next);
    if (held.moved < CLICK_MOVES) clickAt(event, next);
    else if (range) setView(timeOf(Math.min(begun.x, x)), timeOf(Math.max(begun.x, x)));
  };
  stage.addEventListener("pointermove", move);
  stage.addEventListener("pointerup", end);
  stage.addEventListener("pointercancel", end);
};

const clickAt = (down, up) => {
  if (down.target !== lanesSurface.canvas) return;
  pick(taskAt(up), false);
};

const showBrush = (a, b) => {
  const brush = $("brush");
  brush.hidden = false;
  brush.style.left = `${Math.max(GUTTER, Math.min(a, b))}px`;
  brush.style.width = `${Math.abs(a - b)}px`;
};

// The overview's frame goes where the pointer is.
const moveFrame = (x) => {
  const length = state.to - state.from;
  const start = Math.max(0, Math.min(makespan - length, overviewTime(x) - length / 2));
  setView(start, start + length);
};

// Zooming out of the whole, and over the labels, leaves the wheel to the page.
const wheel = (event) => {
  const { x } = place(event);
  if (x < GUTTER) return;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const step = (event.deltaX || event.deltaY) / plotWidth();
    if (pan(step)) event.preventDefault();
    return;
  }
  const lines = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1;
  const factor = Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.0022);
  const whole_ = state.from <= 0 && state.to >= makespan;
  if (factor < 1 && whole_) return;
  event.preventDefault();
  hideTip();
  zoom(factor, event.target === overviewSurface.canvas ? overviewTime(x) : timeOf(x));
};

const watchPointer = () => {
  const stage = $("stage");
  watchFingers(stage);
  stage.addEventListener("pointerdown", (event) => fingers.size < 2 && startDrag(event));
  stage.addEventListener("pointermove", (event) => event.buttons === 0 && hover(event));
  stage.addEventListener("pointerleave", hideTip);
  stage.addEventListener("wheel", wheel, { passive: false });
  stage.addEventListener("dblclick", (event) => {
    const i = event.target === lanesSurface.canvas ? taskAt(event) : -1;
    if (i >= 0) reveal(i, true);
  });
};
