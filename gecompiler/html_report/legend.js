// Beside the timeline while nothing is picked: colours, marks, and where the time in view goes.
const timeInView = () => {
  const { of } = look(), time = new Float64Array(look().names.length);
  let count = 0;
  for (const lane of lanes) {
    let i = firstEnding(tasks.end, lane.first, lane.last, state.from);
    for (; i < lane.last && tasks.start[i] <= state.to; i += 1) {
      time[of[i]] += Math.min(tasks.end[i], state.to) - Math.max(tasks.start[i], state.from);
      count += 1;
    }
  }
  return { time, count };
};

const showLegend = () => {
  const { names, colours } = look(), { time, count } = timeInView();
  const sum = time.reduce((a, b) => a + b, 0) || 1;
  $("side-title").textContent = say("inView");
  const mark = (text, sign, colour) => {
    const node = make("span", { class: "swatch", text: sign });
    if (colour) node.style.background = colour;
    return make("li", {}, node, text);
  };
  fill($("details"),
    factList([
      [say("viewTime"), duration(state.to - state.from)],
      [say("viewTasks"), whole(count)],
    ]),
    make("h4", { text: `${say("legend")}: ${say({ bound: "colourBound", type: "colourType", group: "colourGroup" }[state.colour])}` }),
    make("ul", { id: "legend" }, ...names.map((name, n) => make("li", { class: "legend-row" },
      make("div", {}, swatch(colours[n]), make("span", { text: lookText(name) }),
        make("span", { class: "quiet", text: ` ${percent(time[n] / sum)}` })),
      trackBar(time[n] / sum, colours[n])))),
    make("h4", { text: say("pick") }),
    make("ul", {}, mark(say("criticalKey"), "", themeColour("--critical")), mark(state.arrows && syncsHidden ? say("arrowsHidden") : say("arrowKey"), "↝")),
    make("p", { class: "quiet", text: say("noOp") }));
  $("announce").textContent = "";
};
