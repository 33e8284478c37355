"""Readouts beside the paper's linear probe: more blocks, more lengths, n-grams, and a calibrated sum of them.

The paper reads one block of a proxy with a probe of 40 Adam steps (paper, READER Optimization). What stands here is
trained on the same prompt folds and answers with log-posteriors of the same shape.
"""
