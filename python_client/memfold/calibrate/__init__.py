"""Thresholds from an error budget: labelled pairs in, bands with measured error rates out.

Needs the extra ``memfold[calibrate]``. ``calibrate`` reads the labelled pairs of a database and stores a calibration;
``calibrate_pairs`` does the same with given pairs, without storing anything.
"""

from memfold._extras import needs

with needs("calibrate"):
    from memfold.calibrate.bands import (
        Bands,
        Budget,
        Frontier,
        Measured,
        Sample,
        choose,
        frontier,
        measure,
        percentiles,
    )
    from memfold.calibrate.bounds import Rate, allowed, lower, needed, upper
    from memfold.calibrate.calibration import Calibration
    from memfold.calibrate.choosing import calibrate_pairs
    from memfold.calibrate.pairs import LABELS, Pair, described, fingerprint, groups_of, parted, read_file
    from memfold.calibrate.run import apply, calibrate, save

__all__ = [
    "LABELS",
    "Bands",
    "Budget",
    "Calibration",
    "Frontier",
    "Measured",
    "Pair",
    "Rate",
    "Sample",
    "allowed",
    "apply",
    "calibrate",
    "calibrate_pairs",
    "choose",
    "described",
    "fingerprint",
    "frontier",
    "groups_of",
    "lower",
    "measure",
    "needed",
    "parted",
    "percentiles",
    "read_file",
    "save",
    "upper",
]
