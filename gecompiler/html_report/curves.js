// The curves below, on the same axis: the card's resources, the links, the memory in use.
const CURVE = 38, CURVE_GAP = 7;
const curvesSurface = canvasOf("curves");

// Whether a link, say hccs:0-1, has an end at the card; one that names no card is everybody's.
const touches = (link, card) => {
  const ends = link.split(":")[1]?.match(/\d+/g);
  return !ends || ranks.length < 2 || ends.map(Number).includes(card);
};

// Links that are used alike, as by collectives of alike cards, are one curve.
const linkKeys = new Map();
const linkKey = (curve) => {
  if (!linkKeys.has(curve)) linkKeys.set(curve, `${curve.times.length} ${curve.parts.join()}`);
  return linkKeys.get(curve);
};
const merged = (links) => {
  const found = new Map();
  for (const curve of links) {
    const key = linkKey(curve);
    if (!found.has(key)) found.set(key, { ...curve, more: [] });
    else found.get(key).more.push(curve.resource);
  }
  return [...found.values()];
};

const shownCurves = () => {
  const own = curves.filter((c) => c.rank === state.card && c.resource !== "memory");
  const shared = curves.filter((c) => c.rank < 0 && c.resource !== "memory" && touches(c.resource, state.card));
  const memory = curves.filter((c) => c.resource === "memory" && c.rank === state.card);
  const used = (c) => Object.hasOwn(BOUND_COLOURS, c.resource) || c.mean > 0;
  return [...own.filter(used), ...merged(shared.filter(used)), ...memory];
};

const curveTop = (n) => CURVE_GAP + n * (CURVE + CURVE_GAP);
const curveName = (curve) =>
  curve.resource === "memory" ? say("memoryCurve") : resourceText(curve.resource) +
    (curve.more?.length ? ` +${curve.more.length}` : "");
const curveValue = (curve, part) =>
  curve.resource === "memory" ? bytesText(part * curve.peak) : percent(part);

// Curves are painted pixel by pixel and put on the canvas as one picture: areas and outlines of as
// many points are many times slower where no graphics card helps.
const curvePicture = document.createElement("canvas"), curvePen = curvePicture.getContext("2d");
let curvePixels = null;

const pixelsFor = (width, height) => {
  if (curvePixels?.width !== width || curvePixels.height !== height) {
    [curvePicture.width, curvePicture.height] = [width, height];
    curvePixels = curvePen.createImageData(width, height);
    curvePixels.words = new Uint32Array(curvePixels.data.buffer);
  }
  return curvePixels;
};

// #rrggbb as a pixel of an image, whatever the order of bytes.
const pixelOf = (colour) => new Uint32Array(Uint8Array.of(...channels(colour), 255).buffer)[0];

// An area under a line, up from the bottom of its rows, of which `top` is the first; the line
// also joins its steps.
const paintCurve = ({ words, width }, top, rows, means, colour) => {
  const ground = themeColour("--lane"), thick = rows / CURVE, room = rows - 2 * thick;
  const [line, area] = [colour, mixed(colour, ground, 0.55)].map(pixelOf);
  words.fill(pixelOf(ground), top * width, (top + rows) * width);
  let before = Math.round(Math.min(1, means[0]) * room);
  for (let x = 0; x < width; x += 1) {
    const high = Math.round(Math.min(1, means[x]) * room);
    const low = Math.min(before, high), most = Math.max(before, high) + thick;
    let at = (top + rows - 1) * width + x;
    for (let row = 0; row < low; row += 1, at -= width) words[at] = area;
    for (let row = low; row < most; row += 1, at -= width) words[at] = line;
    before = high;
  }
};

const drawCurves = () => {
  const shown = shownCurves();
  if (!fit(curvesSurface, plotEnd(), shown.length ? curveTop(shown.length) : 1)) return;
  const { pen, width } = curvesSurface, count = Math.ceil(width - GUTTER);
  const rows = CURVE * (coarse ? 1 : 2), columns = coarse ? Math.ceil(count / 2) : count;
  const image = shown.length ? pixelsFor(columns, shown.length * rows) : null;
  const averages = shown.map((curve, n) => {
    const means = curveMeans(curve, state.from, (timeScale() * columns) / count, columns);
    paintCurve(image, n * rows, rows, means, boundColour(curve.resource));
    return means.reduce((a, b) => a + b, 0) / columns;
  });
  if (image) curvePen.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  shown.forEach((curve, n) => {
    const top = curveTop(n);
    pen.drawImage(curvePicture, 0, n * rows, columns, rows, GUTTER, top, count, CURVE);
    pen.fillStyle = themeColour("--ink");
    pen.font = `600 12px ${FONT}`;
    pen.fillText(fitText(pen, curveName(curve), GUTTER - 16), 12, top + 12);
    pen.fillStyle = themeColour("--quiet");
    pen.font = `11px ${FONT}`;
    const text = curve.resource === "memory" ? bytesText(curve.peak) : say("average", percent(averages[n]));
    pen.fillText(text, 12, top + 27);
  });
};
