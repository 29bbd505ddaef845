"use strict";
// Draws the page. Every text of the data is put in as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const root = document.documentElement;

  // Elements.

  /** Creates an element. An attribute that is null or false is left out; children are elements, texts or null. */
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") made.addEventListener(name, value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
    return made;
  }

  function svg(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const soft = (...texts) => el("p", { class: "soft" }, ...texts);
  const count = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

  /** A part of the card's width. Styles are set by script: the page allows no style attributes. */
  function part(share, colour, title) {
    const made = el("div", { title });
    made.style.width = `${share}%`;
    if (colour) made.style.background = `var(--${colour})`;
    return made;
  }

  function swatch(colour) {
    const made = el("span", { class: "swatch" });
    made.style.background = `var(--${colour})`;
    return made;
  }

  const sections = [];
  function section(id, title, ...children) {
    sections.push([id, title]);
    return el("section", { id }, el("h2", null, title), ...children);
  }

  function table(list, options) {
    const { names, words } = options || {};
    const cell = (text, at) => el(at === 0 ? "th" : "td", { class: at === 0 && names ? "name" : null, scope: at === 0 ? "row" : null }, text);
    return el("div", { class: "scroll" },
      el("table", { class: words ? "list words" : "list" },
        el("thead", null, el("tr", null, list.columns.map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", null, list.rows.map((row) => el("tr", null, row.map(cell))))));
  }

  // Numbers.

  const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$|(\.\d*?)0+$/, "$1");
  function scaled(value, factor, units) {
    let at = 0;
    while (value >= factor && at < units.length - 1) { value /= factor; at += 1; }
    return `${digits(value)}${units[at]}`;
  }
  const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
  const number = (value) => (value > 0 && value < 0.01 ? "<0.01" : scaled(value, 1000, ["", "k", "M", "G"]));
  const duration = (value) => (value >= 1 ? `${digits(value)} s` : value >= 1e-3 ? `${digits(value * 1e3)} ms` : `${digits(value * 1e6)} us`);
  const moment = (millis) => `${new Date(millis).toISOString().slice(0, 19).replace("T", " ")} UTC`;

  // Light and dark.

  const night = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const isDark = () => (chosen ? chosen === "dark" : night.matches);
  const toggle = el("button", { type: "button", click: () => { chosen = isDark() ? "light" : "dark"; paint(); } });
  function paint() {
    root.dataset.theme = isDark() ? "dark" : "light";
    toggle.textContent = isDark() ? "Light" : "Dark";
    redraw();
  }
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // Charts.

  const CAUSES = { memtables: "c1", tables: "c3", memory: "c2", values: "c5", log: "c6", device: "c4", lock: "c7" };
  // Steps of an axis for bytes, and for things that are counted one by one.
  const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
  const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
  const hosts = [];
  let scope = "hour";
  const past = () => (data.history[scope] ? data.history[scope] : null);
  const line = (name) => (past() && past().lines[name]) || null;

  /** Seconds that writers waited in each second, and for what most, by point. */
  function waits() {
    const all = Object.keys(CAUSES).map((cause) => [cause, line(`stall.${cause}.time`)]).filter((pair) => pair[1]);
    return (at) => {
      let [most, longest, sum] = [null, 0, 0];
      for (const [cause, values] of all) {
        const value = values[at] || 0;
        sum += value;
        if (value > longest) [most, longest] = [cause, value];
      }
      return sum >= 0.01 ? most : null;
    };
  }

  /** Marks the time in which writers waited, in the colour of the cause, behind a chart. */
  function mark(chart) {
    const { begin, step, points } = past();
    const cause = waits();
    const { left, top, width, height } = chart.bbox;
    const strip = 5 * devicePixelRatio;
    const context = chart.ctx;
    context.save();
    for (let at = 0; at < points; at += 1) {
      const found = cause(at);
      if (!found) continue;
      const time = (begin + at * step) / 1000;
      const from = Math.max(chart.valToPos(time, "x", true), left);
      const to = Math.min(chart.valToPos(time + step / 1000, "x", true), left + width);
      if (to <= from) continue;
      context.fillStyle = colour(CAUSES[found]);
      context.globalAlpha = 0.13;
      context.fillRect(from, top, to - from, height);
      context.globalAlpha = 1;
      context.fillRect(from, top, Math.max(to - from, 1), strip);
    }
    context.restore();
  }

  /** Draws `lines`, each [name of the line, label, colour], into `host`. `how`: unit, log, stack, marks, limit. */
  function draw(host, lines, how) {
    const { begin, step, points } = past();
    const times = Array.from({ length: points }, (_, at) => (begin + at * step) / 1000);
    const values = lines.map(([name]) => line(name) || new Array(points).fill(null));
    const drawn = how.stack ? stacked(values) : values;
    const show = (original) => (chart, value, series, at) => (at === null || at === undefined || original[at] === null ? "-" : how.unit(original[at]));
    const series = lines.map(([, label, name], at) => {
      const stroke = colour(name);
      return { label, stroke, width: how.stack ? 0.5 : 1.5, fill: how.stack ? stroke : null, points: { size: 4 }, value: show(values[at]) };
    });
    if (how.stack) [series, drawn].forEach((list) => list.reverse()); // the whole sum first: the parts cover it
    const limit = how.limit ? Math.max(0, ...(line(how.limit) || [])) : 0;
    if (limit > 5 * Math.max(0, ...drawn.flat())) {
      host.append(soft(`The limit of ${how.unit(limit)} is far above and not drawn.`));
    } else if (limit > 0) {
      drawn.push(line(how.limit));
      series.push({ label: "limit", stroke: colour("ink"), dash: [6, 4], width: 1.5, points: { show: false }, value: show(line(how.limit)) });
    }
    const axis = { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    // Without a pointer the legend has the last point.
    const last = Math.max(...values.map((line) => line.findLastIndex((value) => value !== null)));
    const latest = (chart) => { if (chart.cursor.idx === null || chart.cursor.idx === undefined) chart.setLegend({ idx: last }); };
    const chart = new uPlot({
      width: host.clientWidth,
      height: 210,
      scales: { x: { time: true }, y: how.log ? { distr: 3 } : { range: (u, low, high) => [0, (high || 1) * 1.08] } },
      cursor: { sync: { key: "time" }, drag: { x: true, y: false }, points: { size: 6 } },
      legend: { markers: { width: 0, fill: (u, at) => series[at - 1].stroke } },
      axes: [axis, { ...axis, size: 84, incrs: how.incrs, values: (u, all) => all.map((value) => (value === null ? "" : how.unit(value))) }],
      series: [{ label: "at", value: (u, value) => (value ? moment(value * 1000).slice(0, 19) : "") }, ...series],
      hooks: { drawClear: how.marks ? [mark] : [], ready: [latest], setCursor: [latest] },
    }, [times, ...drawn], host);
    host.uplot = chart;
  }

  /** Sums of each line with those before it. */
  function stacked(lines) {
    const sums = [];
    for (const values of lines) {
      const below = sums[sums.length - 1];
      sums.push(values.map((value, at) => (value === null ? (below ? below[at] : null) : value + (below ? below[at] || 0 : 0))));
    }
    return sums;
  }

  /** A card with a chart; `lines` returns them for the present scope. */
  function chart(title, about, lines, how) {
    const host = el("div", { class: how.stack ? "stack" : null });
    const card = el("div", { class: "card chart" }, el("h3", null, title), about ? soft(about) : null, how.choice || null, host);
    hosts.push(() => {
      if (host.uplot) host.uplot.destroy();
      host.uplot = null;
      host.replaceChildren();
      const found = past() ? lines().filter(([name]) => line(name)) : [];
      if (found.length === 0) host.append(soft("The samples of this time have none."));
      else draw(host, found, how);
    });
    const fit = () => {
      const width = host.clientWidth;
      if (host.uplot && width > 0 && host.uplot.width !== width) host.uplot.setSize({ width, height: 210 });
    };
    // A change of size inside of the observer would call it again, which browsers report.
    new ResizeObserver(() => requestAnimationFrame(fit)).observe(host);
    return card;
  }

  const redraw = () => hosts.forEach((drawAgain) => drawAgain());

  /** Buttons of which one is pressed. */
  function choice(names, first, label, choose) {
    const buttons = names.map(([value, text]) => {
      const button = el("button", { type: "button", "aria-pressed": String(value === first) }, text);
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        choose(value);
      });
      return button;
    });
    return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
  }

  const WORK = [["gets", "gets", "c0"], ["multi_gets", "multi gets", "c4"], ["seeks", "seeks", "c2"], ["puts", "puts", "c1"], ["commits", "commits", "c3"],
    ["syncs", "syncs", "c5"], ["flushes", "flushes", "c7"], ["merges", "merges", "c6"]];

  function latency() {
    const measured = (name) => ["hour", "day"].some((at) => data.history[at] && data.history[at].lines[`${name}.longest`]);
    const kinds = WORK.filter(([name]) => measured(name));
    if (kinds.length === 0) return null;
    const busiest = (name) => ((data.history.hour || {}).lines || {})[`${name}.longest`] || [];
    const points = (name) => busiest(name).filter((value) => value !== null).length;
    const users = kinds.filter(([name]) => !["syncs", "flushes", "merges"].includes(name));
    let kind = (users.length > 0 ? users : kinds).reduce((a, b) => (points(b[0]) > points(a[0]) ? b : a))[0];
    const lines = () => [["longest", "longest", "c1"], ["p999", "p99.9", "c2"], ["p99", "p99", "c0"], ["p50", "p50", "c7"]].map(([name, ...rest]) => [`${kind}.${name}`, ...rest]);
    const pick = choice(kinds, kind, "Kind of operation", (value) => { kind = value; redraw(); });
    return chart("Latency", "The highest of each point. Operations of users are a random sample.", lines, { unit: duration, log: true, marks: true, choice: pick });
  }

  function history() {
    if (!data.history.hour && !data.history.day) {
      return section("past", "The last hour", el("div", { class: "card" }, soft(data.history.error ? `The history cannot be read: ${data.history.error}` : "No history was recorded.")));
    }
    scope = data.history.hour ? "hour" : "day";
    const names = [["hour", "Hour"], ["day", "Day"]].filter(([name]) => data.history[name]);
    const key = el("p", { class: "soft key" });
    const label = () => {
      const { begin, step, points, lines } = past();
      const seen = Object.keys(CAUSES).filter((cause) => lines[`stall.${cause}.time`]);
      key.replaceChildren(
        el("span", null, `Up to ${moment(begin + step * points)}, a point every ${step / 1000} s; times on the axes are those of this browser. Drag to zoom in, double-click to zoom out.`),
        ...(seen.length === 0 ? [el("span", null, "No writer waited.")] : [el("span", null, "Coloured bands mark waits of writers, by the cause that held up most:")]),
        ...seen.map((cause) => el("span", null, swatch(CAUSES[cause]), cause)));
    };
    const pick = choice(names, scope, "Time", (value) => { scope = value; label(); redraw(); });
    label();
    const perSecond = (unit) => (value) => `${unit(value)}/s`;
    return section("past", "The last hour and day", pick, key, el("div", { class: "charts" },
      chart("Operations", "In a second; estimated from samples.", () => WORK.slice(0, 5).map(([name, ...rest]) => [`${name}.count`, ...rest]), { unit: perSecond(number), marks: true }),
      latency(),
      chart("Waits of writers", "Time waited in a second, all threads together.", () => Object.entries(CAUSES).map(([cause, name]) => [`stall.${cause}.time`, cause, name]), { unit: perSecond(duration) }),
      chart("Bytes", "In a second.", () => [["written_bytes", "written, all", "c1"], ["wal_bytes", "of these, log", "c5"], ["lookup_read_bytes", "read by lookups", "c0"]], { unit: perSecond(bytes), incrs: POWERS, marks: true }),
      chart("Memory", "By what it is for, stacked.", () => memoryColours().map(([figure, name, at]) => [figure, name, at]), { unit: bytes, incrs: POWERS, stack: true, limit: "memory_limit_bytes" }),
      chart("Files and debt", "Bytes on disk, and those that merges must move now.", () => [["disk_bytes", "on disk", "c0"], ["merge_debt_bytes", "to merge", "c3"]], { unit: bytes, incrs: POWERS }),
      chart("Cache", "Lookups in a second.", () => [["cache_hits", "hits", "c7"], ["cache_misses", "misses", "c1"]], { unit: perSecond(number), marks: true }),
      chart("Background", "Flushes and merges that run.", () => [["jobs.flushes", "flushes", "c7"], ["jobs.merges", "merges", "c6"]], { unit: number, incrs: WHOLE, marks: true })));
  }

  // Memory and jobs.

  function memoryColours() {
    const kinds = data.memory ? data.memory.kinds : [];
    return kinds.map((kind, at) => [kind.figure, kind.name, `c${at}`]);
  }

  function memory() {
    if (!data.memory) return null;
    const { limit, kinds, about } = data.memory;
    const share = (kind) => (kind.bytes / Math.max(limit, 1)) * 100;
    return section("memory", "Memory", el("div", { class: "card" }, soft(about),
      el("div", { class: "bar", role: "img", "aria-label": about }, kinds.map((kind, at) => (kind.bytes > 0 ? part(share(kind), `c${at}`, `${kind.name}: ${kind.size}`) : null))),
      el("p", { class: "soft key" }, kinds.map((kind, at) => el("span", null, swatch(`c${at}`), `${kind.name} ${kind.size}`)))));
  }

  function jobs() {
    if (!data.jobs) return null;
    const { running, left_out: more, pending } = data.jobs;
    const cards = running.map((job) => el("div", { class: "card" },
      el("h3", null, job.what), el("p", { class: "name soft" }, `family ${job.family}`),
      el("div", { class: "fill", role: "img", "aria-label": `${job.share} %` }, part(job.share, null, `${job.share} %`)),
      soft(`${job.share} %: ${job.about}`)));
    return section("jobs", "Jobs", running.length === 0 ? el("div", { class: "card" }, soft("No flush and no merge ran.")) : el("div", { class: "jobs" }, cards),
      more > 0 ? soft(`${count(more, "more job runs", "more jobs run")}; not listed.`) : null,
      pending > 0 ? soft(`${count(pending, "other background job is", "other background jobs are")} queued or running.`) : null);
  }

  // Trees.

  const [PROFILE, RUN] = [24, 11];

  /** Where the tables of a level are among the keys: how much of it each stretch holds, and below that each sorted run. */
  function strip(level, picture, pick) {
    const height = PROFILE + 4 + level.runs.length * RUN;
    const drawing = svg("svg", { viewBox: `0 0 10000 ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": `level ${level.level}: its tables by key` });
    const wide = 10000 / level.profile.length;
    const outline = level.profile.map((value, at) => {
      const top = PROFILE - (value / 100) * PROFILE;
      return `L${(at * wide).toFixed(0)} ${top.toFixed(1)}L${((at + 1) * wide).toFixed(0)} ${top.toFixed(1)}`;
    });
    drawing.append(svg("path", { class: "area", d: `M0 ${PROFILE}${outline.join("")}L10000 ${PROFILE}Z` }));
    picture.partitions.forEach((at) => drawing.append(svg("line", { class: "border", x1: at, x2: at, y1: 0, y2: height })));
    level.runs.forEach((run, number) => run.forEach(([from, to, deleted, about]) => {
      const shade = deleted >= 50 ? " many" : deleted >= 10 ? " some" : "";
      const width = Math.max(to - from, 15);
      const box = svg("rect", { class: `box${shade}`, x: Math.min(from, 10000 - width), y: PROFILE + 4 + number * RUN, width, height: RUN - 2 });
      const say = () => pick(box, `Level ${level.level}, run ${number + 1}: ${about}`);
      box.addEventListener("mouseenter", say);
      box.addEventListener("click", say);
      drawing.append(box);
    }));
    return drawing;
  }

  function tree(found) {
    const { picture } = found;
    const told = el("p", { class: "pick soft", "aria-live": "polite" }, "Point at a table, or touch it, to see what it is.");
    let picked = null;
    const pick = (box, text) => {
      if (picked) picked.classList.remove("picked");
      picked = box;
      box.classList.add("picked");
      told.textContent = text;
    };
    const rows = found.levels.map((level) => {
      const drawn = picture.levels.find((other) => other.level === level.level);
      const fill = part(Math.min(level.fill, 100), null, `${level.fill} %`);
      if (level.fill > 100) fill.className = "full";
      return el("div", { class: "level" },
        el("div", null,
          el("h3", null, `Level ${level.level}${level.role ? `, ${level.role}` : ""}`),
          el("div", { class: "fill" }, fill),
          soft(`${level.fill} %: ${level.bytes} of ${level.capacity}`),
          level.tables ? [soft(level.tables), soft(level.entries)] : null,
          level.keys ? soft(level.keys) : null),
        el("div", { class: "drawn" }, drawn ? strip(drawn, picture, pick) : soft("no table"),
          drawn && drawn.left_out > 0 ? soft(`${count(drawn.left_out, "older run is", "older runs are")} not drawn; the curve counts them.`) : null));
    });
    const scale = el("div", { class: "scale" },
      el("div", { class: "marks" }, ["0 %", "25 %", "50 %", "75 %", "100 %"].map((text) => el("span", null, text))),
      picture.ends ? el("div", { class: "ends" }, picture.ends.map((key) => el("span", { class: "name" }, key))) : null,
      soft("of the bytes of the family, in the order of its keys, as far as first and last keys of tables tell. Curve: how much of the level lies there. Boxes: tables, a row for each sorted run, newest first.",
        picture.per_box > 1 ? ` A box is up to ${picture.per_box} tables.` : "", picture.partitions.length > 0 ? " Dotted lines: borders of partitions." : ""),
      el("p", { class: "soft key" }, el("span", null, swatch("some"), "10 % deleted or more"), el("span", null, swatch("many"), "half or more")));
    return [soft(found.about), found.note ? soft(found.note) : null, ...rows, picture.levels.length > 0 ? scale : null, picture.levels.length > 0 ? told : null];
  }

  function trees() {
    const { trees: all, left_out: more } = data.trees;
    const cards = all.map((found, at) => {
      const body = el("div");
      const details = el("details", {
        class: "card tree",
        open: at === 0,
        toggle: () => { if (details.open && !body.hasChildNodes()) body.append(...tree(found).filter(Boolean)); },
      }, el("summary", null, el("strong", { class: "name" }, found.family), el("span", { class: "soft" }, found.size)), body);
      if (at === 0) body.append(...tree(found).filter(Boolean));
      return details;
    });
    return section("trees", "Trees", soft("As the manifest records them when the page is written: rows that are not flushed are not there."), cards,
      more > 0 ? soft(`${count(more, "family with fewer bytes is", "families with fewer bytes are")} not drawn: name one with --family.`) : null);
  }

  // The rest.

  function head() {
    const { state, lines, written } = data.source;
    const look = { running: "good", idle: "good", own: "good", closed: "good", unknown: "warn", none: "warn" }[state] || "bad";
    return el("header", null, el("div", null,
      el("p", { class: "over" }, "TidesDB report"), el("h1", { class: "name" }, data.path),
      lines.map((text, at) => el("p", { class: "source" }, at === 0 ? el("span", { class: `dot ${look}` }) : null, text)),
      soft(written ? `Figures of ${moment(written)}; page written ${moment(data.made)} by version ${data.version}` : `Page written ${moment(data.made)} by version ${data.version}`)), toggle);
  }

  function findings() {
    const found = data.findings;
    const body = !found ? el("div", { class: "card" }, soft("Unknown: there are no figures to look at."))
      : found.length === 0 ? el("div", { class: "card" }, el("span", { class: "dot good" }), "Nothing: the database is healthy.")
        : found.map((one) => el("div", { class: `card finding ${one.severity}` },
          el("p", { class: "over" }, `${one.severity}: ${one.rule}`), el("h3", null, one.what),
          el("dl", null, [["seen", one.evidence], ["why", [one.cause]], ["do", [one.advice]], ["costs", [one.price]]].map(([name, texts]) => [
            el("dt", null, name), el("dd", null, texts.map((text) => el("div", null, text)))]))));
    return section("findings", "What the doctor finds", body);
  }

  function families() {
    const { left_out: more, left_out_bytes: rest } = data.families;
    return section("families", "Families", el("div", { class: "card" }, table(data.families, { names: true }),
      more > 0 ? soft(`${count(more, "more family", "more families")} with ${rest} in tables: not listed.`) : null));
  }

  function listed(id, title, list, none) {
    if (!list) return null;
    return section(id, title, el("div", { class: "card" }, list.rows.length === 0 ? soft(none) : table(list)));
  }

  const tiles = data.tiles && el("div", { class: "tiles" }, data.tiles.map(([name, value, about]) => el("div", { class: "card" },
    el("p", { class: "soft" }, name), el("p", { class: "value" }, value), soft(about))));
  const nav = el("nav", { "aria-label": "Parts of the page" });
  const all = [findings(), history(), memory(), jobs(), trees(), families(), listed("operations", "Operations since the open", data.operations, "None was measured."),
    listed("waits", "Waits since the open", data.waits, "No writer waited."),
    data.figures && section("figures", "All figures", el("details", { class: "card" }, el("summary", null, "Those of the database that are not 0"), table(data.figures, { words: true })))];
  nav.append(...sections.map(([id, title]) => el("a", { href: `#${id}` }, title)));
  page.replaceChildren(...[head(), nav, tiles, ...all,
    el("footer", null, soft("This page loads nothing and sends nothing. Charts: uPlot, (c) Leon Sorokin, MIT licence."))].filter(Boolean));
  night.addEventListener("change", () => { if (!chosen) paint(); });
  paint();
  root.dataset.ready = "yes";
})();
