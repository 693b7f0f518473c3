// The curves below, on the same axis: the card's resources, the links, the memory in use.
const CURVE = 38, CURVE_GAP = 7;
const curvesSurface = canvasOf("curves");

// Whether a link, say hccs:0-1, has an end at the card; one that names no card is everybody's.
const touches = (link, card) => {
  const ends = link.split(":")[1]?.match(/\d+/g);
  return !ends || ranks.length < 2 || ends.map(Number).includes(card);
};

const shownCurves = () => {
  const own = curves.filter((c) => c.rank === state.card && c.resource !== "memory");
  const shared = curves.filter((c) => c.rank < 0 && c.resource !== "memory" && touches(c.resource, state.card));
  const memory = curves.filter((c) => c.resource === "memory" && c.rank === state.card);
  const used = (c) => Object.hasOwn(BOUND_COLOURS, c.resource) || c.mean > 0;
  return [...own, ...shared].filter(used).concat(memory);
};

const curveTop = (n) => CURVE_GAP + n * (CURVE + CURVE_GAP);
const curveName = (curve) =>
  curve.resource === "memory" ? say("memoryCurve") : resourceText(curve.resource);
const curveValue = (curve, part) =>
  curve.resource === "memory" ? bytesText(part * curve.peak) : percent(part);

const drawCurve = (pen, curve, top, width) => {
  const count = Math.ceil(width - GUTTER), colour = boundColour(curve.resource);
  const means = curveMeans(curve, state.from, timeScale(), count);
  const bottom = top + CURVE;
  pen.fillStyle = themeColour("--lane");
  pen.fillRect(GUTTER, top, count, CURVE);
  pen.beginPath();
  pen.moveTo(GUTTER, bottom);
  for (let x = 0; x < count; x += 1) {
    const y = bottom - Math.min(1, means[x]) * (CURVE - 2);
    pen.lineTo(GUTTER + x, y);
    pen.lineTo(GUTTER + x + 1, y);
  }
  pen.lineTo(GUTTER + count, bottom);
  pen.closePath();
  pen.globalAlpha = 0.55;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.stroke();
  let sum = 0;
  for (const mean of means) sum += mean;
  return sum / Math.max(1, count);
};

const drawCurves = () => {
  const shown = shownCurves();
  if (!fit(curvesSurface, $("stage").clientWidth, shown.length ? curveTop(shown.length) : 1)) return;
  const { pen, width } = curvesSurface;
  pen.textBaseline = "middle";
  shown.forEach((curve, n) => {
    const top = curveTop(n), mean = drawCurve(pen, curve, top, width);
    pen.textAlign = "left";
    pen.fillStyle = themeColour("--ink");
    pen.font = `600 12px ${FONT}`;
    pen.fillText(fitText(pen, curveName(curve), GUTTER - 16), 12, top + 12);
    pen.fillStyle = themeColour("--quiet");
    pen.font = `11px ${FONT}`;
    const text = curve.resource === "memory" ? bytesText(curve.peak) : say("average", percent(mean));
    pen.fillText(text, 12, top + 27);
  });
};
