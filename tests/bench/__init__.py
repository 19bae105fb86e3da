# SPDX-License-Identifier: Apache-2.0
"""What the BMCs cost, measured beside the stock ones in the same minutes.

A machine that runs benchmarks is never still, so figures are taken in pairs:
a share of the requests to ours, the same share to stock, the other way round
next time; and what is compared is the ratio within a pair. Nothing here fails
because of a figure.
"""
