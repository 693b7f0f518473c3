// Okabe and Ito's colours, told apart with any kind of colour vision. Vermillion is kept for
// the critical path; grey is lighter (darker on dark ground) than the links' colour, which is grey to
// some. One number per task says which colour it has.
const OKABE_ITO = ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#cc79a7", "#f0e442", "#8c6bb1"];
const GREY = "#b9c1ca";
const BOUND_COLOURS = {
  cube: "#0072b2", vector: "#e69f00", hbm: "#009e73", l2: "#56b4e9", fixed: GREY, peers: "#f0e442",
  memory: "#8c6bb1",
};
const LINK_COLOUR = "#cc79a7";
const LIGHTER = { "#0072b2": "#2b8ad1", "#009e73": "#12ab80", "#8c6bb1": "#a283c6", "#b9c1ca": "#5f6975" }; // on dark ground
const themed = (colour) => (state.theme === "dark" && LIGHTER[colour]) || colour;
const boundColour = (name) =>
  themed(Object.hasOwn(BOUND_COLOURS, name) ? BOUND_COLOURS[name] : name ? LINK_COLOUR : GREY);

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

// Dark text on light colours, light text on dark ones.
const inkOn = (colour) => {
  const [r, g, b] = channels(colour);
  return 0.299 * r + 0.587 * g + 0.114 * b > 95 ? "#101418" : "#ffffff";
};

// `part` of one colour over another: #rrggbb.
const mixed = (colour, ground, part) => {
  const under = channels(ground);
  const sums = channels(colour).map((value, n) => Math.round(part * value + (1 - part) * under[n]));
  return `#${sums.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
};

// {colours, names, of}: `of[i]` is the place of task i in the other two.
const classify = (column, colourOf) => {
  const time = new Map();
  for (let i = 0; i < tasks.count; i += 1) {
    time.set(column[i], (time.get(column[i]) ?? 0) + tasks.dur[i]);
  }
  const ranked = [...time].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([id]) => id);
  const own = colourOf ? ranked.length : OKABE_ITO.length;
  const place = new Map(ranked.map((id, i) => [id, Math.min(i, own)]));
  const names = ranked.slice(0, own).map((id) => strings[id]);
  const colours = names.map((name, i) => (colourOf ? colourOf(name) : themed(OKABE_ITO[i])));
  if (ranked.length > own) {
    names.push(null); // all others
    colours.push(themed(GREY));
  }
  return { names, colours, inks: colours.map(inkOn), of: Uint16Array.from(column, (id) => place.get(id)) };
};

const looks = {};
const look = () => {
  const key = `${state.colour} ${state.theme}`;
  if (!looks[key]) {
    looks[key] = state.colour === "bound"
      ? classify(tasks.bound, boundColour)
      : classify(state.colour === "type" ? tasks.type : tasks.group);
  }
  return looks[key];
};
const lookText = (name) =>
  name === null ? say("other") : state.colour === "bound" ? resourceText(name) : name || say("none");

const themeColours = new Map(); // asking the style sheet at every step of a zoom is slow
const themeColour = (name) => {
  const key = `${document.documentElement.dataset.theme} ${name}`;
  if (!themeColours.has(key)) {
    themeColours.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return themeColours.get(key);
};
