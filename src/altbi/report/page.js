"use strict";
(() => {
  const NEAR_MISSES = 5;
  const STEP = 1.04;
  const LONG = 60;
  const BESIDE = ["Column", "This row", "Nearest", "2nd nearest", "3rd nearest"];
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");
  const cases = [...document.querySelectorAll("tbody.case")];
  const slider = find("threshold");
  const lowest = data.levels.length - 1;
  const stops = stopsOf(data.levels);
  let chosen = data.own;
  const views = new Map();
  // Widths that leave the letters readable on paper, where pictures shrink with the page.
  const onPaper = (id) => (id === "histogram" ? 680 : 215);

  // The levels begin with the highest threshold; to the right, thresholds rise, as in the chart.
  slider.max = stops.length - 1;
  document.documentElement.classList.add("js");

  // One row at a time at first, then ever larger steps: the slider is fine where decisions are.
  function stopsOf(levels) {
    let before = -1;
    return [...levels.keys()].filter((level) => {
      const count = levels[level][2];
      const kept = level === data.own || level === lowest || count > Math.max(before, before * STEP);
      if (kept) before = count;
      return kept;
    });
  }

  function choose(level) {
    chosen = Math.min(Math.max(level, 0), lowest);
    const [threshold, text, count, share] = data.levels[chosen];
    slider.value = stops.length - 1 - stops.findLastIndex((stop) => stop <= chosen);
    slider.style.setProperty("--at", `${(100 * slider.value) / (stops.length - 1 || 1)}%`);
    slider.setAttribute("aria-valuetext", text);
    find("threshold-value").textContent = text;
    if (document.activeElement !== find("wanted")) find("wanted").value = count;
    find("headline-count").textContent = number(count);
    find("headline-verb").textContent = count === 1 ? "stands out" : "stand out";
    find("state").replaceChildren(strong(number(count)), ` flagged, ${share} of all rows${known(count)}`);
    find("reset").disabled = chosen === data.own;
    views.get("histogram")?.signal("threshold", threshold).runAsync();
    list(count);
  }

  function strong(text) {
    const element = document.createElement("strong");
    element.textContent = text;
    return element;
  }

  // How many of the flagged rows are known outliers; only where all of them are on the page.
  function known(count) {
    const labelled = cases.filter((row) => row.hasAttribute("data-known"));
    if (!labelled.length || count > cases.length) return "";
    return `; ${cases.slice(0, count).filter((row) => labelled.includes(row)).length} of them known outliers`;
  }

  function list(count) {
    if (!cases.length) return;
    const suspect = find("suspect").value;
    const everything = find("everything").checked;
    const matches = (row) => suspect === "" || row.dataset.clues.split(" ").includes(suspect);
    let below = 0;
    let flagged = 0;
    cases.forEach((row, place) => {
      const above = place < count;
      row.classList.toggle("flagged", above);
      const fits = matches(row);
      if (fits && above) flagged += 1;
      if (fits && !above) below += 1;
      row.hidden = !fits || (!above && !everything && below > NEAR_MISSES);
    });
    divide(count, below > 0);
    find("listed").textContent = sentence(count, flagged, suspect !== "");
  }

  const divider = document.createElement("tbody");
  divider.className = "divider";
  divider.innerHTML = '<tr><td colspan="100">Below the threshold: not flagged</td></tr>';

  function divide(count, wanted) {
    divider.remove();
    if (wanted && count < cases.length) cases[count].before(divider);
  }

  function sentence(count, shown, filtered) {
    const rows = (n) => `${number(n)} row${n === 1 ? "" : "s"}`;
    if (count === 0) return "No row is above the threshold; these come closest.";
    if (filtered) return `${rows(shown)} of ${number(Math.min(count, cases.length))} flagged and listed have this column among their clues.`;
    if (count > cases.length) {
      return `The first ${number(cases.length)} of ${number(count)} flagged rows are listed; all are in the scores file.`;
    }
    return "The highest score first.";
  }

  function open(row, place, button, opened) {
    const detail = row.querySelector(".detail");
    if (opened && !detail.querySelector(".cells, .beside")) {
      const name = row.querySelector(".row").textContent;
      detail.firstElementChild.append(data.beside[place].flat().length ? beside(place, name) : cells(place));
    }
    button.setAttribute("aria-expanded", String(opened));
    detail.hidden = !opened;
  }

  function cells(place) {
    const block = document.createElement("dl");
    block.className = "cells";
    data.cells[place].forEach((value, index) => {
      const pair = document.createElement("div");
      pair.classList.toggle("suspicious", data.suspicious[place].includes(index));
      pair.classList.toggle("long", value.length > LONG || data.columns[index].length > LONG);
      pair.append(entry("dt", data.columns[index]), entry("dd", value));
      block.append(pair);
    });
    return block;
  }

  // The row beside the nearest normal ones: the columns that stand out first, then the others.
  function beside(place, name) {
    const [clues, others] = data.beside[place];
    const table = document.createElement("table");
    table.className = "beside";
    table.createCaption().textContent = `The normal rows nearest to ${name}`;
    table.createTHead().append(heads((clues[0] ?? others[0]).length));
    const body = table.createTBody();
    body.append(...clues.map((cells) => line(cells, "suspicious")));
    body.append(...others.map(([index, ...cells]) => line([data.columns[index], ...cells], "")));
    return table;
  }

  function heads(count) {
    const row = document.createElement("tr");
    for (const text of BESIDE.slice(0, count)) {
      const head = document.createElement("th");
      head.scope = "col";
      head.textContent = text;
      row.append(head);
    }
    return row;
  }

  function line(cells, className) {
    const row = document.createElement("tr");
    row.className = className;
    cells.forEach((text, index) => {
      const cell = entry(index ? "td" : "th", text);
      if (index) cell.dataset.label = BESIDE[index].toLowerCase();
      else cell.scope = "row";
      row.append(cell);
    });
    return row;
  }

  function entry(tag, text) {
    const element = document.createElement(tag);
    if (text === null) return element;
    const inner = document.createElement(text === "" ? "i" : "bdi");
    inner.textContent = text === "" ? "missing" : text;
    if (text === "") inner.className = "missing";
    element.append(inner);
    return element;
  }

  // The threshold that flags as many rows as are wanted, or as few more of them as there can be.
  function levelFor(count) {
    const enough = data.levels.findIndex((level) => level[2] >= count);
    return enough === -1 ? lowest : enough;
  }

  function nearest(score) {
    const distance = (level) => Math.abs(data.levels[level][0] - score);
    return [...data.levels.keys()].reduce((best, level) => (distance(level) < distance(best) ? level : best), 0);
  }

  async function draw(id) {
    try {
      const result = await vegaEmbed(find(id), data.charts[id], {
        mode: "vega-lite",
        renderer: "svg",
        actions: false,
        ast: true,
        defaultStyle: false,
        tooltip: { disableDefaultStyle: true },
      });
      views.set(id, result.view);
    } catch (problem) {
      find(id).textContent = "This chart could not be drawn.";
      throw problem;
    }
  }

  async function drawHistogram() {
    await draw("histogram");
    const histogram = views.get("histogram");
    histogram.signal("threshold", data.levels[chosen][0]).runAsync();
    histogram.addEventListener("click", (event) => {
      const frame = find("histogram").querySelector("svg").getBoundingClientRect();
      const place = histogram.scale("x").invert(event.clientX - frame.left - histogram.origin()[0]);
      const [start, shrink] = data.squeeze;
      choose(nearest(place <= start ? place : start + (place - start) / shrink));
    });
  }

  slider.addEventListener("input", () => choose(stops[stops.length - 1 - slider.value]));
  find("wanted").addEventListener("input", (event) => {
    if (event.target.value !== "") choose(levelFor(Number(event.target.value)));
  });
  find("wanted").addEventListener("blur", (event) => {
    event.target.value = data.levels[chosen][2];
  });
  find("reset").addEventListener("click", () => {
    choose(data.own);
    slider.focus();
  });
  find("suspect")?.addEventListener("change", () => choose(chosen));
  find("everything")?.addEventListener("change", () => choose(chosen));
  cases.forEach((row, place) => {
    const button = row.querySelector("button");
    open(row, place, button, false);
    button.addEventListener("click", () =>
      open(row, place, button, button.getAttribute("aria-expanded") === "false"));
  });

  window.addEventListener("beforeprint", () => {
    views.forEach((view, id) => view.width(onPaper(id)).run());
  });
  // The charts measure their places again.
  window.addEventListener("afterprint", () => window.dispatchEvent(new Event("resize")));

  choose(data.own);
  drawHistogram();
  Object.keys(data.charts).filter((id) => id !== "histogram").forEach(draw);
})();
