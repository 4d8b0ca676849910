//! Measurements against peers and physical limits, as ratios in one run.
