"""``intattention bench``: what a machine does with attention, linears and models, and at what cost.

Here are the measured cases, the conditions they are measured under, and the reports; the scripts
in ``bench/`` of the source tree use the same cases.
"""
