"""Studies beside the library: calibration, controls on recordings, the paper's figures, data sets.

The library does not import anything from here; the commands join `fedgranger` by an entry point.
"""
