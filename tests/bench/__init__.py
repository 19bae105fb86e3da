# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the BMCs, compared with the stock ones.

A machine that runs benchmarks always has other load, so figures are taken in
pairs: some of the requests to ours, the same number to stock, in the opposite
order next time. The ratio within a pair is compared. No figure makes a
benchmark fail.
"""
