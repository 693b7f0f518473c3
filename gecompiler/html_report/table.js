// The ops as a table: sorted, searched, and drawn only where one looks.
const ROW = 26;
const busyTotal = lanes.reduce((sum, lane) => sum + lane.busy, 0) || 1;
const slowedBy = (i) => {
  const alone = tasks.dur[i] - tasks.alone[i];
  return alone > 0 ? tasks.dur[i] / alone - 1 : 0;
};

const OP_COLUMNS = [
  { key: "op", left: true, value: nameOf, show: nameOf },
  { key: "type", left: true, value: typeOf, show: typeOf },
  { key: "stream", value: (i) => tasks.lane[i],
    show: (i) => (ranks.length > 1 ? `${tasks.rank[i]}/${tasks.stream[i]}` : String(tasks.stream[i])) },
  { key: "start", value: (i) => tasks.start[i], show: (i) => duration(tasks.start[i]) },
  { key: "duration", value: (i) => tasks.dur[i], show: (i) => duration(tasks.dur[i]) },
  { key: "alone", value: (i) => tasks.dur[i] - tasks.alone[i], show: (i) => duration(tasks.dur[i] - tasks.alone[i]) },
  { key: "slow", value: slowedBy, show: (i) => (slowedBy(i) > 0.0005 ? `+${percent(slowedBy(i))}` : "–") },
  { key: "wait", value: (i) => tasks.wait[i], show: (i) => (tasks.wait[i] > 0 ? duration(tasks.wait[i]) : "–") },
  { key: "boundBy", value: boundOf, show: (i) => resourceText(boundOf(i)) },
  { key: "hbmBytes", value: (i) => tasks.load[i] + tasks.store[i],
    show: (i) => bytesText(tasks.load[i] + tasks.store[i]) },
  { key: "path", value: (i) => tasks.critical[i], show: (i) => (tasks.critical[i] ? say("yes") : "–") },
];

const typeRows = () => {
  const found = new Map();
  for (let i = 0; i < tasks.count; i += 1) {
    if (state.matches && !state.matches[i]) continue;
    const key = tasks.type[i];
    if (!found.has(key)) found.set(key, { key, count: 0, total: 0, longest: 0, wait: 0, critical: 0, bound: new Map() });
    const row = found.get(key), dur = tasks.dur[i];
    row.count += 1;
    row.total += dur;
    row.longest = Math.max(row.longest, dur);
    row.wait += tasks.wait[i];
    row.critical += tasks.critical[i];
    row.bound.set(tasks.bound[i], (row.bound.get(tasks.bound[i]) ?? 0) + dur);
  }
  for (const row of found.values()) {
    row.most = strings[[...row.bound].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0][0]];
  }
  return [...found.values()];
};

const TYPE_COLUMNS = [
  { key: "type", left: true, value: (r) => strings[r.key], show: (r) => strings[r.key] },
  { key: "count", value: (r) => r.count, show: (r) => whole(r.count) },
  { key: "total", value: (r) => r.total, show: (r) => duration(r.total) },
  { key: "share", value: (r) => r.total, show: (r) => make("div", { class: "inline-bar" },
    trackBar(r.total / busyTotal, boundColour(r.most)), make("span", { text: percent(r.total / busyTotal) })) },
  { key: "mean", value: (r) => r.total / r.count, show: (r) => duration(r.total / r.count) },
  { key: "longest", value: (r) => r.longest, show: (r) => duration(r.longest) },
  { key: "wait", value: (r) => r.wait, show: (r) => (r.wait > 0 ? duration(r.wait) : "–") },
  { key: "boundBy", value: (r) => r.most, show: (r) => resourceText(r.most) },
];

const grid = { kind: "ops", sort: { ops: ["start", 1], types: ["total", -1] }, rows: [], active: 0 };
const gridColumns = () => (grid.kind === "ops" ? OP_COLUMNS : TYPE_COLUMNS);

const sortRows = () => {
  const [key, way] = grid.sort[grid.kind];
  const { value } = gridColumns().find((c) => c.key === key);
  const keyed = grid.rows.map((row, n) => [value(row), n, row]);
  keyed.sort(([a, n], [b, m]) => (a < b ? -way : a > b ? way : n - m));
  grid.rows = keyed.map((entry) => entry[2]);
};

const refill = () => {
  if (grid.kind === "types") grid.rows = typeRows();
  else {
    grid.rows = [];
    for (let i = 0; i < tasks.count; i += 1) if (!state.matches || state.matches[i]) grid.rows.push(i);
  }
  sortRows();
  grid.active = Math.max(0, grid.kind === "ops" ? grid.rows.indexOf(state.picked) : 0);
  $("grid-rows").style.height = `${grid.rows.length * ROW}px`;
  $("grid").setAttribute("aria-rowcount", String(grid.rows.length + 1));
  $("table-count").textContent = say("rows", whole(grid.rows.length));
  drawHead();
  drawRows();
};

const drawHead = () => {
  const [sorted, way] = grid.sort[grid.kind];
  $("grid").className = grid.kind;
  fill($("grid-head"), ...gridColumns().map((column) => {
    const head = make("div", { role: "columnheader" }, make("button", {
      type: "button", class: column.left ? "text" : "", text: say(column.key === "stream" && ranks.length > 1 ? "cardAndStream" : column.key), "data-key": column.key,
      click: () => {
        const [key, now] = grid.sort[grid.kind];
        grid.sort[grid.kind] = [column.key, key === column.key ? -now : column.left ? 1 : -1];
        $("grid-body").scrollTop = 0;
        refill();
        $("grid-head").querySelector(`[data-key="${column.key}"]`).focus();
      },
    }));
    if (column.key === sorted) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    return head;
  }));
};

const openRow = (row) => {
  if (grid.kind === "ops") {
    pick(row);
    $("timeline").scrollIntoView({ block: "nearest" });
  } else {
    setKind("ops");
    setQuery(strings[row.key]);
  }
};

const drawRows = () => {
  const body = $("grid-body");
  const first = Math.max(0, Math.floor(body.scrollTop / ROW) - 4);
  const last = Math.min(grid.rows.length, first + Math.ceil(body.clientHeight / ROW) + 8);
  const shown = [];
  for (let n = first; n < last; n += 1) {
    const row = grid.rows[n];
    const chosen = grid.kind === "ops" ? row === state.picked : n === grid.active;
    const node = make("div", { class: "row", role: "row", "aria-rowindex": n + 2, id: `row-${n}`,
      click: () => { grid.active = n; openRow(row); } },
    ...gridColumns().map((column) => {
      const value = column.show(row);
      const cell = make("div", { role: "gridcell", class: column.left ? "text" : "" }, value);
      if (typeof value === "string" && column.left) cell.title = value;
      return cell;
    }));
    node.setAttribute("aria-selected", String(chosen));
    node.style.top = `${n * ROW}px`;
    shown.push(node);
  }
  fill($("grid-rows"), ...shown);
};

const showActive = () => {
  const body = $("grid-body"), top = grid.active * ROW;
  if (top < body.scrollTop) body.scrollTop = top;
  else if (top + ROW > body.scrollTop + body.clientHeight) body.scrollTop = top + ROW - body.clientHeight;
  drawRows();
  $("grid").setAttribute("aria-activedescendant", `row-${grid.active}`);
};

const setKind = (kind) => {
  grid.kind = kind;
  $("by-op").setAttribute("aria-pressed", String(kind === "ops"));
  $("by-type").setAttribute("aria-pressed", String(kind === "types"));
  $("grid-body").scrollTop = 0;
  refill();
};

const GRID_STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };

const watchTable = () => {
  $("by-op").addEventListener("click", () => setKind("ops"));
  $("by-type").addEventListener("click", () => setKind("types"));
  $("grid-body").addEventListener("scroll", drawRows, { passive: true });
  $("grid").addEventListener("keydown", (event) => {
    if (event.target !== $("grid")) return;
    if (event.key in GRID_STEPS && grid.rows.length) {
      event.preventDefault();
      grid.active = Math.max(0, Math.min(grid.rows.length - 1, grid.active + GRID_STEPS[event.key]));
      if (grid.kind === "ops") pick(grid.rows[grid.active]);
      showActive();
    } else if (event.key === "Enter" && grid.rows.length) {
      openRow(grid.rows[grid.active]);
    }
  });
};
