"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);
  const heard = one(".heard");
  const made = (name, words, className) => {
    const element = document.createElement(name);
    if (words !== undefined) element.textContent = words;
    if (className) element.className = className;
    return element;
  };

  all(".only-with-script").forEach((element) => { element.hidden = false; });

  // Theme: the system's until a reader chooses; nothing is stored.
  const root = document.documentElement;
  const theme = one(".theme");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
  nameTheme();

  // Rows: pointing at one, or choosing it, shows it everywhere.
  const shapes = all("[data-row]");
  const placesOf = (element) => element.dataset.row.split(" ");
  const picked = new Set();
  const bar = one(".selection");
  bar.hidden = true;
  const nameOf = (place) => one(`tr[data-row="${place}"][data-name]`).dataset.name;

  const mark = (className, places) => shapes.forEach((shape) => {
    shape.classList.toggle(className, placesOf(shape).some((place) => places.has(place)));
  });
  const point = (places) => {
    document.body.classList.toggle("pointing", places.size > 0);
    mark("hot", places);
  };
  const showPicked = () => {
    document.body.classList.toggle("picking", picked.size > 0);
    mark("picked", picked);
    all("[data-pick]").forEach((button) => button.setAttribute("aria-pressed", picked.has(button.dataset.pick)));
    bar.hidden = picked.size === 0;
    const names = [...picked].map(nameOf);
    one(".picked-names").textContent = names.length > 3 ? `${names.length} rows selected` : names.join(", ");
    heard.textContent = names.length ? `Selected: ${names.join(", ")}` : "Nothing selected";
  };
  const toggle = (places) => {
    const whole = places.every((place) => picked.has(place));
    places.forEach((place) => (whole ? picked.delete(place) : picked.add(place)));
    showPicked();
  };
  const unpick = () => { picked.clear(); showPicked(); };

  const none = new Set();
  const rowAt = (event) => event.target instanceof Element ? event.target.closest("[data-row]") : null;
  let pointed = null;
  document.addEventListener("pointerover", (event) => {
    const row = event.pointerType === "touch" ? null : rowAt(event);
    if (row === pointed) return;
    pointed = row;
    point(row ? new Set(placesOf(row)) : none);
  });
  document.addEventListener("focusin", (event) => {
    const row = event.target.matches(":focus-visible") ? rowAt(event) : null;
    point(row ? new Set(placesOf(row)) : none);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pick]");
    if (button) toggle([button.dataset.pick]);
    else if (event.target.closest(".chart [data-row]")) toggle(placesOf(rowAt(event)));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && picked.size && !event.target.matches("input")) unpick();
  });
  one(".unpick").addEventListener("click", unpick);

  // What stands beside the pointer.
  const tip = one(".tip");
  const tell = (event, words) => {
    tip.textContent = words;
    tip.hidden = false;
    const x = Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 4));
    const below = event.clientY + 18;
    const y = below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below;
    tip.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  };
  const untell = () => { tip.hidden = true; };

  // The verdict table: sort and filter.
  const table = one("table.main");
  if (table) {
    const body = table.tBodies[0];
    const valueOf = (row, key) => one(`[data-key="${key}"]`, row).dataset.value;
    const sortBy = (button) => {
      const key = button.dataset.by;
      const head = button.closest("th");
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      const words = key === "name" || key === "verdict";
      const compare = (a, b) => words ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b);
      const rows = [...body.rows].map((row) => [row, valueOf(row, key)]);
      rows.sort(([, a], [, b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        return ascending ? compare(a, b) : compare(b, a);
      });
      body.append(...rows.map(([row]) => row));
      all("th[aria-sort]", table).forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      heard.textContent = `Sorted by ${button.textContent}, ${ascending ? "ascending" : "descending"}`;
    };
    all(".sort", table).forEach((button) => button.addEventListener("click", () => sortBy(button)));

    const filter = one(".filter");
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const kept = new Set();
      let shown = 0;
      for (const row of body.rows) {
        const verdict = one('[data-key="verdict"]', row);
        const text = `${valueOf(row, "name")} ${verdict ? verdict.textContent : ""}`.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        if (row.hidden) continue;
        shown += 1;
        if (row.dataset.row) kept.add(row.dataset.row);
      }
      all(".chart [data-row]").forEach((shape) => {
        shape.classList.toggle("filtered", !placesOf(shape).some((place) => kept.has(place)));
      });
      heard.textContent = `${shown} of ${body.rows.length} lines shown`;
    });
    const references = one(".with-references");
    if (references) {
      const whole = one(".with-whole");
      const show = () => {
        table.classList.toggle("no-references", !references.checked);
        table.classList.toggle("no-whole", whole !== null && !whole.checked);
      };
      [references, whole].forEach((box) => box && box.addEventListener("change", show));
      show();
    }
  }

  // Lines: the values at one place, by pointer or slider.
  all("figure.readable").forEach((figure) => {
    const chart = one("svg", figure);
    const lines = all("[data-xs]", chart).map((line) => ({
      name: line.dataset.name,
      at: new Map(line.dataset.xs.split(" ").map((x, k) => [Number(x), line.dataset.ys.split(" ")[k]])),
    }));
    const places = [...new Set(lines.flatMap((line) => [...line.at.keys()]))].sort((a, b) => a - b);
    const [low, high, start, end] = ["xLow", "xHigh", "xStart", "xEnd"].map((key) => Number(chart.dataset[key]));
    const cursor = one(".cursor", chart);
    const said = one(".said", figure);
    const label = made("label", undefined, "slide");
    const slider = made("input");
    const where = made("span");
    const values = made("ul", undefined, "values");
    Object.assign(slider, { type: "range", min: 0, max: places.length - 1, step: 1, value: places.length - 1 });
    label.append(where, slider);
    said.append(label, values);
    const show = (k, pointing) => {
      const x = places[k];
      where.textContent = `${figure.dataset.what} ${x.toLocaleString("en")}`;
      slider.setAttribute("aria-valuetext", where.textContent);
      const found = lines.filter((line) => line.at.has(x)).map((line) => [line.name, line.at.get(x)]);
      found.sort((a, b) => Number(a[1]) - Number(b[1]));
      values.replaceChildren(...found.map(([name, y]) => {
        const item = made("li");
        item.append(made("bdi", name), " ", made("b", y));
        return item;
      }));
      const at = high > low ? start + ((x - low) / (high - low)) * (end - start) : start;
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      cursor.classList.toggle("shown", pointing);
    };
    slider.addEventListener("input", () => show(Number(slider.value), true));
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      const x = low + ((at - start) / (end - start)) * (high - low);
      const distances = places.map((place) => Math.abs(place - x));
      slider.value = distances.indexOf(Math.min(...distances));
      show(Number(slider.value), true);
    });
    chart.addEventListener("pointerleave", () => cursor.classList.remove("shown"));
    show(places.length - 1, false);
  });

  // Cost: one chart at a time, and what a point stands for beside the pointer.
  const choices = all(".choice");
  if (choices.length) {
    const section = one("#cost");
    section.classList.add("switched");
    const choose = (key) => choices.forEach((choice) => { choice.hidden = choice.dataset.choice !== key; });
    all('input[name="cost"]').forEach((radio) => {
      radio.addEventListener("change", () => choose(radio.value));
    });
    choose(one('input[name="cost"]:checked').value);
    all("[data-say]").forEach((point) => {
      point.addEventListener("pointermove", (event) => tell(event, point.dataset.say));
      point.addEventListener("pointerleave", untell);
    });
  }

  // Tables of weights: one weight under the pointer, all of them when chosen.
  const numbers = one(".weights-numbers");
  const weightAt = (values, row, column) => values[(row * (row + 1)) / 2 + column];
  all(".weights").forEach((button) => {
    const values = button.dataset.values.split(" ");
    const size = Number(button.dataset.size);
    const words = one("img", button).alt;
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("pointermove", (event) => {
      const box = one("img", button).getBoundingClientRect();
      const place = (at, from, length) => Math.min(size - 1, Math.max(0, Math.floor(((at - from) / length) * size)));
      const row = place(event.clientY, box.top, box.height);
      const column = place(event.clientX, box.left, box.width);
      const weight = column > row ? "nothing: the future" : weightAt(values, row, column).replace("-", "−");
      tell(event, `t = ${row}, s = ${column}: ${weight}`);
    });
    button.addEventListener("pointerleave", untell);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      all(".weights").forEach((other) => other.setAttribute("aria-pressed", "false"));
      button.setAttribute("aria-pressed", on);
      numbers.hidden = !on;
      if (!on) return;
      const table = made("table");
      table.append(made("caption", words));
      const head = table.createTHead().insertRow();
      const cell = (words, scope) => { const th = made("th", words, "number"); th.scope = scope; return th; };
      head.append(cell("t \\ s", "col"));
      for (let column = 0; column < size; column += 1) head.append(cell(column, "col"));
      const body = table.createTBody();
      for (let row = 0; row < size; row += 1) {
        const line = body.insertRow();
        line.append(cell(row, "row"));
        for (let column = 0; column < size; column += 1) {
          line.append(made("td", column > row ? "" : weightAt(values, row, column).replace("-", "−"), "number"));
        }
      }
      numbers.replaceChildren(table);
      button.closest("article").append(numbers);
      heard.textContent = words;
    });
  });

  // Commands.
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = one("code", button.parentElement);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    heard.textContent = `${button.textContent}: ${code.textContent}`;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }));
})();
