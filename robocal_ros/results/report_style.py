# SPDX-License-Identifier: Apache-2.0
"""Looks of the report: the style sheet, and the script that draws the plots."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1d232b; --soft: #5c6672; --line: #e1e5ea;
  --stripe: #fafbfc; --grid: #e8ebef;
  --pass: #1a7f45; --pass-back: #e5f5eb; --fail: #b42318; --fail-back: #fdeceb;
  --open: #8a5a00; --open-back: #fdf3dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --card: #1c2128; --ink: #e6e9ed; --soft: #9aa5b1; --line: #313842;
    --stripe: #20262e; --grid: #2c333c;
    --pass: #5fd08b; --pass-back: #173626; --fail: #ff8a80; --fail-back: #40201e;
    --open: #f0c05a; --open-back: #3a2f16;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans',
    sans-serif;
}
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 0; letter-spacing: -.005em; }
h3 { font-size: 1rem; margin: 2rem 0 .6rem; }
h4 { font-size: .92rem; font-weight: 600; margin: 0 0 .25rem; }
p { margin: .4rem 0; }
a { color: inherit; }
.lead, .soft { color: var(--soft); }
.small { font-size: .875rem; }
section, nav {
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1.5rem 1.75rem 1.75rem; margin-top: 1.5rem;
}
nav { padding: .5rem 1.75rem; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav td:last-child { text-align: right; }
nav td:first-child { font-weight: 600; white-space: nowrap; }
.head { display: flex; align-items: center; gap: .9rem; flex-wrap: wrap; }
.badge {
  font-size: .8rem; font-weight: 650; padding: .15rem .7rem; border-radius: 1rem;
  white-space: nowrap;
}
.pass { color: var(--pass); background: var(--pass-back); }
.fail { color: var(--fail); background: var(--fail-back); }
.not_evaluated { color: var(--open); background: var(--open-back); }
ul.checks { list-style: none; margin: .5rem 0 0; padding: 0; }
ul.checks li { padding: .15rem 0 .15rem 1.7rem; position: relative; }
ul.checks li::before { position: absolute; left: .2rem; font-weight: 700; }
ul.checks li.ok::before { content: '✓'; color: var(--pass); }
ul.checks li.bad::before { content: '✗'; color: var(--fail); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .925rem; }
th {
  text-align: left; font-weight: 600; color: var(--soft); font-size: .8rem; padding: .35rem .75rem;
  border-bottom: 1px solid var(--line); white-space: nowrap;
}
td { padding: .4rem .75rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th.number, td.number {
  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap;
}
td.words:first-child, td.words:last-child { min-width: 9rem; }
td code { color: var(--soft); font-size: .8rem; display: block; }
code { font-family: ui-monospace, 'SFMono-Regular', Menlo, 'DejaVu Sans Mono', monospace; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 2rem; }
.plots {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr));
  gap: 1.75rem 1.5rem; margin-top: .75rem;
}
.plots figure { margin: 0; min-width: 0; }
.plot { height: 19rem; }
details { margin-top: 1.5rem; }
summary { cursor: pointer; font-weight: 600; }
details h3 { margin-top: 1rem; }
footer { color: var(--soft); font-size: .85rem; margin-top: 2rem; }
@media (max-width: 34rem) {
  main { padding: 1.25rem .75rem 3rem; }
  section { padding: 1.1rem 1rem; }
  .plots { grid-template-columns: minmax(0, 1fr); }
}
@media print {
  :root {
    --page: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #ccc; --stripe: #fff;
    --grid: #ddd; --pass: #1a7f45; --pass-back: #fff; --fail: #b42318; --fail-back: #fff;
    --open: #8a5a00; --open-back: #fff;
  }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  section, nav { border: 0; padding: 0; margin-top: 1.5rem; }
  .badge { border: 1px solid currentColor; }
  table { font-size: 9pt; }
  td, th { padding: .25rem .45rem; }
  td.words:first-child, td.words:last-child { min-width: 0; }
  td code { overflow-wrap: anywhere; }
  figure, tr, li, h3 { break-inside: avoid; }
  h2, h3, h4 { break-after: avoid; }
  .plots { grid-template-columns: 1fr 1fr; }
  .plot, .plot > div, .plot .svg-container {
    width: 100% !important; height: auto !important; aspect-ratio: 16 / 10;
  }
  .plot .main-svg { width: 100% !important; height: 100% !important; }
}
"""

SCRIPT = """
const figures = JSON.parse(document.getElementById('figures').textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function axis(own) {
  return Object.assign({gridcolor: colour('--grid'), zerolinecolor: colour('--line'),
                        linecolor: colour('--line'), automargin: true}, own);
}
function layout(own) {
  return Object.assign({}, own, {
    font: {family: getComputedStyle(document.body).fontFamily, size: 12, color: colour('--soft')},
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
    xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
  });
}
const plots = Array.from(document.querySelectorAll('.plot'));
// With a view box a drawing scales to the paper; a printer does not wait for a new one.
function scalable(element) {
  element.querySelectorAll('svg.main-svg').forEach(svg => svg.setAttribute(
    'viewBox', `0 0 ${svg.getAttribute('width')} ${svg.getAttribute('height')}`));
}
function draw() {
  plots.forEach((element, i) => Plotly.react(
    element, figures[i].data, layout(figures[i].layout),
    {responsive: true, displaylogo: false, displayModeBar: false}));
}
draw();
plots.forEach(element => {
  scalable(element);
  element.on('plotly_afterplot', () => scalable(element));
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(
  element => { element.open = true; }));
"""
