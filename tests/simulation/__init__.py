"""A machine that looks for counterexamples: the product on a virtual clock, in one thread.

Read `world` first (time, processes, fibers), then `stand_ins` (what is replaced in the product,
and what is not), `history` (one run), `invariants` (what must hold) and `faults` (what is done to
it). docs/explanation/simulation.md tells it to newcomers.
"""
