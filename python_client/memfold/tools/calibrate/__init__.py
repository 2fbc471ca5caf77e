"""Thresholds from an error budget: labelled pairs in, bands with measured error rates out.

Needs the extra ``memfold[calibrate]``. ``calibrate`` reads the labelled pairs of a database and stores a calibration;
``calibrate_pairs`` does the same with given pairs, without storing anything.
"""

from memfold.client._extras import needs

with needs("calibrate"):
    from memfold.tools.calibrate.bands import (
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
    from memfold.tools.calibrate.bounds import Rate, allowed, lower, needed, upper
    from memfold.tools.calibrate.calibration import Calibration
    from memfold.tools.calibrate.choosing import calibrate_pairs
    from memfold.tools.calibrate.pairs import (
        LABELS,
        Pair,
        described,
        fingerprint,
        groups_of,
        parted,
        read_file,
    )
    from memfold.tools.calibrate.run import apply, calibrate, save

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
