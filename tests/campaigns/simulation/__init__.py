"""Jobs on a simulated runner and store, in which everything that may go wrong does, from one seed.

    .venv/bin/python -m tests.campaigns simulation 100000 [first_seed]

The pipelines, steps and files are those of real jobs. The runner cuts collections into bundles at random,
runs them in any order, loses attempts half-way, repeats them, and lets attempts that it believes dead run
beside later ones; it may lose or repeat elements, too. The store fails before a request or after it, is full,
or the whole job dies at a request. Whatever happens, the dataset has the bytes of an undisturbed run or
no manifest, and the next run completes it.
"""
