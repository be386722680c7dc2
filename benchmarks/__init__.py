# SPDX-License-Identifier: Apache-2.0
"""Accuracy, speed and robustness of the estimators: what `scripts/bench` measures.

The modules by what they are for:

* `__main__` (the command), `benchmark` (a benchmark, its request and outcome, figures with limits
  and bands, parallel cells), `page` (results file, and the page from ``templates``): the harness;
* `second_world` (physics), `second_cell` (motions, bags, estimates), `second_bound` (Cramér-Rao),
  `second_campaign` (methods, scores): the campaign, and statistics of coverage; `prediction`: what
  previews expect on its arms, and of slow motions;
* `compliance`, `geometry`: accuracy and coverage on statics of `second_world`;
* `reference`, `compensation`, `leveling`, `loops`, `wrench`, `wrench_coverage`, `wrench_samples`,
  `seven_joints`: accuracy of the simulated arms against stated limits;
* `nodes`, `offline`, `offline_bag`, `fleet`: time, memory and load;
* `fleet_changes`, `fleet_data`: changes in a simulated fleet;
* `peers`: other tools and published methods, in processes of their own;
* `faults`, `fault_cell`, `fault_table`, `endurance`: `scripts/faults`.

A benchmark is a module with an instance of `benchmark.Benchmark` named ``BENCHMARK``, and its name
in ``BENCHMARKS`` of `__main__`, which is the order of the page; other places are named there, too.
Its ``run(request)`` returns a `benchmark.Outcome`:

* ``figures``: `benchmark.Figure` with a unit, a limit, a 95 % band, and the reason for which the
  limit is missed, kept beside the limit. ``Figure.over`` takes the values of all cases,
  ``Figure.share`` a count, ``Figure.single`` one value;
* ``tables``: `benchmark.Table`, comparisons such as one with other tools, cells of Markdown;
* ``cases``: the single cases, for a closer look in the output folder;
* ``remarks``: sentences below the figures.

With ``request.quick`` every step is tried at the smallest size, within some seconds: a smoke test.
Independent cases go through `benchmark.in_parallel`. Times are compared as ratios within one run.
Libraries that only benchmarks use are optional: a figure without its library is left out.
Records are merged into ``bench/results.json``, from which `page` makes ``docs/benchmarks.md``;
both are committed.
"""
