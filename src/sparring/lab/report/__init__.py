"""A page about finished runs: records gathered, curves and samples compared, charts, tables, HTML."""
