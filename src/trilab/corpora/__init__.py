"""Where texts come from: one file a source, each with a `read(...) -> Corpus`."""
