# SPDX-License-Identifier: Apache-2.0
"""Accuracy, speed and robustness of the estimators: what `scripts/bench` measures.

A benchmark is a module of this package with an instance of `benchmark.Benchmark` named
``BENCHMARK``, and its name in ``BENCHMARKS`` of `__main__`, which is the order of the page. It
states ``title``, ``about`` (sentences on what is measured, and on what), ``seeds`` (number of
random cells that its limits refer to) and ``quick_seeds``, and ``run(request)`` returns a
`benchmark.Outcome`:

* ``figures``: `figures.Figure` with a unit, a limit, a 95 % band, and the reason for which the
  limit is missed, kept beside the limit. ``Figure.over`` takes the values of all cases,
  ``Figure.share`` a count;
* ``tables``: `benchmark.Table`, comparisons such as one with other tools, cells of Markdown;
* ``plots``: `plot.Plot` of lines with bands and verdicts;
* ``cases``: the single cases, for a closer look in the output folder;
* ``remarks``: sentences below the figures.

With ``request.quick`` every step is tried at the smallest size, within some seconds: a smoke test.
Independent cases go through `benchmark.in_parallel`. Times are compared as ratios within one run.
Libraries that only benchmarks use are optional: a figure without its library is left out, with a
remark. Records are merged into ``bench/results.json``, from which `page` makes
``docs/benchmarks.md``; both are committed.
"""
