// Elements. Text is always set as text: names in a model file are never markup.
const $ = (id) => document.getElementById(id);

const make = (tag, options = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else if (key === "click") node.addEventListener("click", value);
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};

const fill = (node, ...children) => node.replaceChildren(...children.filter((c) => c != null));

// A bar: `part` of its track in that colour.
const trackBar = (part, colour) => {
  const inner = make("div", { class: "fill" });
  inner.style.width = `${(100 * Math.max(0, Math.min(1, part))).toFixed(2)}%`;
  inner.style.background = colour;
  return make("div", { class: "track" }, inner);
};

const swatch = (colour) => {
  const node = make("span", { class: "swatch" });
  node.style.background = colour;
  return node;
};

// Rows of [term, value] as a definition list; a value is text or a node, absent rows are left out.
const factList = (rows, className = "facts") =>
  make("dl", { class: className }, ...rows.filter((r) => r && r[1] != null && r[1] !== "").flatMap(
    ([term, value]) => [make("dt", { text: term }), make("dd", {}, value)]));

const tableOf = (caption, heads, rows, leftColumns = [0]) => {
  const cell = (tag, value, i) => {
    const node = make(tag, { class: leftColumns.includes(i) ? "text" : "" }, value ?? "");
    if (tag === "th") node.scope = "col";
    return node;
  };
  const body = rows.map((row) =>
    make("tr", { class: row.chosen ? "chosen" : "" }, ...row.cells.map((v, i) => cell("td", v, i))));
  return make("table", {},
    make("caption", { text: caption }),
    make("thead", {}, make("tr", {}, ...heads.map((h, i) => cell("th", h, i)))),
    make("tbody", {}, ...body));
};
