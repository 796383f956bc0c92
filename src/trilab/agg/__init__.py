"""The strategies: one way to fill the lower triangle a file, each with a YAML of the same name in conf/agg/."""
