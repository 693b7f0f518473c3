// The whole run in a strip, with the part in view framed.
const overviewSurface = canvasOf("overview");
const OVERVIEW = 34;
let overviewPicture = null; // redrawn only when size or colours change

const paintOverview = (width) => {
  const canvas = document.createElement("canvas");
  const surface = { canvas, pen: canvas.getContext("2d") };
  fit(surface, width, OVERVIEW, true);
  const { pen } = surface, { of, colours } = look();
  const tall = Math.max(1, (OVERVIEW - 8) / Math.max(1, rows.length));
  const view = { from: 0, to: makespan, scale: (width - GUTTER) / makespan, left: GUTTER };
  rows.forEach((n, row) => {
    const lane = lanes[n], top = 4 + row * tall, high = Math.max(0.5, tall - (tall > 3 ? 1 : 0));
    walkBars(lane, tasks, view, of,
      (i, x0, x1) => {
        pen.globalAlpha = 0.9;
        pen.fillStyle = colours[of[i]];
        pen.fillRect(x0, top, x1 - x0, high);
      },
      (x, kind, part) => {
        pen.globalAlpha = 0.25 + 0.65 * part;
        pen.fillStyle = colours[kind];
        pen.fillRect(x, top, 1, high);
      });
  });
  return canvas;
};

const overviewX = (time) => GUTTER + (time / makespan) * plotWidth();
const overviewTime = (x) => ((x - GUTTER) / plotWidth()) * makespan;

const drawOverview = () => {
  const width = plotEnd();
  if (!fit(overviewSurface, width, OVERVIEW)) return;
  const key = `${width} ${state.colour} ${state.folds} ${state.theme} ${window.devicePixelRatio}`;
  if (overviewPicture?.key !== key) overviewPicture = { key, canvas: paintOverview(width) };
  const { pen } = overviewSurface;
  pen.drawImage(overviewPicture.canvas, 0, 0, width, OVERVIEW);
  const [x0, x1] = [overviewX(state.from), overviewX(state.to)];
  pen.globalAlpha = 0.66;
  pen.fillStyle = themeColour("--panel");
  pen.fillRect(GUTTER, 0, x0 - GUTTER, OVERVIEW);
  pen.fillRect(x1, 0, width - x1, OVERVIEW);
  pen.globalAlpha = 1;
  pen.strokeStyle = themeColour("--accent");
  pen.lineWidth = 2;
  pen.strokeRect(x0 + 1, 1, Math.max(2, x1 - x0 - 2), OVERVIEW - 2);
  pen.fillStyle = themeColour("--quiet");
  pen.font = `11px ${FONT}`;
  pen.textBaseline = "middle";
  pen.fillText(duration(state.to - state.from), 12, OVERVIEW / 2);
};
