// One stream against the chosen schedule: times, both drawn on one scale, time by type, candidates.
const stripsSurface = () => canvasOf("strips");
const STRIP = 16;

const versusBars = () => {
  const { schedule, streams } = report;
  const rows = [
    [say("single"), schedule.single_stream_us, themed(GREY)],
    [say("chosen", strategyText(streams)), schedule.makespan_us, themed("#0072b2")],
    [say("bestFound"), schedule.best_found_us, "#56b4e9"],
    [say("lowerBound", boundText(schedule)), schedule.lower_bound_us, themed("#009e73")],
  ];
  const most = Math.max(...rows.map((row) => row[1]), 1e-9);
  return make("div", { class: "versus" }, ...rows.flatMap(([text, value, colour]) =>
    [make("span", { text }), trackBar(value / most, colour), make("span", { text: us(value) })]));
};

const stripText = (lane) =>
  (ranks.length > 1 ? `${cardsText(cardsOf(lane))} ${streamText(lane)}` : streamText(lane));

const drawStrips = () => {
  if (!single || !$("strips")) return;
  const surface = stripsSurface(), width = $("comparison-body").clientWidth;
  const count = rows.length + 1, gap = 4;
  const spanned = Math.max(makespan, single.end[single.count - 1] ?? 1);
  if (!fit(surface, width, count * (STRIP + gap) + 6, true)) return;
  const { pen } = surface, colours = new Map();
  const view = { from: 0, to: spanned, scale: (width - GUTTER) / spanned, left: GUTTER };
  const draw = (source, lane, kinds, top, label) => {
    pen.fillStyle = themeColour("--quiet");
    pen.font = `11px ${FONT}`;
    pen.textBaseline = "middle";
    pen.fillText(label, 0, top + STRIP / 2);
    const colourOf = (kind) => {
      if (!colours.has(kind)) colours.set(kind, boundColour(strings[kind]));
      return colours.get(kind);
    };
    walkBars(lane, source, view, kinds,
      (i, x0, x1) => {
        pen.globalAlpha = 1;
        pen.fillStyle = colourOf(kinds[i]);
        pen.fillRect(x0, top, x1 - x0 - (x1 - x0 > 4 ? 0.6 : 0.2), STRIP);
      },
      (x, kind, part) => {
        pen.globalAlpha = 0.3 + 0.7 * part;
        pen.fillStyle = colourOf(kind);
        pen.fillRect(x, top, 1, STRIP);
      });
    pen.globalAlpha = 1;
  };
  draw(single, { first: 0, last: single.count }, single.bound, 0, say("single"));
  rows.forEach((n, row) => draw(tasks, lanes[n], tasks.bound, 6 + (row + 1) * (STRIP + gap), stripText(lanes[n])));
};

const timeByType = (types, durations) => {
  const found = new Map();
  types.forEach((type, i) => found.set(type, (found.get(type) ?? 0) + durations[i]));
  return found;
};

const typeTable = () => {
  if (!single) return null;
  const before = timeByType(single.type, single.dur), after = timeByType(tasks.type, tasks.dur);
  const both = [...new Set([...before.keys(), ...after.keys()])];
  const rows = both.map((type) => ({ type, a: before.get(type) ?? 0, b: after.get(type) ?? 0 }));
  rows.sort((x, y) => Math.max(y.a, y.b) - Math.max(x.a, x.b) || x.type - y.type);
  const change = ({ a, b }) => {
    if (a <= 0 || Math.abs(b / a - 1) < 0.0005) return "–";
    return `${b >= a ? "+" : "−"}${percent(Math.abs(b / a - 1))}`;
  };
  return make("div", {}, tableOf(say("whereTime"),
    [say("type"), say("singleTime"), say("chosenTime"), say("difference")],
    rows.slice(0, 10).map((row) => ({
      cells: [strings[row.type], duration(row.a), duration(row.b), change(row)],
    }))));
};

const candidateTable = () => {
  const rows = report.schedule.candidates ?? [];
  if (!rows.length) return null;
  return make("div", {}, tableOf(say("candidates"),
    [say("strategy"), say("streams"), say("time"), say("waitsCount"), say("note")],
    rows.map((row) => ({
      chosen: row.chosen,
      cells: [row.strategy, row.streams, row.makespan_us === null ? "–" : us(row.makespan_us),
        row.makespan_us === null ? "–" : whole(row.events), row.note],
    })), [0, 4]));
};

const showComparison = () => {
  $("comparison").hidden = !report;
  if (!report) return;
  const { schedule, streams } = report;
  const next = schedule.next_stream;
  const line = next ? say("moreStreams", next.streams, us(next.makespan_us), percent(next.gain))
    : streams.used === 1 ? say("onlyOne")
      : say(schedule.candidates.some((row) => row.streams > streams.used) ? "noMoreStreams" : "noneTried");
  const parts = streams.micro_batches ?? [], batch = parts.reduce((a, b) => a + b, 0);
  const { solver } = schedule;
  fill($("comparison-body"),
    versusBars(),
    make("p", { class: "quiet", text: line }),
    parts.length ? make("p", { class: "quiet", text: say("parts", batch, parts.length, us(schedule.period_us)) }) : null,
    solver ? make("p", { class: "quiet", text: say("solver", us(solver.makespan_us), us(solver.bound_us)) }) : null,
    single ? make("canvas", { id: "strips", role: "img", "aria-label": say("strips") }) : null,
    single ? make("p", { class: "quiet", text: say("strips") }) : null,
    make("div", { class: "columns" }, ...[typeTable(), candidateTable()].filter(Boolean)));
  drawStrips();
};
