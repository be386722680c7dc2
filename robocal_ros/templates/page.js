// SPDX-License-Identifier: Apache-2.0
// Draws the plots of the report in the colours of its style sheet.
const figures = JSON.parse(document.getElementById('figures').textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function axis(own) {
  return Object.assign({gridcolor: colour('--grid'), zerolinecolor: colour('--line'),
                        linecolor: colour('--line'), automargin: true}, own);
}
function layout(own) {
  const below = own.yaxis2 ? {yaxis2: axis(own.yaxis2)} : {};
  return Object.assign({}, own, below, {
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
