// Numbers as people read them; the same steps as gecompiler.units.
const duration = (ns) => {
  const us = ns / 1000;
  if (us < 1000) return `${us.toFixed(us < 100 ? 2 : 1)} us`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e5 ? 2 : 1)} ms`;
  return `${(us / 1e6).toFixed(2)} s`;
};

const bytesText = (count) => {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024) return `${count.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(2)} TiB`;
};

const percent = (part) => {
  const value = 100 * part;
  return `${value.toFixed(value > 0 && value < 9.95 ? 1 : 0)}%`;
};

const whole = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

// A step of 1, 2 or 5 times a power of ten that divides `range` into about `parts`.
const niceStep = (range, parts) => {
  const raw = Math.max(range / parts, 1e-9);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= raw);
};

// Labels of an axis share a unit, with as many decimals as tell neighbours apart.
const axisText = (ns, step) => {
  const [unit, size] = step >= 1e9 ? ["s", 1e9] : step >= 1e5 ? ["ms", 1e6] : ["us", 1e3];
  const decimals = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  return `${(ns / size).toFixed(Math.min(decimals, 3))} ${unit}`;
};
