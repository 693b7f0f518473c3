// Puts it together: languages, themes, buttons, and when what is drawn again.
let asked = false;
let slowest = 0;

const draw = () => {
  asked = false;
  const begun = performance.now();
  coarse = moving && slow;
  drawOverview();
  drawLanes();
  drawCurves();
  if (state.picked < 0) showLegendSoon();
  const took = performance.now() - begun;
  slowest = Math.max(slowest, took);
  noteDraw(begun, took);
  if (moving && !coarse) requestAnimationFrame(() => (slow ||= performance.now() - begun > SLOW));
};

// While the view moves, frames that take long make the next ones coarse; once it rests all is sharp.
const SLOW = 40, REST = 150; // ms
let moving = false, slow = false, rests = 0;

const move = () => {
  moving = true;
  clearTimeout(rests);
  rests = setTimeout(() => {
    moving = false;
    if (coarse) redraw();
  }, REST);
  redraw();
};

// The legend is rebuilt at once, and then not for every frame of a zoom but at its end.
const LEGEND_PAUSE = 120; // ms
let legendShown = -LEGEND_PAUSE, legendWaits = 0;

const showLegendSoon = () => {
  const left = LEGEND_PAUSE - (performance.now() - legendShown);
  clearTimeout(legendWaits);
  if (left > 0) {
    legendWaits = setTimeout(() => state.picked < 0 && showLegendSoon(), left);
    return;
  }
  showLegend();
  legendShown = performance.now();
};

// For the browser's own profiler; browsers that cannot note a time draw all the same.
const noteDraw = (start, length) => {
  if (performance.getEntriesByName("gec-draw").length >= 1000) performance.clearMeasures("gec-draw");
  try {
    performance.measure("gec-draw", { start, duration: length });
  } catch {
    // an older browser
  }
};

const redraw = () => {
  if (!asked) requestAnimationFrame(draw);
  asked = true;
};

const choices = (select, rows, value, act) => {
  fill(select, ...rows.map(([key, text]) => make("option", { value: key, text })));
  select.value = value;
  select.onchange = () => act(select.value);
};

const showTexts = () => {
  document.documentElement.lang = state.lang === "zh" ? "zh-CN" : "en";
  document.querySelectorAll("[data-t]").forEach((node) => (node.textContent = say(node.dataset.t)));
  $("lang").textContent = say("otherLanguage");
  $("help-button").textContent = `? ${say("help")}`;
  $("theme").textContent = say(state.theme === "dark" ? "toLight" : "toDark");
  $("zoom-in").setAttribute("aria-label", say("zoomIn"));
  $("zoom-out").setAttribute("aria-label", say("zoomOut"));
  $("stage").setAttribute("aria-label", say("stageLabel", whole(tasks.count), lanes.length));
  for (const id of ["find", "table-find"]) {
    $(id).placeholder = say("search");
    $(id).setAttribute("aria-label", say("search"));
  }
  const colours = [["bound", say("colourBound")], ["type", say("colourType")], ["group", say("colourGroup")]];
  choices($("colour"), colours, state.colour, (value) => {
    state.colour = value;
    changed("look");
  });
  $("card-choice").hidden = ranks.length < 2;
  $("folds").hidden = !alike;
  choices($("card"), ranks.map((rank) => [rank, String(rank)]), state.card, (value) => {
    state.card = Number(value);
    changed("look");
  });
};

const showAll = () => {
  showTexts();
  showSummary();
  showDetails();
  refill();
  showCards();
  showComparison();
  showAttention();
  showWarnings();
  showFound();
  redraw();
};

const showFound = () => {
  $("found").textContent = state.matches ? say("matches", whole(state.matchCount), whole(tasks.count)) : "";
};

const setTheme = (theme) => {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = say(theme === "dark" ? "toLight" : "toDark");
  drawStrips();
  changed("look");
};

const watchButtons = () => {
  $("lang").addEventListener("click", () => {
    state.lang = state.lang === "zh" ? "en" : "zh";
    showAll();
  });
  $("theme").addEventListener("click", () => setTheme(state.theme === "dark" ? "light" : "dark"));
  $("help-button").addEventListener("click", showHelp);
  $("zoom-in").addEventListener("click", () => zoom(1.5));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
  $("zoom-fit").addEventListener("click", () => setView(0, makespan));
  for (const name of ["critical", "arrows", "folds"]) $(name).addEventListener("click", () => toggle(name));
};

const begin = () => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  state.theme = dark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme;
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  watchPointer();
  watchKeys();
  watchSearch();
  watchTable();
  watchButtons();
  on("look", () => (legendShown = -LEGEND_PAUSE)); // other colours: the legend at once
  on("look", redraw);
  on("look", () => {
    showCards();
    drawStrips();
  });
  on("view", move);
  on("pick", () => {
    if (state.picked >= 0) {
      state.card = tasks.rank[state.picked];
      $("card").value = String(state.card);
      showLane(tasks.lane[state.picked]);
    }
    showDetails();
    drawRows();
    redraw();
  });
  on("search", () => {
    showFound();
    refill();
    redraw();
  });
  const sizes = new ResizeObserver(() => {
    redraw();
    drawRows();
    drawStrips();
  });
  for (const id of ["stage", "lanes-scroll"]) sizes.observe($(id)); // a scrollbar takes room, too
  showAll();
  draw();
  performance.mark("gec-ready");
};

// Scrolls a lane into the part of the lanes that is shown.
const showLane = (n) => {
  const box = $("lanes-scroll"), top = laneTop(n);
  if (top < box.scrollTop) box.scrollTop = top - LANE_GAP;
  else if (top + LANE > box.scrollTop + box.clientHeight) box.scrollTop = top + LANE - box.clientHeight + LANE_GAP;
};

begin();

// For tests and for scripts of one's own: what is shown, read only.
window.gecReport = Object.freeze({
  view: () => [state.from, state.to], picked: () => state.picked, matches: () => state.matchCount,
  tasks: tasks.count, taskName: nameOf, slowest: () => slowest, makespan, gutter: GUTTER,
  coarse: () => coarse,
  longest: () => tasks.dur.indexOf(tasks.dur.reduce((a, b) => Math.max(a, b), 0)),
  pointOf: (i) => [(xOf(tasks.start[i]) + xOf(tasks.end[i])) / 2, laneTop(tasks.lane[i]) + LANE / 2],
});
