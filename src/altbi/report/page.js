"use strict";
(() => {
  // Rows below the threshold that are listed at first.
  const ROWS_BELOW = 5;
  // Factor between the row counts of two slider positions.
  const SLIDER_FACTOR = 1.04;
  const LONG_TEXT = 60;
  // From this position on, the label of the threshold is to the left of its line.
  const LABEL_SIDE = 0.6;
  const COMPARISON_HEAD = ["Column", "This row", "Most similar", "2nd", "3rd"];
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const formatNumber = (value) => value.toLocaleString("en-US");
  // In the order of their scores; similar rows are inside the first of them.
  const rows = [...document.querySelectorAll("tbody.top-row")].sort(
    (first, second) => first.dataset.index - second.dataset.index,
  );
  const outermost = (row) => row.parentElement.closest("tbody.top-row") ?? row;
  const slider = find("threshold");
  const histogram = find("histogram").firstElementChild;
  const lowest = data.thresholds.length - 1;
  const positions = choosePositions(data.thresholds);
  let chosen = data.own;
  // Thresholds are sorted from high to low; the slider rises to the right, as the chart does.
  slider.max = positions.length - 1;
  document.documentElement.classList.add("js");

  // Row counts grow by one at first, then by a factor: the slider is finest at high scores.
  function choosePositions(thresholds) {
    let before = -1;
    return [...thresholds.keys()].filter((index) => {
      const count = thresholds[index][2];
      const kept =
        index === data.own || index === lowest || count > Math.max(before, before * SLIDER_FACTOR);
      if (kept) before = count;
      return kept;
    });
  }

  function setThreshold(index) {
    chosen = Math.min(Math.max(index, 0), lowest);
    const [threshold, text, count, share] = data.thresholds[chosen];
    slider.value = positions.length - 1 - positions.findLastIndex((each) => each <= chosen);
    slider.style.setProperty("--at", `${(100 * slider.value) / (positions.length - 1 || 1)}%`);
    slider.setAttribute("aria-valuetext", text);
    find("threshold-value").textContent = text;
    if (document.activeElement !== find("row-count")) find("row-count").value = count;
    find("headline-count").textContent = formatNumber(count);
    find("headline-verb").textContent =
      count === 1 ? "is flagged as an outlier" : "are flagged as outliers";
    find("state").replaceChildren(
      createStrong(formatNumber(count)),
      ` flagged, ${share} of all rows${describeLabels(count)}`,
    );
    find("reset").disabled = chosen === data.own;
    moveThreshold(threshold, text);
    updateList(count);
  }

  function createStrong(text) {
    const element = document.createElement("strong");
    element.textContent = text;
    return element;
  }

  // The number of known outliers among the flagged rows, if all flagged rows are on the page.
  function describeLabels(count) {
    const known = (row) => row.hasAttribute("data-known");
    if (!rows.some(known) || count > rows.length) return "";
    return `; ${rows.slice(0, count).filter(known).length} of them known outliers`;
  }

  function updateList(count) {
    if (!rows.length) return;
    const column = find("column-filter").value;
    const showAll = find("show-all").checked;
    const matches = (row) => column === "" || row.dataset.reasons.split(" ").includes(column);
    let below = 0;
    let flagged = 0;
    rows.forEach((row, index) => {
      const above = index < count;
      row.classList.toggle("flagged", above);
      const fits = matches(row);
      const isListed = fits && outermost(row) === row;
      if (fits && above) flagged += 1;
      if (isListed && !above) below += 1;
      row.hidden = !fits || (!above && !showAll && isListed && below > ROWS_BELOW);
      // The first of similar rows is visible with each of them.
      if (!row.hidden && !isListed) outermost(row).hidden &&= matches(outermost(row));
    });
    moveDivider(count, below > 0);
    find("listed").textContent = describeList(count, flagged, column !== "");
  }

  const divider = document.createElement("tbody");
  divider.className = "divider";
  divider.innerHTML = '<tr><td colspan="100">Below the threshold: not flagged</td></tr>';

  function moveDivider(count, visible) {
    divider.remove();
    const first = rows.slice(count).find((row) => outermost(row) === row);
    if (visible && first) first.before(divider);
  }

  function describeList(count, shown, filtered) {
    if (count === 0) return "No row is above the threshold. These have the highest scores.";
    if (filtered) {
      const listed = formatNumber(Math.min(count, rows.length));
      return `${formatNumber(shown)} of the ${listed} flagged rows listed here have this column among their reasons.`;
    }
    if (count > rows.length) {
      return `The first ${formatNumber(rows.length)} of ${formatNumber(count)} flagged rows are listed; all are in the scores file.`;
    }
    return "Highest score first.";
  }

  function toggleDetail(row, index, button, visible) {
    const detail = row.querySelector(".detail");
    if (visible && !detail.querySelector(".values, .similar")) {
      const name = row.querySelector(".row").textContent;
      const compared = data.similar[index].length > 0;
      detail.firstElementChild.append(
        compared ? createComparison(index, name) : createValues(index),
      );
    }
    button.setAttribute("aria-expanded", String(visible));
    detail.hidden = !visible;
  }

  function createValues(index) {
    const list = document.createElement("dl");
    list.className = "values";
    data.values[index].forEach((value, column) => {
      const pair = document.createElement("div");
      pair.classList.toggle("reason", data.reasons[index].includes(column));
      const long = value.length > LONG_TEXT || data.columns[column].length > LONG_TEXT;
      pair.classList.toggle("long", long);
      pair.append(createEntry("dt", data.columns[column]), createEntry("dd", value));
      list.append(pair);
    });
    return list;
  }

  // A table of the row and similar normal rows: first the reasons, then the other columns.
  function createComparison(index, name) {
    const [reasons, nearest] = data.similar[index];
    const table = document.createElement("table");
    table.className = "similar";
    table.createCaption().textContent = `Normal rows similar to ${name}`;
    table.createTHead().append(createHead(2 + nearest.length));
    const body = table.createTBody();
    const others = [...data.columns.keys()].filter((each) => !data.reasons[index].includes(each));
    body.append(
      ...reasons.map((each) => createLine(Array.isArray(each) ? each : readRecord(index, each), "reason")),
      ...others.map((each) => createLine(readRecord(index, each), "")),
    );
    return table;
  }

  // Name and values of a column in a row and in similar normal rows, which have no ids.
  function readRecord(index, column) {
    const nearest = data.similar[index][1].map((each) =>
      column < data.ids ? null : data.nearest[each][column - data.ids]);
    return [data.columns[column], data.values[index][column], ...nearest];
  }

  function createHead(count) {
    const line = document.createElement("tr");
    for (const text of COMPARISON_HEAD.slice(0, count)) {
      const head = document.createElement("th");
      head.scope = "col";
      head.textContent = text;
      line.append(head);
    }
    return line;
  }

  function createLine(values, className) {
    const line = document.createElement("tr");
    line.className = className;
    values.forEach((text, index) => {
      const cell = createEntry(index ? "td" : "th", text);
      if (index) cell.dataset.label = COMPARISON_HEAD[index].toLowerCase();
      else cell.scope = "row";
      line.append(cell);
    });
    return line;
  }

  function createEntry(tag, text) {
    const element = document.createElement(tag);
    if (text === null) return element;
    const inner = document.createElement(text === "" ? "i" : "bdi");
    inner.textContent = text === "" ? "missing" : text;
    if (text === "") inner.className = "missing";
    element.append(inner);
    return element;
  }

  // The highest threshold that flags at least this many rows.
  function findThreshold(count) {
    const index = data.thresholds.findIndex((each) => each[2] >= count);
    return index === -1 ? lowest : index;
  }

  function findNearest(score) {
    const distance = (index) => Math.abs(data.thresholds[index][0] - score);
    return [...data.thresholds.keys()].reduce(
      (best, index) => (distance(index) < distance(best) ? index : best),
      0,
    );
  }

  // Positions on the score axis are from 0 to 1; above `start` the axis is compressed.
  function compressScore(score) {
    const { start, shrink } = data.axis;
    return score <= start ? score : start + (score - start) * shrink;
  }

  function locateScore(score) {
    const [low, high, at] = [data.axis.low, data.axis.high, score].map(compressScore);
    return Math.min(Math.max((at - low) / (high - low), 0), 1);
  }

  function readScore(position) {
    const { start, shrink } = data.axis;
    const [low, high] = [data.axis.low, data.axis.high].map(compressScore);
    const at = low + position * (high - low);
    return at <= start ? at : start + (at - start) / shrink;
  }

  function moveThreshold(threshold, text) {
    const at = locateScore(threshold);
    const x = `${100 * at}%`;
    const line = histogram.querySelector("line.threshold");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    histogram.querySelector("#flagged-area rect").setAttribute("x", x);
    const label = histogram.querySelector("text.threshold");
    label.textContent = `threshold ${text}`;
    label.setAttribute("x", x);
    label.setAttribute("dx", at > LABEL_SIDE ? -6 : 6);
    label.setAttribute("text-anchor", at > LABEL_SIDE ? "end" : "start");
  }

  const tooltip = document.createElement("div");
  tooltip.className = "tooltip";
  tooltip.hidden = true;
  document.body.append(tooltip);

  function findPosition(svg, event) {
    const box = svg.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  }

  // Shows the text of the bar or step under the pointer, and marks it in the chart.
  function showTip(svg, tips, event) {
    const at = findPosition(svg, event);
    const tip = tips.find(([start, end]) => start <= at && at <= end);
    const mark = svg.querySelector(".hover");
    mark.classList.toggle("visible", tip !== undefined);
    tooltip.hidden = tip === undefined;
    if (!tip) return;
    const [start, end, text, y] = tip;
    if (y === null) {
      mark.setAttribute("x", `${100 * start}%`);
      mark.setAttribute("width", `${100 * (end - start)}%`);
    } else {
      mark.setAttribute("cx", `${50 * (start + end)}%`);
      mark.setAttribute("cy", y);
    }
    tooltip.textContent = text;
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - tooltip.offsetWidth - 4);
    tooltip.style.left = `${Math.max(left, 4)}px`;
    tooltip.style.top = `${Math.max(event.clientY - tooltip.offsetHeight - 12, 4)}px`;
  }

  function hideTip(svg) {
    svg.querySelector(".hover").classList.remove("visible");
    tooltip.hidden = true;
  }

  Object.entries(data.tips).forEach(([id, tips]) => {
    const svg = find(id).firstElementChild;
    // The browser would show the title as a second tooltip.
    const title = svg.querySelector("title");
    svg.setAttribute("aria-label", title.textContent);
    svg.removeAttribute("aria-labelledby");
    title.remove();
    svg.addEventListener("pointermove", (event) => showTip(svg, tips, event));
    svg.addEventListener("pointerleave", () => hideTip(svg));
  });
  histogram.addEventListener("click", (event) =>
    setThreshold(findNearest(readScore(findPosition(histogram, event)))));

  slider.addEventListener("input", () =>
    setThreshold(positions[positions.length - 1 - slider.value]));
  find("row-count").addEventListener("input", (event) => {
    if (event.target.value !== "") setThreshold(findThreshold(Number(event.target.value)));
  });
  find("row-count").addEventListener("blur", (event) => {
    event.target.value = data.thresholds[chosen][2];
  });
  find("reset").addEventListener("click", () => {
    setThreshold(data.own);
    slider.focus();
  });
  find("column-filter")?.addEventListener("change", () => setThreshold(chosen));
  find("show-all")?.addEventListener("change", () => setThreshold(chosen));
  rows.forEach((row, index) => {
    const button = row.querySelector("button");
    toggleDetail(row, index, button, false);
    button.addEventListener("click", () =>
      toggleDetail(row, index, button, button.getAttribute("aria-expanded") === "false"));
  });

  setThreshold(data.own);
})();
