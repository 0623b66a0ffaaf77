"use strict";
/* Forecasts to step through. The data of a viewer:
   runs: names; colours: the number of that of each; bands: percents of the central intervals of each run, wide to narrow; steps: whether time counts steps;
   dates: whether all stamps are midnights; series: names, with what is known of each;
   windows: of each: series (number), word, times (seconds since 1970, or steps; [first, step, count] where even),
   past, truth, and forecasts: for each run null, or its point, its bands [low, high], and its mse. */
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DASH = "\u2013";
  const STEPS = [1, 5, 15, 30].map((minutes) => 60 * minutes)
    .concat([1, 3, 6, 12].map((hours) => 3600 * hours), [1, 2, 7, 14, 28, 91, 182, 365, 730, 1826].map((days) => 86400 * days));

  const made = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.append(...children);
    return element;
  };
  const drawn = (name, attributes = {}, text = null) => {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (text !== null) element.textContent = text;
    return element;
  };
  const two = (number) => String(number).padStart(2, "0");
  const number = (value) => {
    if (value === null || value === undefined) return DASH;
    const text = Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
    return text.replace("-", "\u2212");
  };
  const timesOf = (given) => (given.even ? Array.from({ length: given.even[2] }, (_, k) => given.even[0] + k * given.even[1]) : given.each);
  const nice = (span, count) => {
    const rough = span / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  };

  const start = (figure) => {
    const data = JSON.parse(figure.querySelector('script[type="application/json"]').textContent);
    const colour = (run) => `var(--hue-${data.colours[run] % 8})`;
    const label = figure.querySelector("figcaption").textContent.trim();
    const moment = (time, short = false) => {
      if (data.steps) return short ? String(time) : `step ${time}`;
      const stamp = new Date(time * 1000);
      const day = `${stamp.getUTCFullYear()}-${two(stamp.getUTCMonth() + 1)}-${two(stamp.getUTCDate())}`;
      const clock = `${two(stamp.getUTCHours())}:${two(stamp.getUTCMinutes())}`;
      if (data.dates) return day;
      return short ? (clock === "00:00" ? day : clock) : `${day} ${clock}`;
    };
    const own = data.series.map((_, series) => data.windows.filter((one) => one.series === series));
    const shown = data.runs.map(() => true);
    let series = 0;
    let place = 0;

    const choice = (name, options) => {
      const select = made("select");
      select.append(...options.map((text, at) => new Option(text, at)));
      const back = made("button", { type: "button", "aria-label": `previous ${name}` }, "\u2190");
      const on = made("button", { type: "button", "aria-label": `next ${name}` }, "\u2192");
      return [select, back, on, made("div", { class: "choice" }, made("label", {}, name, select), back, on)];
    };
    const named = (one) => (one.word ? `${one.name}, ${one.word}` : one.name);
    const [seriesSelect, seriesBack, seriesOn, seriesChoice] = choice("series", data.series.map(named));
    const [originSelect, originBack, originOn, originChoice] = choice("forecast from", []);
    const legend = made("ul", { class: "legend" });
    const truth = made("span", { class: "swatch", style: "color: var(--ink)" });
    legend.append(made("li", {}, made("label", {}, truth, "observed")));
    data.runs.forEach((name, run) => {
      const box = made("input", { type: "checkbox", checked: "" });
      box.addEventListener("change", () => { shown[run] = box.checked; draw(); });
      const bands = data.bands[run].map((percent) => `${percent} %`).join(" and ");
      const text = bands ? `${name}, median and ${bands} interval` : name;
      legend.append(made("li", {}, made("label", {}, box, made("span", { class: "swatch", style: `color: ${colour(run)}` }), text)));
    });
    const plot = made("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${label} Arrow keys step through them.` });
    const readout = made("output", { class: "readout" });
    figure.prepend(made("div", { class: "controls" }, ...(data.series.length > 1 ? [seriesChoice] : []), originChoice), legend, plot, readout);

    const current = () => own[series][place];
    const fillOrigins = () => {
      originSelect.replaceChildren(...own[series].map((one, at) => {
        const from = timesOf(one.times)[one.past.length];
        return new Option(one.word ? `${moment(from)}, ${one.word}` : moment(from), at);
      }));
    };
    const go = (toSeries, toPlace) => {
      const isOther = toSeries !== series;
      series = Math.max(0, Math.min(data.series.length - 1, toSeries));
      if (isOther) fillOrigins();
      place = Math.max(0, Math.min(own[series].length - 1, toPlace));
      seriesSelect.value = series;
      originSelect.value = place;
      seriesBack.disabled = series === 0;
      seriesOn.disabled = series === data.series.length - 1;
      originBack.disabled = place === 0;
      originOn.disabled = place === own[series].length - 1;
      draw();
    };
    const describe = () => {
      const parts = current().forecasts.map((one, run) => (one ? `${data.runs[run]}: MSE ${number(one.mse)}` : `${data.runs[run]}: no forecast`));
      return `${data.series[series].name}, forecast from ${moment(timesOf(current().times)[current().past.length])}. ${parts.join("; ")}, in squared units of the data.`;
    };

    function draw() {
      const one = current();
      const times = timesOf(one.times);
      const before = one.past.length;
      const runs = one.forecasts.map((forecast, run) => [forecast, run]).filter(([forecast, run]) => forecast && shown[run]);
      const width = Math.max(260, plot.clientWidth || 800);
      const height = Math.max(220, Math.min(380, 0.42 * width));
      const margin = { left: 52, right: 10, top: 10, bottom: 34 };
      const all = [...one.past, ...one.truth, ...runs.flatMap(([forecast]) => [...forecast.point, ...forecast.bands.flat(2)])].filter((value) => value !== null);
      let [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
      if (low === high) [low, high] = [low - 1, high + 1];
      const room = 0.04 * (high - low);
      [low, high] = [low - room, high + room];
      const [first, last] = [times[0], times[times.length - 1]];
      const x = (time) => margin.left + (last > first ? (time - first) / (last - first) : 0.5) * (width - margin.left - margin.right);
      const y = (value) => margin.top + (high - value) / (high - low) * (height - margin.top - margin.bottom);
      const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe() });
      const step = nice(high - low, 5);
      for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
        svg.append(drawn("line", { x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value), stroke: "var(--line)" }));
        svg.append(drawn("text", { x: margin.left - 6, y: y(value) + 4, "text-anchor": "end", fill: "var(--ink)" }, number(Math.abs(value) < step / 1e6 ? 0 : value)));
      }
      const most = Math.max(2, Math.floor((width - margin.left) / 110));
      const span = Math.max(1, last - first);
      const gap = data.steps ? Math.max(1, nice(span, most)) : STEPS.find((seconds) => span / seconds <= most && (!data.dates || seconds >= 86400)) || nice(span, most);
      for (let time = Math.ceil(first / gap) * gap; time <= last; time += gap) {
        svg.append(drawn("line", { x1: x(time), x2: x(time), y1: height - margin.bottom, y2: height - margin.bottom + 4, stroke: "var(--dim)" }));
        const anchor = x(time) > width - 40 ? "end" : x(time) < margin.left + 30 ? "start" : "middle";
        svg.append(drawn("text", { x: x(time), y: height - margin.bottom + 18, "text-anchor": anchor, fill: "var(--ink)" }, moment(time, true)));
      }
      svg.append(drawn("line", { x1: x(times[before]), x2: x(times[before]), y1: margin.top, y2: height - margin.bottom, stroke: "var(--dim)", "stroke-dasharray": "2 3" }));
      const line = (values, at, attributes) => {
        let path = "";
        let isOpen = false;
        values.forEach((value, k) => {
          if (value !== null) path += `${isOpen ? "L" : "M"}${x(times[at + k]).toFixed(1)} ${y(value).toFixed(1)}`;
          isOpen = value !== null;
        });
        svg.append(drawn("path", { d: path, fill: "none", ...attributes }));
      };
      runs.forEach(([forecast, run]) => {
        forecast.bands.forEach(([lows, highs], band) => {
          const up = highs.map((value, k) => `${x(times[before + k]).toFixed(1)} ${y(value).toFixed(1)}`);
          const down = lows.map((value, k) => `${x(times[before + k]).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
          svg.append(drawn("path", { class: "band", d: `M${up.join("L")}L${down.join("L")}Z`, fill: colour(run), "fill-opacity": 0.14 + 0.1 * band }));
        });
      });
      line([...one.past, ...one.truth], 0, { class: "observed", stroke: "var(--ink)", "stroke-width": 1.3 });
      runs.forEach(([forecast, run]) => line(forecast.point, before, { class: "point", stroke: colour(run), "stroke-width": 1.8 }));
      const rule = drawn("line", { y1: margin.top, y2: height - margin.bottom, stroke: "var(--dim)", visibility: "hidden" });
      svg.append(rule);
      readout.textContent = describe();
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const wanted = first + ((event.clientX - box.left) * width / box.width - margin.left) / (width - margin.left - margin.right) * (last - first);
        const at = times.reduce((best, time, k) => (Math.abs(time - wanted) < Math.abs(times[best] - wanted) ? k : best), 0);
        rule.setAttribute("x1", x(times[at]));
        rule.setAttribute("x2", x(times[at]));
        rule.setAttribute("visibility", "visible");
        const seen = at < before ? one.past[at] : one.truth[at - before];
        const words = runs.filter(() => at >= before).map(([forecast, run]) => {
          const bands = forecast.bands.map(([lows, highs]) => ` (${number(lows[at - before])} to ${number(highs[at - before])})`).join("");
          return `${data.runs[run]} ${number(forecast.point[at - before])}${bands}`;
        });
        readout.textContent = [moment(times[at]), `observed ${number(seen)}`, ...words].join("; ");
      });
      svg.addEventListener("pointerleave", () => {
        rule.setAttribute("visibility", "hidden");
        readout.textContent = describe();
      });
      plot.replaceChildren(svg);
    }

    seriesSelect.addEventListener("change", () => go(Number(seriesSelect.value), 0));
    originSelect.addEventListener("change", () => go(series, Number(originSelect.value)));
    seriesBack.addEventListener("click", () => go(series - 1, place));
    seriesOn.addEventListener("click", () => go(series + 1, place));
    originBack.addEventListener("click", () => go(series, place - 1));
    originOn.addEventListener("click", () => go(series, place + 1));
    plot.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      go(series + to[0], place + to[1]);
    });
    fillOrigins();
    go(0, 0);
    new ResizeObserver(() => { if (plot.firstChild && Math.abs(plot.firstChild.viewBox.baseVal.width - plot.clientWidth) > 1) draw(); }).observe(plot);
  };

  document.querySelectorAll("[data-viewer]").forEach(start);
})();
