# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of this project's BMCs, compared with the stock ones.

Other load on the machine changes the figures, so they are measured in pairs:
a number of requests to this project's program ("ours"), the same number to
the stock program, in alternating order. The result is the ratio within the
pairs. No figure makes a benchmark fail.

Functions called ``measure`` yield a `report.Row` for each figure. ``sizes`` is
a `plan.Sizes`, ``say`` a function that gets the progress as a text, ``ours`` a
`subjects.Ours`, ``others`` are pairs of a command of ``--compare`` and its
name.
"""
