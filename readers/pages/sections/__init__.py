"""The sections of a report: each is a function from a study to a section, or to None."""
